import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import FULL, epochs

from dualtemp.frameworks.protocol import AnchorWeight
from dualtemp.report.remarks import remarks
from dualtemp.report.verdict import health, verdict
from dualtemp.runs.evaluated_measures import START
from dualtemp.runs.record import Beside, Facts
from dualtemp.runs.thresholds import COLLAPSED

FACTS = Facts(epochs=4, anchors=64, classes=10, test_images=10_000)
UNLABELLED = Facts(epochs=4, anchors=64)


def lines(**series: list[Any]) -> list[dict[str, Any]]:
    return [{"epoch": number, **line} for number, line in enumerate(epochs(**series), 1)]


def test_features_that_are_all_the_same_have_collapsed_since_the_first_such_epoch() -> None:
    found = health(lines(spread=[0.5, 0.3, 0.01, 0.004], loss=[4, 4.1, 4.15, 4.16], knn_top1=[30, 20, 12, 11]), FACTS)
    assert found.headline == "collapsed since epoch 3"
    assert found.tone == "bad"
    assert "0.004" in found.reason
    assert health(lines(spread=[0.01, 0.004]), FACTS).headline == "collapsed"
    assert health(lines(spread=[0.01, 0.5, 0.6], loss=[4, 3, 2]), FACTS).tone == "good"


def test_a_spread_beyond_half_of_the_way_down_is_a_collapse_that_goes_on() -> None:
    half_way = math.sqrt(0.6 * COLLAPSED)
    falling = lines(spread=[0.5, 0.6, 0.3, half_way * 0.99], loss=[4, 3.9, 3.8, 3.7])
    assert health(falling, FACTS).headline == "collapsing since epoch 3"
    assert "epoch 2" in health(falling, FACTS).reason
    assert health(lines(spread=[0.5, 0.6, 0.3, half_way * 1.01], loss=[4, 3.9, 3.8, 3.7]), FACTS).tone == "good"
    comes_back = lines(spread=[0.6, 0.3, 0.05, 0.1], loss=[4, 3.9, 3.8, 3.7])
    assert "collapsing" not in health(comes_back, FACTS).headline


def test_a_low_spread_from_the_start_that_rises_is_no_collapse() -> None:
    # Measured: SimCo at lr 5 on digits began so, and learned.
    found = health(lines(spread=[0.05, 0.156, 0.603], loss=[4.2, 4.15, 4.14], probe_top1=[10, 11, 33]), FACTS)
    assert found.headline == "still improving"


@pytest.mark.parametrize(("probe", "learns"), [(10.5, False), (10.7, True)])
def test_accuracies_within_two_standard_errors_of_guessing_are_chance(probe: float, learns: bool) -> None:
    # 10 classes, 10,000 images: 10 % + 2 * 0.3 %.
    found = health(lines(loss=[4, 3, 2], spread=[0.6] * 3, probe_top1=[10, 10, probe], knn_top1=[10, 9, 10]), FACTS)
    assert ("at chance" in found.headline) != learns
    unknown = health(lines(loss=[4, 3, 2], probe_top1=[10, 10, probe]), Facts(epochs=4, anchors=64))
    assert "chance" not in unknown.headline


def test_a_probe_at_chance_beside_a_good_knn_is_no_alarm() -> None:
    found = health(lines(loss=[4, 3, 2], probe_top1=[10, 10, 10], knn_top1=[30, 31, 32]), FACTS)
    assert found.tone != "bad"
    assert any("kNN (32.0 %) is ahead of the probe (10.0 %)" in remark for remark in found.remarks)


def test_only_what_was_measured_is_named() -> None:
    at_chance = health(lines(loss=[4, 3], knn_top1=[10, 9.9]), FACTS)
    assert at_chance.reason.startswith("The kNN accuracy is 9.9 %, no better than")
    # Labels are there, but the run is evaluated every fifth epoch.
    once = health(lines(loss=[5, 4, 3], probe_top1=[40.0]), FACTS)
    assert once.reason.startswith("The probe accuracy was measured once; the loss still falls")
    never = health(lines(loss=[5, 4, 3]), FACTS)
    assert never.reason.startswith("No accuracy was measured yet; the loss still falls")
    level = health(lines(loss=[5, 4, 4.001, 4], spread=[0.6] * 4), FACTS)
    assert level.reason.endswith("far from collapse. No accuracy was measured yet.")
    assert health(lines(loss=[5, 4, 3]), UNLABELLED).reason.startswith("There are no labels to measure with")


def test_a_loss_that_never_moves_is_said() -> None:
    assert "does not move" in health(lines(loss=[4.158, 4.1581, 4.1579]), UNLABELLED).headline
    assert "does not move" not in health(lines(loss=[4.158, 4.14, 4.1579]), UNLABELLED).headline
    assert "does not move" not in health(lines(loss=[4.158, 4.1581]), UNLABELLED).headline  # two epochs say little


def test_a_probe_that_falls_while_the_loss_falls_is_getting_worse() -> None:
    found = health(lines(loss=[4, 3, 2.5, 2, 1.9], probe_top1=[20, 45, 44.9, 41, 40], spread=[0.6] * 5), FACTS)
    assert found.headline == "getting worse since epoch 2"
    assert "though the loss still falls" in found.reason
    one_bad_epoch = health(lines(loss=[4, 3, 2, 1], probe_top1=[20, 45, 44.9, 40]), FACTS)
    assert "worse" not in one_bad_epoch.headline
    rising = health(lines(loss=[4, 2, 2.5, 3], probe_top1=[20, 45, 41, 40]), FACTS)
    assert "though" not in rising.reason


def test_differences_count_only_beyond_what_the_test_images_can_show() -> None:
    history = lines(loss=[4, 3, 2.5], probe_top1=[40, 50, 53], spread=[0.6] * 3)
    assert health(history, FACTS).headline == "still improving"
    # 100 images: the standard error of a difference is 7 points; three rises in a row tell more than one
    few = Facts(epochs=4, anchors=64, classes=10, test_images=100)
    assert health(history, few).headline == "too few images to tell"
    assert "14.1 points" in health(history, few).reason
    assert health(lines(loss=[4, 3, 2.5, 2.4], probe_top1=[40, 45, 50, 55]), few).headline == "still improving"


def test_seeds_of_one_setting_on_few_images_get_one_verdict() -> None:
    # 250 images, a probe that has levelled out at 70 %: what the draw of the images does to it is no verdict.
    few, drawn = replace(FACTS, test_images=250), np.random.default_rng(0)
    probes = 100 * drawn.binomial(250, 0.7, (200, 8)) / 250
    told = [health(lines(loss=[4, *[3] * 7], probe_top1=list(each)), few).headline for each in probes]
    assert told.count("too few images to tell") > 0.9 * len(told)


def test_three_rises_in_a_row_are_the_reason_where_they_decide() -> None:
    few = replace(FACTS, test_images=150)
    found = health(lines(loss=[4, 3, 2.5, 2.4], probe_top1=[40, 45, 50, 53]), few)
    assert found.reason.startswith("The probe accuracy has risen three times in a row, by 13.0 points in all.")
    assert "gained" not in found.reason
    assert "has gained 3.0 points" in health(lines(loss=[4, 3, 2.5, 2.4], probe_top1=[40, 45, 50, 53]), FACTS).reason


def beside(name: str, trained: float, encoder: str, other: float, images: int = 80) -> Beside:
    return Beside(name, trained, encoder, other, images)


def paired(name: str, encoder: str, both: int, ahead: int, behind: int, images: int) -> Beside:
    """Of so many images both encoders got `both` right, the trained one alone `ahead`, the other alone `behind`."""
    trained, other = 100 * (both + ahead) / images, 100 * (both + behind) / images
    return Beside(name, trained, encoder, other, images, ((ahead, behind),))


ALL = ("raw pixels", "colour histogram")
LEVEL = lines(loss=[4, 3, 2.5], knn_top1=[20, 21, 21.25], spread=[0.6] * 3)


@pytest.mark.parametrize(
    ("rows", "headline", "tone"),
    [
        # Of an older file, without pairs: 2 standard errors of two accuracies, 13 points.
        ([beside("kNN", 34.0, name, 20.0) for name in ALL], "healthy", "good"),
        ([beside("kNN", 30.0, name, 20.0) for name in ALL], "too few images to tell", "open"),
        ([beside("kNN", 15.0, "raw pixels", 20.0, 0)], "has learned little: no better than raw pixels", "bad"),
        ([beside("kNN", 21.25, name, 20.0, 20_000) for name in ALL], "healthy", "good"),
        ([beside("kNN", 20.1, "untrained", 20.0, 90_000)], "has learned little: no better than untrained", "bad"),
        ([paired("kNN", name, 200, 40, 10, 300) for name in ALL], "healthy", "good"),
        ([paired("kNN", name, 200, 14, 10, 300) for name in ALL], "too few images to tell", "open"),
        # One comparison that is won is not enough.
        (
            [paired("kNN", "raw pixels", 200, 40, 10, 300), paired("kNN", "colour histogram", 200, 10, 40, 300)],
            "has learned little: no better than color histogram",
            "bad",
        ),
        (
            [paired("kNN", "raw pixels", 200, 40, 10, 300), paired("linear probe", "raw pixels", 200, 10, 40, 300)],
            "better than raw pixels by one measure, worse by another",
            "open",
        ),
        ([paired("kNN", "raw pixels", 200, 40, 10, 300)], "no trouble seen, not compared yet", "open"),
        ([], "no trouble seen, not compared yet", "open"),
    ],
)
def test_healthy_is_what_beats_raw_pixels_and_colours_beyond_the_error(
    rows: list[Beside], headline: str, tone: str
) -> None:
    found = health(LEVEL, replace(FACTS, classes=0, beside=tuple(rows)))
    assert (found.headline, found.tone) == (headline, tone)
    if tone == "bad":
        shown = {one.encoder.replace("colour", "color"): one for one in rows}  # the file keeps its old spelling
        name, beaten = next((name, one) for name, one in shown.items() if name in headline)
        assert f"kNN {beaten.trained:.1f} %, {name} {beaten.other:.1f} %" in found.reason


def test_few_images_are_enough_where_the_encoder_clearly_beats_all() -> None:
    few = replace(FACTS, test_images=200)
    assert health(LEVEL, few).headline == "too few images to tell"
    rows = tuple(paired("kNN", name, 20, 60, 10, 200) for name in ALL)
    assert health(LEVEL, replace(few, beside=rows)).headline == "healthy"


@pytest.mark.parametrize(("probe", "at_chance"), [(63.0, True), (66.5, False)])
def test_chance_is_the_commonest_class(probe: float, at_chance: bool) -> None:
    # 62 % of 1,000 test images are of one of two classes: two standard errors are 3.1 points.
    facts = Facts(epochs=4, anchors=64, classes=2, test_images=1000, commonest=0.62)
    found = health(lines(loss=[4, 3, 2], probe_top1=[62, 62, probe], knn_top1=[60, 61, 62], spread=[0.6] * 3), facts)
    assert ("at chance" in found.headline) == at_chance
    if at_chance:
        assert "62 %" in found.reason


def test_accuracies_that_fell_are_never_called_healthy() -> None:
    few = replace(FACTS, classes=0, test_images=80)
    knn = health(lines(loss=[4, 3], probe_top1=[15, 17.5], knn_top1=[41, 21], spread=[0.6] * 2), few)
    assert (knn.headline, knn.tone) == ("worse than after epoch 1", "bad")
    assert "kNN accuracy was 41.0 % after epoch 1, and is 21.0 % now" in knn.reason
    slightly = health(lines(loss=[4, 3], knn_top1=[31, 30.5]), FACTS)  # within the standard error
    assert (slightly.headline, slightly.tone) == ("has learned little: no better than after epoch 1", "open")
    at_last = health(lines(loss=[4, 3, 2, 1], probe_top1=[20, 45, 44.9, 40]), FACTS)
    assert (at_last.headline, at_last.tone) == ("lower at the end than before", "open")
    assert "lost 4.9 points" in at_last.reason
    hardly = health(lines(loss=[4, 3, 2, 1], probe_top1=[20, 45, 45, 44.8], spread=[0.6] * 4), FACTS)
    assert hardly.headline == "no trouble seen, not compared yet"
    assert "its latest fall, by 0.2 points, is too small" in hardly.reason
    assert "gain" not in hardly.reason


def test_a_probe_that_has_levelled_out_is_healthy_if_it_was_compared() -> None:
    history = lines(loss=[4, 3, 2.5, 2.4, 2.3], probe_top1=[20, 40, 45, 45.2, 45.6], spread=[0.6] * 5)
    rows = tuple(paired("linear probe", name, 3000, 1560, 500, 10_000) for name in ALL)
    found = health(history, replace(FACTS, beside=rows))
    assert (found.headline, found.tone) == ("healthy", "good")
    assert "45.6 %" in found.reason
    alone = health(history, FACTS)
    assert (alone.headline, alone.tone) == ("no trouble seen, not compared yet", "open")
    assert "`dualtemp evaluate RUN`" in alone.reason


def test_without_labels_the_loss_decides_and_the_doubt_is_said() -> None:
    assert health(lines(loss=[4, 3.5, 3.2, 2.9], spread=[0.6] * 4), UNLABELLED).headline == "still improving"
    level = health(lines(loss=[4, 3, 2.9, 2.9], spread=[0.6] * 4), UNLABELLED)
    assert level.headline == "no trouble seen, not compared yet"
    assert "Without labels, nothing says" in level.reason
    rises = health(lines(loss=[4, 5, 5.2, 5.3], spread=[0.6] * 4), UNLABELLED)  # MoCo, as its dictionary fills
    assert rises.headline == "no trouble seen, not compared yet"


def test_one_epoch_is_too_early() -> None:
    assert health(lines(loss=[4], probe_top1=[30], spread=[0.6]), FACTS).headline == "too early to tell"
    assert health([], FACTS).headline == "no epoch yet"


@pytest.mark.parametrize(
    ("entropy", "words"),
    [(0.3, "one of 64 anchors"), (3.0, "as if 20 of 64"), (4.0, "most anchors"), (4.1588, "nearly all anchors")],
)
def test_the_entropy_is_told_as_a_number_of_anchors(entropy: float, words: str) -> None:
    found = health(lines(loss=[4, 3], entropy=[4.0, entropy]), FACTS)
    assert any(words in remark for remark in found.remarks)
    measured = health(lines(loss=[4, 3], entropy=[4.0, entropy]), replace(FACTS, weighted=False))
    assert any("only measured" in remark for remark in measured.remarks)


@pytest.mark.parametrize(
    ("N", "entropy", "words"),
    [
        (2, math.log(2), "nearly all anchors"),
        (2, 0.05, "one of 2 anchors"),
        (4, 0.6, "as if 1.8 of 4"),
        (4096, 1.0, "as if 2.7 of 4096"),
        (4096, 0.5, "one of 4096 anchors"),
    ],
)
def test_an_entropy_is_high_or_low_beside_that_of_so_many_anchors(N: int, entropy: float, words: str) -> None:
    (remark,) = health(lines(loss=[4, 3], entropy=[entropy] * 2), replace(FACTS, anchors=N)).remarks
    assert words in remark
    assert ("too small" in remark) == words.startswith("one of")


def test_anchors_that_are_too_easy_and_features_on_a_line_are_remarked() -> None:
    found = health(lines(loss=[4, 3], W_mean=[0.5, 0.04], effective_rank=[5, 1.2]), FACTS)
    assert any("0.04" in remark and "easy to find" in remark for remark in found.remarks)
    assert any("1.20" in remark for remark in found.remarks)
    assert health(lines(loss=[4, 3], W_mean=[0.5, 0.06], effective_rank=[5, 2.2]), FACTS).remarks == []


@pytest.mark.parametrize(
    ("word", "count", "headline", "tone"),
    [
        ("running", 2, "running, epoch 2 of 4, about 20 s left", "open"),
        ("interrupted", 2, "interrupted at epoch 2 of 4", "open"),
        ("interrupted", 0, "interrupted in its first epoch", "open"),
        ("failed", 2, "failed: the loss is not finite", "bad"),
        ("done", 4, "still improving", "good"),
        ("running", 4, "still improving", "good"),  # the last page before the run lets go of its folder
    ],
)
def test_what_became_of_a_run_heads_the_page(word: str, count: int, headline: str, tone: str) -> None:
    history = [{"epoch": number, **line} for number, line in enumerate(FULL[:count], 1)]
    found = verdict(history, FACTS, word, "the loss is not finite")
    assert (found.headline, found.tone) == (headline, tone)


def test_a_collapse_is_said_before_that_the_run_goes_on() -> None:
    found = verdict(lines(spread=[0.5, 0.01], loss=[4, 4.1], seconds=[5, 10]), FACTS, "running")
    assert found.headline == "collapsed since epoch 2"
    assert "Still running, epoch 2 of 4" in found.reason


values = st.one_of(st.none(), st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf))
KEYS = ("loss", "probe_top1", "knn_top1", "spread", "entropy", "W_mean", "effective_rank", "seconds")


@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys(KEYS, values)), max_size=12),
    st.sampled_from(["running", "done", "interrupted", "failed"]),
    st.integers(0, 100),
    st.integers(0, 50_000),
)
def test_any_history_gets_a_verdict(history: list[dict[str, Any]], word: str, classes: int, images: int) -> None:
    counted = [
        {"epoch": n, **{key: value for key, value in line.items() if value is not None}}
        for n, line in enumerate(history, 1)
    ]
    for line in counted:
        line["seconds"] = abs(line.get("seconds", 0.0))
    found = verdict(counted, Facts(12, 64, classes, images), word, "why")
    assert found.headline
    assert found.reason
    assert "nan" not in found.headline + found.reason + " ".join(found.remarks)


def test_remarks_advise_by_the_weight_that_the_run_has() -> None:
    history = lines(loss=[4, 3], entropy=[0.2, 0.2], W_mean=[0.01, 0.01])
    averages, equal = AnchorWeight("gamma", is_hardness=False), AnchorWeight("", is_hardness=False)
    by_tau_beta, by_gamma, by_none = (
        " ".join(remarks(history, replace(FACTS, weight=weight))) for weight in (AnchorWeight(), averages, equal)
    )
    assert "tau_beta is too small." in by_tau_beta
    assert "so easy to find" in by_tau_beta
    assert "gamma is too small." in by_gamma
    assert "too small" not in by_none
    assert "one of 64 anchors has nearly all the weight of a step." in by_none
    assert "so easy to find" not in by_gamma + by_none


HEALTHY = [paired("kNN", name, 200, 40, 10, 300) for name in ALL]


@pytest.mark.parametrize(
    ("rows", "headline", "tone"),
    [
        ([paired("kNN", START, 250, 2, 30, 300)], "below its start by 9.3 points: use the start", "bad"),
        # The clearest of several measures is told.
        (
            [paired("kNN", START, 250, 10, 12, 300), paired("linear probe", START, 240, 4, 40, 300)],
            "below its start by 12.0 points: use the start",
            "bad",
        ),
        ([paired("kNN", START, 90_000, 5, 9, 100_000)], "no better than its start: use the start", "open"),
        ([paired("kNN", START, 250, 10, 4, 300)], "too few images to tell it from its start", "open"),
        ([paired("kNN", START, 250, 30, 2, 300)], "healthy", "good"),
    ],
)
def test_a_run_is_compared_with_what_it_began_from(rows: list[Beside], headline: str, tone: str) -> None:
    found = health(LEVEL, replace(FACTS, classes=0, beside=(*HEALTHY, *rows)))
    assert (found.headline, found.tone) == (headline, tone)
    above = [remark for remark in found.remarks if remark.startswith("Above its start by 9.3 points: kNN 93.3 %")]
    assert bool(above) == (tone == "good")


@pytest.mark.parametrize(
    ("knn", "headline"),
    [
        ([87.2, 87.1, 87], "below its start by 8.0 points: use the start"),
        ([94.5, 94.6, 94.5], None),
        ([96, 97, 98], None),
    ],
)
def test_a_run_below_what_knn_was_before_the_first_step_says_so_without_an_evaluation(
    knn: list[float], headline: str | None
) -> None:
    history = lines(loss=[4, 3, 2], spread=[0.6] * 3, knn_top1=knn, start_knn_top1=[95.0] * 3)
    found = health(history, FACTS)
    assert (found.headline == headline) if headline else ("below its start" not in found.headline)
    evaluated = replace(FACTS, beside=(paired("kNN", START, 250, 30, 2, 300),))
    assert "before the first step" not in health(history, evaluated).reason  # image by image is the better comparison


def test_a_run_that_ended_itself_below_its_start_says_what_is_left() -> None:
    history = lines(loss=[4, 3], spread=[0.6] * 2, knn_top1=[94, 90], held_out_lost=[1, 9], held_out_gained=[1, 0])
    history[-1]["stopped"] = True
    found = verdict(history, FACTS, "done")
    assert found.headline == "stopped after epoch 2: it fell below its start"
    assert "9 held-out images wrong" in found.reason
    assert "the measurement before" in found.reason


def test_of_a_run_that_ended_itself_it_is_not_said_that_it_is_getting_worse() -> None:
    falling = {"probe_top1": [80, 76, 70], "knn_top1": [80, 76, 70], "held_out_lost": [1, 9, 60]}
    history = lines(loss=[4, 3, 2], spread=[0.6] * 3, held_out_gained=[3, 2, 5], **falling)
    assert verdict(history, replace(FACTS, epochs=10), "done").headline == "getting worse since epoch 1"
    history[-1]["stopped"] = True
    found = verdict(history, replace(FACTS, epochs=10), "done")
    assert found.headline == "stopped after epoch 3: it fell below its start"
