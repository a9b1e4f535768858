"""Whether an encoder beats another on the same images, against scipy and by drawing images again and again."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from dualtemp.report.standing import gain_bounds, mcnemar, p_value, standings
from dualtemp.runs.record import Beside, beside_trained


@pytest.mark.parametrize(("ahead", "behind"), [(0, 0), (3, 0), (7, 24), (24, 7), (18, 22), (500, 430), (9000, 9300)])
def test_the_p_value_is_that_of_scipys_exact_binomial_test(ahead: int, behind: int) -> None:
    expected = binomtest(ahead, ahead + behind, 0.5).pvalue if ahead + behind else 1.0
    assert mcnemar(ahead, behind) == pytest.approx(expected, rel=1e-9)


def test_without_pairs_it_is_the_test_of_two_independent_accuracies() -> None:
    one = Beside("kNN", 60.0, "raw pixels", 55.0, 400)
    error = np.sqrt(2 * 0.575 * 0.425 / 400)
    assert p_value(one) == pytest.approx(2 * norm.sf(0.05 / error))
    assert gain_bounds(one) == pytest.approx((5 - 196 * error, 5 + 196 * error))


@pytest.mark.parametrize("draws", [1, 5])
def test_intervals_hold_the_true_gain_about_as_often_as_they_say(draws: int) -> None:
    # Encoders of 75 and 70 % that are often right on the same images; which labels are drawn moves both.
    drawn, images, held, found = np.random.default_rng(0), 300, 0, []
    for _ in range(400):
        hardness = drawn.random(images)
        pairs = []
        for _ in range(draws):
            luck = 0.01 * drawn.standard_normal() if draws > 1 else 0.0
            one, other = (hardness + 0.1 * drawn.standard_normal(images) < level for level in (0.75 + luck, 0.70))
            pairs.append((int((one & ~other).sum()), int((other & ~one).sum())))
        gain = 100 * float(np.mean([b - c for b, c in pairs])) / images
        row = Beside("kNN", 70 + gain, "raw pixels", 70.0, images, tuple(pairs))
        low, high = gain_bounds(row)
        held += low <= 5 <= high
        found.append(standings([row])[0].word)
    assert held / 400 > 0.92
    assert "better" not in found  # that the other were better is never said


def test_measures_share_the_chance_of_a_false_difference() -> None:
    alone = Beside("kNN", 60.0, "raw pixels", 55.0, 300, ((25, 10),))  # p = .017
    assert standings([alone])[0].word == "beaten"
    even = [Beside(name, 50.0, "raw pixels", 50.0, 300, ((20, 20),)) for name in ("a", "b", "c", "d")]
    assert standings([alone, *even])[0].word == "open"


def test_pairs_that_do_not_fit_the_accuracies_are_not_used() -> None:
    trained = {"name": "kNN", "encoder": "trained", "top1": 50.0, "images": 100}
    other = {"name": "kNN", "encoder": "untrained", "top1": 40.0, "images": 100, "pairs": [[15, 5]]}
    assert beside_trained(trained, other) == Beside("kNN", 50.0, "untrained", 40.0, 100, ((15, 5),))
    for damage in ([[15, 6]], [], None, [[15]], [["15", 5]], [15, 5]):
        assert beside_trained(trained, {**other, "pairs": damage}) == Beside("kNN", 50.0, "untrained", 40.0, 100)
    assert beside_trained({**trained, "images": 99}, other) == Beside("kNN", 50.0, "untrained", 40.0, 99)
    assert beside_trained(None, other) is None
