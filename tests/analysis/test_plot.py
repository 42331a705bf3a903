from __future__ import annotations

import os
import threading

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from reclaim import CostModel, DemandTrace, InputError, compare, plot_reserved, replay
from reclaim.analysis.plot import save_plot

COST = CostModel(1 << 34, 1e-3, 1e-3)
GIB, MIB = 1 << 30, 1 << 20
PNG, SVG, PDF = b"\x89PNG\r\n", b"<?xml", b"%PDF-"


def regular(demands, step_s=1.0, **columns):
    count = len(demands)
    return DemandTrace(
        time_s=np.arange(count) * step_s,
        duration_s=np.full(count, step_s),
        demand_bytes=np.array(demands, dtype=np.int64),
        **columns,
    )


def line(axes, label):
    (found,) = [line for line in axes.get_lines() if line.get_label() == label]
    return found


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def demand_outline(axes):
    return axes.collections[0].get_paths()[0].vertices


def shaded(axes):
    """The stretches of time that are shaded."""
    spans = [patch.get_bbox().intervalx.tolist() for patch in axes.patches if isinstance(patch, Rectangle)]
    return sorted(spans)


TRACES = {
    "empty": regular([]),
    "one sample": regular([5 * MIB], step_s=0.0),
    "all zeros": regular([0] * 50),
    "one nanosecond": regular([MIB, 2 * MIB], step_s=0.5e-9),
    "thirty days": regular([MIB, 3 * MIB] * 30, step_s=43_200.0),
    "no time at all": regular([1, 2, 3], step_s=0.0),
    "huge": regular([2**31 - 1, 2**31, 2**32 + 1, 5 * 2**40, 2**62]),
    "a floor above everything": regular([1, 2], meta={"floor_bytes": 10}),
    "never sampled": regular([1, 2], capacity_bytes=[-1, -1], reserved_bytes=[-1, -1]),
    "far from zero": DemandTrace(time_s=[1e9, 1e9 + 1], demand_bytes=[1, 2]),
}


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("kind", ["trace", "result", "comparison"])
def test_every_trace_gives_a_picture_without_a_warning(tmp_path, name, kind):
    trace = TRACES[name]
    sources = {
        "trace": lambda: trace,
        "result": lambda: replay(trace, "three-window", cost=COST),
        "comparison": lambda: compare(trace, ["three-window"], cost=COST),
    }
    save_plot(plot_reserved(sources[kind]()), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_a_million_forwards_give_a_picture_with_every_spike(tmp_path):
    demands = np.full(1_000_000, MIB)
    spikes = np.arange(40) * 25_000 + 123
    demands[spikes] = (np.arange(40) + 2) * GIB
    trace = DemandTrace(
        time_s=np.arange(1_000_000) * 1e-3,
        duration_s=np.full(1_000_000, 1e-3),
        demand_bytes=demands,
        reserved_bytes=demands + 4096,
        capacity_bytes=demands,
    )
    axes = plot_reserved(trace)
    save_plot(axes, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    outline = demand_outline(axes)
    assert len(outline) < 50_000
    assert set(range(2, 42)) <= set(outline[:, 1].tolist())  # in GiB
    for label, added in (("reserved, measured", 4096 / GIB), ("capacity, recorded", 0.0)):
        drawn = line(axes, label).get_ydata()
        assert len(drawn) < 20_000
        assert {spike + added for spike in range(2, 42)} <= set(drawn.tolist())


def test_a_million_random_forwards_give_a_picture(tmp_path):
    rng = np.random.default_rng(0)
    save_plot(plot_reserved(regular(rng.integers(0, 2**40, 1_000_000))), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", PNG), ("a.svg", SVG), ("a.pdf", PDF), ("A.PNG", PNG), ("a.b.svg", SVG)]
)
def test_the_name_says_the_kind_of_picture(tmp_path, name, start):
    save_plot(plot_reserved(regular([1, 2])), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["a", "a.jpg", "a.svgz", "png", "a.png.txt"])
def test_another_kind_is_refused_and_leaves_no_file(tmp_path, name):
    with pytest.raises(InputError, match=r"end the name of a picture in \.png, \.svg, \.pdf"):
        save_plot(plot_reserved(regular([1, 2])), tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_picture_that_cannot_be_drawn_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.png"
    path.write_text("old")
    axes = plot_reserved(regular([1, 2]))
    axes.set_title("$\\frac{$")  # fails when it is drawn
    with pytest.raises(ValueError, match="frac"):
        save_plot(axes, path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.png"]


def test_pyplot_never_hears_of_it(tmp_path):
    before = plt.get_fignums()
    parameters, backend = dict(mpl.rcParams), mpl.get_backend()
    drawn = [plot_reserved(regular([1, 2])) for _ in range(25)]  # pyplot would warn at 20
    for axes in drawn[:2]:
        save_plot(axes, tmp_path / "a.png")
    assert plt.get_fignums() == before
    assert dict(mpl.rcParams) == parameters
    assert mpl.get_backend() == backend


def test_it_works_in_another_thread(tmp_path):
    failures = []

    def draw():
        try:
            save_plot(plot_reserved(replay(regular([1, 9, 1]), "three-window", cost=COST)), tmp_path / "a.png")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    assert failures == []
    assert (tmp_path / "a.png").exists()


def test_given_axes_are_drawn_on():
    axes = Figure().add_subplot()
    assert plot_reserved(regular([1, 2]), ax=axes, title="mine") is axes
    assert axes.get_title(loc="left") == "mine"


def test_axes_of_a_subfigure_can_be_saved(tmp_path):
    axes = Figure(layout="constrained").subfigures(1, 2)[0].add_subplot()
    save_plot(plot_reserved(regular([1, 2]), ax=axes), tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_capacities_are_exact_step_lines():
    # three-window on 600, 8, 8, 8, 8 MiB with floor 8: 600 at 0 s, 8 from 4 s on, to the end at 5 s
    result = replay(regular([600 * MIB, *[8 * MIB] * 4]), "three-window", cost=COST, floor_bytes=8 * MIB)
    drawn = line(plot_reserved(result), "three-window")
    assert drawn.get_drawstyle() == "steps-post"
    assert drawn.get_xdata().tolist() == [0.0, 0.0, 4.0, 5.0]
    assert drawn.get_ydata().tolist() == [8.0, 600.0, 8.0, 8.0]  # MiB


def test_small_changes_of_large_sizes_are_exact():
    # 70 GiB and one MiB more or less
    sizes = [70 * GIB, 70 * GIB + MIB, 70 * GIB - MIB]
    axes = plot_reserved(regular(sizes, capacity_bytes=sizes))
    assert line(axes, "capacity, recorded").get_ydata().tolist() == [size / GIB for size in sizes]
    assert axes.get_ylabel() == "scratch memory (GiB)"


@pytest.mark.parametrize(
    ("top", "unit"),
    [(0, "B"), (1023, "B"), (1024, "KiB"), (MIB, "MiB"), (GIB - 1, "MiB"), (GIB, "GiB"), (2**45, "GiB")],
)
def test_the_unit_is_the_largest_that_the_highest_value_reaches(top, unit):
    assert plot_reserved(regular([0, top])).get_ylabel() == f"scratch memory ({unit})"


@pytest.mark.parametrize(
    ("step_s", "unit", "last"),
    [(0.1, "milliseconds", 200.0), (1.0, "seconds", 2.0), (400.0, "minutes", 800 / 60), (7200.0, "hours", 4.0)],
)
def test_the_unit_of_time_fits_the_span(step_s, unit, last):
    result = replay(regular([1, 1], step_s=step_s), "grow-only", cost=COST)
    axes = plot_reserved(result)
    assert axes.get_xlabel() == f"time ({unit})"
    assert line(axes, "grow-only").get_xdata()[-1] == pytest.approx(last)


def test_the_axis_begins_at_zero_and_holds_the_highest_value():
    axes = plot_reserved(regular([5, 9]))
    low, high = axes.get_ylim()
    assert low == 0
    assert high >= 9


@pytest.mark.parametrize("demands", [[], [0, 0]])
def test_where_there_is_nothing_to_see_the_axis_goes_from_zero_to_one(demands):
    assert plot_reserved(regular(demands)).get_ylim() == (0, 1)


def test_demand_is_zero_between_forwards():
    # 5 B from 0 to 1 s, nothing to 3 s, 7 B from 3 to 4 s
    trace = DemandTrace(time_s=[0, 3], duration_s=[1, 1], demand_bytes=[5, 7])
    outline = demand_outline(plot_reserved(trace))
    assert sorted(set(outline[:, 0].tolist())) == [0.0, 1.0, 3.0, 4.0]
    between = outline[(outline[:, 0] >= 1) & (outline[:, 0] <= 3)]
    assert {(1.0, 0.0), (3.0, 0.0), (3.0, 7.0), (1.0, 5.0)} <= {tuple(point) for point in between.tolist()}


def test_the_floor_is_a_dashed_line():
    floor = line(plot_reserved(regular([GIB], meta={"floor_bytes": 512 * MIB})), "floor 512 MiB")
    assert floor.get_linestyle() == "--"
    assert set(floor.get_ydata()) == {0.5}
    assert not [text for text in labels(plot_reserved(regular([GIB]))) if "floor" in text]


def test_only_samples_are_drawn_as_measured():
    # measured at the end of the second and the fourth forward
    trace = regular([1, 1, 1, 1], reserved_bytes=[-1, 8, -1, 4], capacity_bytes=[2, -1, 2, 2])
    axes = plot_reserved(trace)
    measured, held = line(axes, "reserved, measured"), line(axes, "capacity, recorded")
    assert (measured.get_xdata().tolist(), measured.get_ydata().tolist()) == ([2.0, 4.0], [8.0, 4.0])
    assert (held.get_xdata().tolist(), held.get_ydata().tolist()) == ([0.0, 2.0, 3.0], [2.0, 2.0, 2.0])


def test_stretches_with_reclaiming_disabled_are_shaded_and_named_once():
    # disabled in the forwards of 1-3 s and again in that of 4-5 s
    events = [None, "disabled:stream", "grew,disabled:stream", "rearmed", "disabled:capture", None]
    axes = plot_reserved(regular([1] * 6, event=events))
    assert shaded(axes) == [[1.0, 3.0], [4.0, 5.0]]
    assert labels(axes).count("disabled") == 1


def test_nothing_is_shaded_when_nothing_was_disabled():
    assert shaded(plot_reserved(regular([1] * 3, event=["grew", "aborted", "pass:graph"]))) == []
    assert shaded(plot_reserved(regular([1] * 3))) == []


def test_results_on_one_trace_are_drawn_together_in_colours_of_their_own():
    trace = regular([600, 8, 8, 8, 8])
    first, second = (replay(trace, name, cost=COST, floor_bytes=8) for name in ("grow-only", "three-window"))
    axes = plot_reserved(first, second)
    assert labels(axes)[:3] == ["demand", "grow-only", "three-window"]
    assert line(axes, "grow-only").get_color() != line(axes, "three-window").get_color()


def test_a_recorded_capacity_gives_way_to_replayed_ones():
    trace = regular([600, 8, 8], capacity_bytes=[600, 600, 600])
    assert "capacity, recorded" not in labels(plot_reserved(replay(trace, "grow-only", cost=COST)))


def test_a_comparison_shows_the_optimum_underneath():
    # holding 100 MiB for ten seconds costs more than two changes: the optimum drops to the floor of 1 MiB
    trace = DemandTrace(time_s=[0, 10], duration_s=[1, 1], demand_bytes=[100 * MIB, 100 * MIB])
    axes = plot_reserved(compare(trace, ["three-window"], cost=CostModel(GIB, 1e-3, 1e-3), floor_bytes=MIB))
    assert labels(axes) == ["demand", "clairvoyant", "grow-only", "three-window", "floor 1 MiB"]
    optimum = line(axes, "clairvoyant")
    assert optimum.get_xdata().tolist() == [0.0, 0.0, 1.0, 10.0, 11.0]
    assert optimum.get_ydata().tolist() == [1.0, 100.0, 1.0, 100.0, 100.0]
    assert optimum.get_zorder() < line(axes, "grow-only").get_zorder()


def test_an_empty_trace_says_so():
    assert [text.get_text() for text in plot_reserved(regular([])).texts] == ["no forwards"]
    assert list(plot_reserved(regular([1])).texts) == []
