"""Temperatures that change while training."""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dualtemp.losses import AdaptiveTemperature, DualTemperatureLoss, TemperatureSchedule


@given(high=st.floats(0.1, 2), low=st.floats(0.01, 0.1), T=st.integers(2, 500), t=st.integers(0, 2000))
def test_a_cosine_is_that_of_the_paper(high: float, low: float, T: int, t: int) -> None:
    expected = (high - low) * (1 + math.cos(2 * math.pi * t / T)) / 2 + low
    assert TemperatureSchedule("cosine", high, low, T)(t) == pytest.approx(expected)


def test_schedules_start_and_end_where_they_should() -> None:
    cosine, linear = (TemperatureSchedule(kind, 1.0, 0.1, 200) for kind in ("cosine", "linear"))
    assert [cosine(t) for t in (0, 100, 200)] == pytest.approx([1.0, 0.1, 1.0])
    assert [linear(t) for t in (0, 100, 200, 300)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert TemperatureSchedule("constant", math.inf)(7) == math.inf
    assert TemperatureSchedule()(10**9) == 0.1


@given(
    kind=st.sampled_from(["cosine", "linear"]),
    start=st.floats(1e-3, 10),
    end=st.floats(1e-3, 10),
    steps=st.integers(1, 500),
    step=st.integers(0, 1000),
)
@example(kind="cosine", start=0.05, end=0.2, steps=10, step=0)  # 0.04999999999999999 unless it is held
@example(kind="linear", start=0.3, end=0.1, steps=10, step=10)  # 0.09999999999999998
def test_a_schedule_never_leaves_its_two_ends(kind: Any, start: float, end: float, steps: int, step: int) -> None:
    assert min(start, end) <= TemperatureSchedule(kind, start, end, steps)(step) <= max(start, end)


def test_a_schedule_drives_a_module() -> None:
    criterion, schedule = DualTemperatureLoss(), TemperatureSchedule("linear", 0.5, 0.1, 10)
    criterion.tau_alpha = schedule(5)
    assert criterion.tau_alpha == pytest.approx(0.3)
    criterion.tau_alpha = AdaptiveTemperature(0.2)
    assert criterion.tau_alpha.lowest == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: TemperatureSchedule("step"), "kind must be one of constant, cosine, linear, got 'step'"),  # pyright: ignore
        (lambda: TemperatureSchedule("constant", 0.0), "start must be a number > 0, got 0.0"),
        (lambda: TemperatureSchedule("linear", math.inf, 1.0, 9), r"start must be a number > 0 \(finite\), got inf"),
        (lambda: TemperatureSchedule("cosine", 1.0, None, 9), "a cosine schedule needs end"),
        (lambda: TemperatureSchedule("cosine", 1.0, math.nan, 9), "a cosine schedule needs end"),
        (lambda: TemperatureSchedule("linear", 1.0, 0.1, 0), "a linear schedule needs steps"),
        (lambda: AdaptiveTemperature(-1.0), "tau must be a number > 0"),
        (lambda: AdaptiveTemperature(0.1, gain=1.0), r"gain \(1 \+ target\) < 1"),
        (lambda: AdaptiveTemperature(0.1, target=math.nan), "target from 0 to 1"),
    ],
)
def test_what_is_no_temperature_is_refused(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
