from __future__ import annotations

import pytest

from reclaim import PolicySpecError
from reclaim.policy import CostModel, ShrinkPolicy, ThreeWindowPolicy, make, names, policy_class, registry


def test_the_names_are_those_of_the_systems_they_come_from():
    assert {"grow-only", "exact-fit", "three-window"} <= set(names())
    assert len(set(names())) == len(names())


def test_every_name_finds_a_policy_class_of_that_name():
    for name in names():
        assert issubclass(policy_class(name), ShrinkPolicy)
        assert policy_class(name).name == name


def test_a_spec_without_parameters_takes_the_defaults():
    policy = make("three-window", 64)
    assert isinstance(policy, ThreeWindowPolicy)
    assert (policy.floor_bytes, policy.forwards) == (64, 3)
    assert make("three-window:", 64).forwards == 3


@pytest.mark.parametrize("spec", ["three-window:forwards=5", "three-window: forwards = 5 "])
def test_a_spec_sets_a_parameter(spec):
    assert make(spec, 64).forwards == 5


def test_the_parameters_of_a_policy_are_listed_with_their_defaults():
    assert registry.parameters("three-window") == {"forwards": 3}
    assert registry.parameters("grow-only") == {}


def test_a_bad_key_is_named_with_the_valid_ones():
    with pytest.raises(PolicySpecError, match="no parameter 'windw'; known: forwards"):
        make("three-window:windw=8", 64)


def test_a_misspelt_key_is_answered_with_the_closest():
    with pytest.raises(PolicySpecError, match="no parameter 'forward', did you mean 'forwards'"):
        make("three-window:forward=8", 64)


def test_a_policy_without_parameters_says_that_it_takes_none():
    with pytest.raises(PolicySpecError, match="grow-only has no parameter 'forwards'; it takes none"):
        make("grow-only:forwards=8", 64)


@pytest.mark.parametrize("key", ["cost", "floor_bytes", "self"])
def test_what_the_caller_passes_is_no_parameter_of_a_spec(key):
    with pytest.raises(PolicySpecError, match=f"no parameter '{key}'"):
        make(f"three-window:{key}=1", 64)


def test_a_key_given_twice_is_refused():
    with pytest.raises(PolicySpecError, match="forwards is given twice"):
        make("three-window:forwards=3,forwards=3", 64)


@pytest.mark.parametrize("value", ["five", "", "2.5", "1e3", "true"])
def test_a_value_of_the_wrong_type_is_refused_with_the_right_one_named(value):
    with pytest.raises(PolicySpecError, match=f"forwards={value} should be int"):
        make(f"three-window:forwards={value}", 64)


@pytest.mark.parametrize("value", [0, -3])
def test_a_value_out_of_range_is_refused_with_the_spec(value):
    with pytest.raises(PolicySpecError, match=rf"'three-window:forwards={value}': forwards must be at least 1"):
        make(f"three-window:forwards={value}", 64)


@pytest.mark.parametrize("text", ["forwards", "forwards=3,", ",forwards=3", "forwards:3"])
def test_what_is_no_key_value_pair_is_refused(text):
    with pytest.raises(PolicySpecError, match="is not key=value"):
        make(f"three-window:{text}", 64)


def test_an_unknown_name_is_answered_with_the_closest_and_all_of_them():
    with pytest.raises(PolicySpecError, match="no policy 'three-windows', did you mean 'three-window'") as caught:
        make("three-windows", 64)
    assert all(name in str(caught.value) for name in names())
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["", "zzz"])
def test_a_name_like_no_other_is_answered_with_all_of_them(name):
    with pytest.raises(PolicySpecError, match=f"no policy '{name}'; known: grow-only"):
        policy_class(name)


def test_spec_errors_are_value_errors():
    with pytest.raises(ValueError, match="no policy"):
        make("nothing", 0)


def test_a_negative_floor_is_no_fault_of_the_spec():
    with pytest.raises(ValueError, match="floor_bytes must not be negative, got -5") as caught:
        make("three-window", -5)
    assert not isinstance(caught.value, PolicySpecError)


class PricedPolicy(ShrinkPolicy):
    name = "priced"

    def __init__(self, floor_bytes: int, *, cost: CostModel, step_bytes: int = 4096, theta: float = 1.0) -> None:
        super().__init__(floor_bytes)
        self.cost, self.step_bytes, self.theta = cost, step_bytes, theta

    def finish_forward(self, required_bytes, capacity_bytes, *, grew, started=0.0, ended=0.0):
        return None


@pytest.fixture
def priced(monkeypatch):
    monkeypatch.setitem(registry._POLICIES, "priced", PricedPolicy)


@pytest.mark.usefixtures("priced")
def test_a_policy_that_weighs_memory_against_time_gets_the_cost():
    cost = CostModel(1000, 0.5, 0.5)
    policy = make("priced:step_bytes=1.5KiB,theta=0.25", 64, cost)
    assert (policy.cost, policy.step_bytes, policy.theta) == (cost, 1536, 0.25)


@pytest.mark.usefixtures("priced")
def test_a_missing_cost_is_a_spec_error_that_says_what_to_pass():
    with pytest.raises(PolicySpecError, match=r"'priced' weighs memory against time.*pass cost=CostModel"):
        make("priced", 64)


@pytest.mark.usefixtures("priced")
def test_a_size_that_is_none_is_refused():
    with pytest.raises(PolicySpecError, match="step_bytes=big should be int"):
        make("priced:step_bytes=big", 64, CostModel(1000, 0.5, 0.5))
