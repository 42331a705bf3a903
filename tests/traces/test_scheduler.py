from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim import TraceFormatError
from reclaim.traces import Requests
from reclaim.traces.serving import Scheduler, StepTime, demand_trace

ONE_SECOND = StepTime(base_s=1.0, decode_s=0.0, prefill_s=0.0, context_s=0.0)


def requests_of(*rows):
    """Each row is (arrival, prompt tokens, output tokens)."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return Requests(
        arrival_s=np.array(columns[0], dtype=float),
        prompt_tokens=np.array(columns[1], dtype=np.int64),
        output_tokens=np.array(columns[2], dtype=np.int64),
    )


def run(*rows, **limits):
    return Scheduler(**{"step_time": ONE_SECOND, **limits}).run(requests_of(*rows))


def columns(forwards):
    """(start, decode tokens, prompt tokens, sequences, context tokens) of each forward."""
    parts = (forwards.decode_tokens, forwards.prefill_tokens, forwards.sequences, forwards.context_tokens)
    return list(zip(forwards.time_s.tolist(), *(part.tolist() for part in parts), strict=True))


def test_a_prompt_is_cut_to_the_budget_and_the_rest_goes_to_the_next():
    # Budget 4. A: 6 prompt tokens, 3 outputs. B: 3 prompt tokens, 1 output.
    assert columns(run((0, 6, 3), (0, 3, 1), token_budget=4, max_sequences=4)) == [
        (0.0, 0, 4, 1, 4),  # A takes the budget; it attends to its 4 tokens
        (1.0, 0, 4, 2, 8),  # A's last 2 (context 6) and 2 of B (2): A has its first output
        (2.0, 1, 1, 2, 10),  # A decodes (7), B's last 1 (3): B has its only output and leaves
        (3.0, 1, 0, 1, 8),  # A decodes its third
    ]


def test_whole_prompts_wait_for_a_budget_that_holds_them():
    # Budget 6, whole prompts of 4, 3 and 2, one output each: 4 (3 does not fit into the remaining 2), then 3 + 2
    forwards = run((0, 4, 1), (0, 3, 1), (0, 2, 1), token_budget=6, max_sequences=4, chunked=False)
    assert columns(forwards) == [(0.0, 0, 4, 1, 4), (1.0, 0, 5, 2, 5)]


def test_a_whole_prompt_above_the_budget_runs_alone():
    forwards = run((0, 6, 1), (0, 3, 1), (0, 1, 1), token_budget=4, max_sequences=4, chunked=False)
    assert columns(forwards) == [(0.0, 0, 6, 1, 6), (1.0, 0, 4, 2, 4)]


def test_a_whole_prompt_that_fits_the_budget_never_makes_a_forward_exceed_it():
    # Budget 10. A decodes from 1 s to 4 s; B's 10 tokens fit the budget, but not beside A's one.
    forwards = run((0, 2, 5), (0.5, 10, 1), token_budget=10, max_sequences=4, chunked=False)
    assert forwards.tokens.max() <= 10
    assert forwards.prefill_tokens.sum() == 12


def test_the_same_prompts_in_chunks_fill_the_budget():
    forwards = run((0, 4, 1), (0, 3, 1), (0, 2, 1), token_budget=6, max_sequences=4)
    assert columns(forwards) == [(0.0, 0, 6, 2, 6), (1.0, 0, 3, 2, 5)]  # 4 + 2 of 3; then 1 (context 3) and 2


def test_decoding_sequences_take_their_token_first():
    # Budget 4. A and B decode from 1 s on, so that C's prompt of 5 gets 2 a forward.
    assert columns(run((0, 2, 4), (0, 2, 4), (0.5, 5, 1), token_budget=4, max_sequences=4)) == [
        (0.0, 0, 4, 2, 4),
        (1.0, 2, 2, 3, 8),  # 3 + 3 + 2
        (2.0, 2, 2, 3, 12),  # 4 + 4 + 4
        (3.0, 2, 1, 3, 15),  # 5 + 5 + 5, the fourth and last output of A and B
    ]


def test_a_prompt_begun_earlier_goes_on_before_others_are_admitted():
    # Budget 3: A's 5 as 3 + 2, and only the last 1 of the second forward is left for B
    assert columns(run((0, 5, 1), (0, 2, 1), token_budget=3, max_sequences=3)) == [
        (0.0, 0, 3, 1, 3),
        (1.0, 0, 3, 2, 6),  # A 2 (context 5), B 1 (1)
        (2.0, 0, 1, 1, 2),
    ]


def test_no_more_sequences_are_in_flight_than_allowed():
    # one at a time: A's prompt and two decodes, then B's prompt
    assert columns(run((0, 1, 3), (0, 1, 1), token_budget=8, max_sequences=1)) == [
        (0.0, 0, 1, 1, 1),
        (1.0, 1, 0, 1, 2),
        (2.0, 1, 0, 1, 3),
        (3.0, 0, 1, 1, 1),
    ]


def test_while_idle_nothing_runs():
    # A's two forwards, nothing from 2 s on, B at 10 s
    forwards = run((0, 1, 2), (10, 1, 1))
    assert forwards.time_s.tolist() == [0.0, 1.0, 10.0]
    assert forwards.duration_s.tolist() == [1.0, 1.0, 1.0]


def test_who_arrives_during_a_forward_waits_for_its_end():
    assert columns(run((0, 3, 1), (0.25, 2, 1))) == [(0.0, 0, 3, 1, 3), (1.0, 0, 2, 1, 2)]


def test_who_arrives_at_the_moment_a_forward_begins_is_in_it():
    assert columns(run((0, 3, 1), (1.0, 2, 1), (1.0, 4, 1)))[1:] == [(1.0, 0, 6, 2, 6)]


def test_admission_is_first_come_first_served():
    # a short prompt does not overtake the long one before it
    forwards = run((0, 9, 1), (0, 1, 1), token_budget=4, max_sequences=4)
    assert forwards.sequences.tolist() == [1, 1, 2]


def test_a_request_without_output_still_runs_its_prompt():
    assert columns(run((0, 3, 0))) == columns(run((0, 3, 1))) == [(0.0, 0, 3, 1, 3)]


def test_the_duration_counts_base_decodes_prompt_and_context():
    # 1 + 10 per decode + 100 per prompt token + 1000 per context token. First: 2 prompt tokens, context 2:
    # 1 + 200 + 2000 = 2201. Then one decode, context 3: 1 + 10 + 3000 = 3011.
    forwards = run((0, 2, 2), step_time=StepTime(1.0, 10.0, 100.0, 1000.0))
    assert forwards.duration_s.tolist() == [2201.0, 3011.0]
    assert forwards.time_s.tolist() == [0.0, 2201.0]


def test_the_default_step_time_is_that_of_the_fit():
    # 0.0291 + 256 * 0.000328 = 0.113068 s for a full decode batch, 0.0291 + 8192 * 0.0000626 = 0.5419192 s for a prompt
    assert StepTime().seconds(256, 0, 10**6) == pytest.approx(0.113068)
    assert StepTime().seconds(0, 8192, 8192) == pytest.approx(0.5419192)


def test_no_requests_need_no_forwards():
    forwards = run()
    assert len(forwards) == 0
    assert forwards.tokens.dtype == np.int64


@pytest.mark.parametrize(("budget", "sequences"), [(0, 0), (8, 0), (8, 9), (-1, -1)])
def test_limits_that_no_engine_could_run_with_are_refused(budget, sequences):
    with pytest.raises(ValueError, match=f"got max_sequences={sequences}, token_budget={budget}"):
        Scheduler(token_budget=budget, max_sequences=sequences)


LOGS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 1.0, 5.0]), st.integers(1, 30), st.integers(0, 8)), max_size=12
).map(lambda rows: [(sum(gap for gap, _, _ in rows[: i + 1]), p, o) for i, (_, p, o) in enumerate(rows)])
LIMITS = st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, 20)))


@given(LOGS, LIMITS, st.booleans())
@settings(deadline=None)
def test_every_token_is_run_once(rows, limits, chunked):
    forwards = run(*rows, max_sequences=limits[0], token_budget=limits[1], chunked=chunked)
    assert forwards.prefill_tokens.sum() == sum(prompt for _, prompt, _ in rows)
    assert forwards.decode_tokens.sum() == sum(max(0, output - 1) for _, _, output in rows)
    assert (forwards.tokens >= 1).all()
    assert (forwards.sequences <= limits[0]).all()
    assert (forwards.tokens >= forwards.sequences).all()
    assert not chunked or (forwards.tokens <= limits[1]).all()
    assert (np.diff(forwards.time_s) >= forwards.duration_s[:-1]).all()


def one_by_one(rows, max_sequences, budget):
    """The chunked rules again, sequence by sequence and token by token."""
    waiting = [{"at": at, "prompt": prompt, "outputs": outputs, "done": 0} for at, prompt, outputs in rows]
    prefilling, decoding, found, now = [], [], [], 0.0
    while waiting or prefilling or decoding:
        if not (prefilling or decoding):
            now = max(now, waiting[0]["at"])
        left, context = budget - len(decoding), 0
        for sequence in decoding:
            sequence["done"] += 1
            context += sequence["done"]
        chosen = []
        while prefilling and left:
            chosen.append(prefilling.pop(0))
            chosen[-1]["size"] = min(left, chosen[-1]["prompt"] - chosen[-1]["done"])
            left -= chosen[-1]["size"]
        flight = len(decoding) + len(prefilling) + len(chosen)
        while waiting and waiting[0]["at"] <= now and flight < max_sequences and left:
            chosen.append(waiting.pop(0))
            chosen[-1]["size"] = min(left, chosen[-1]["prompt"])
            left -= chosen[-1]["size"]
            flight += 1
        for sequence in chosen:
            sequence["done"] += sequence["size"]
            context += sequence["done"]
        found.append((now, len(decoding), sum(s["size"] for s in chosen), len(decoding) + len(chosen), context))
        decoding = [s for s in decoding if s["done"] < s["prompt"] + s["outputs"] - 1]
        for sequence in chosen:
            if sequence["done"] < sequence["prompt"]:
                prefilling.append(sequence)
            elif sequence["outputs"] > 1:
                decoding.append(sequence)
        now += 1.0
    return found


@given(LOGS, LIMITS)
@settings(deadline=None)
def test_the_forwards_are_those_of_a_scheduler_that_counts_one_by_one(rows, limits):
    assert columns(run(*rows, max_sequences=limits[0], token_budget=limits[1])) == one_by_one(rows, *limits)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 1, 1), (0, 1, 1)], "never decrease"),
        ([(-1, 1, 1)], "not negative"),
        ([(float("nan"), 1, 1)], "finite"),
        ([(0, 0, 1)], "at least 1 prompt token"),
        ([(0, 1, -1)], "0 output tokens"),
    ],
)
def test_requests_that_cannot_be_are_refused(rows, message):
    with pytest.raises(TraceFormatError, match=message):
        requests_of(*rows)


def test_request_columns_of_different_lengths_are_refused():
    with pytest.raises(TraceFormatError, match=r"must have one length, got \[1, 2\]"):
        Requests(np.zeros(2), np.ones(1, np.int64), np.ones(2, np.int64))


def test_a_stretch_of_requests_counts_from_its_own_start():
    requests = Requests(
        np.array([0.0, 1.0, 2.0, 3.0]),
        np.arange(1, 5),
        np.arange(4),
        block_hashes=((1,), (2,), (3,), (4,)),
        meta={"a": 1},
    )
    part = requests.between(1.0, 3.0)  # 1.0 is in it, 3.0 is not
    assert part.arrival_s.tolist() == [0.0, 1.0]
    assert part.prompt_tokens.tolist() == [2, 3]
    assert part.output_tokens.tolist() == [1, 2]
    assert (part.block_hashes, part.meta) == (((2,), (3,)), {"a": 1})


def test_a_workload_is_a_trace_that_says_how_it_was_made():
    scheduler = Scheduler(token_budget=4, max_sequences=2, step_time=ONE_SECOND)
    trace = demand_trace(requests_of((0, 6, 2)), scheduler=scheduler, total_bytes=1 << 30)
    # 172,032 B a token (see the demand formula): prompts of 4 and 2 tokens, one decode; the floor is 2 decodes
    assert trace.demand_bytes.tolist() == [4 * 172032, 2 * 172032, 172032]
    assert trace.time_s.tolist() == [0.0, 1.0, 2.0]
    assert trace.duration_s.tolist() == [1.0, 1.0, 1.0]
    assert trace.floor_bytes == 2 * 172032
    assert trace.meta["total_bytes"] == 1 << 30
    assert trace.meta["workload"]["scheduler"]["token_budget"] == 4
    assert trace.meta["workload"]["demand"]["formula"] == "fused-moe"


def test_the_floor_of_a_workload_can_be_given_in_tokens():
    trace = demand_trace(requests_of((0, 6, 2)), floor_tokens=10)
    assert trace.floor_bytes == 10 * 172032
    assert "total_bytes" not in trace.meta
