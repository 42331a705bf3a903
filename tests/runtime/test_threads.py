"""Many threads on slots of their own, and two racing for one."""

from __future__ import annotations

import random
import threading

import torch

from reclaim import EagerWorkspaceReclaimer, OverlappingForwardError, WorkspaceManager, use_ubatch

THREADS, FORWARDS = 8, 10_000


def in_threads(*works):
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_eight_threads_on_their_own_slots_never_see_one_anothers_bytes():
    workspace = WorkspaceManager("cpu", num_ubatches=THREADS)
    workspace.reserve(((256,), torch.uint8))
    reclaimer = EagerWorkspaceReclaimer(workspace)

    def work(ubatch):
        choose = random.Random(ubatch)
        plans = [workspace.plan(((size,), torch.uint8)) for size in (256, 4096, 16384)]
        with torch.inference_mode(), use_ubatch(ubatch):
            for number in range(FORWARDS):
                with reclaimer.forward():
                    (view,) = workspace.get(plans[2 if number % 97 == 0 else choose.randrange(2)])
                    view[:8].fill_(ubatch)
                    view[-8:].fill_(ubatch)
                    assert (view[:8] == ubatch).all()
                    assert (view[-8:] == ubatch).all()
                    del view

    in_threads(*(lambda ubatch=ubatch: work(ubatch) for ubatch in range(THREADS)))
    stats = reclaimer.stats()
    assert [slot.observed for slot in stats.slots] == [FORWARDS] * THREADS
    assert all(slot.shrinks > 50 and slot.enabled for slot in stats.slots)
    assert len({slot._tensor.data_ptr() for slot in workspace.slots}) == THREADS


def test_two_threads_racing_for_one_slot_get_exactly_the_right_errors():
    workspace = WorkspaceManager("cpu")
    workspace.reserve(((4096,), torch.uint8))
    reclaimer = EagerWorkspaceReclaimer(workspace)
    entered, refused = [0, 0], [0, 0]

    def work(me):
        with torch.inference_mode():
            for _ in range(FORWARDS):
                try:
                    with reclaimer.forward():
                        (view,) = workspace.get_simultaneous(((4096,), torch.uint8))
                        view.fill_(me)
                        assert (view == me).all()
                        entered[me] += 1
                except OverlappingForwardError:
                    refused[me] += 1

    in_threads(lambda: work(0), lambda: work(1))
    assert [a + b for a, b in zip(entered, refused, strict=True)] == [FORWARDS, FORWARDS]
    stats = reclaimer.stats().slots[0]
    assert (stats.observed, stats.aborted) == (sum(entered), 0)
