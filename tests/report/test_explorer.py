"""The explorer in a real browser: what it shows against dualtemp.losses in float64."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from explorer_numbers import agrees, embedded, number, slide, temperatures

import dualtemp
from dualtemp.analysis.trained_run import TrainedRun, open_trained_run
from dualtemp.cli import main
from dualtemp.losses.hardness import Similarities, entropy, log_odds, relative_penalty
from dualtemp.report.explorer import collect_explorer_data, dictionary_sizes, explorer_page, presets, slider_taus
from dualtemp.report.page import write_page

Open = Callable[..., tuple[Any, list[str]]]
SETTINGS = {"data": "digits", "backbone": "resnet_mini", "epochs": 1, "warmup_epochs": 0, "knn_images": 128}
HOW = {"device": "cpu", "threads": 1, "quiet": True}


@pytest.fixture(scope="module")
def run(explored_folder: Path) -> TrainedRun:
    return open_trained_run(explored_folder)


@pytest.fixture
def page(explored_page: Path) -> Path:
    return explored_page


@pytest.fixture
def shown(open_page: Open, page: Path) -> Open:
    return partial(open_page, page)


def test_the_page_carries_the_similarities_of_real_anchors_and_keys(page: Path, run: TrainedRun) -> None:
    positive, negatives = embedded(page)
    assert positive.shape == (64,)
    assert negatives.shape == (64, 192)
    first, second = (batch for batch in run.anchors(2))
    q, k = torch.cat([first.q, second.q]).double(), torch.cat([first.k_pos, second.k_pos]).double()
    wanted = (q * k).sum(1) / q.norm(dim=1) / k.norm(dim=1)
    torch.testing.assert_close(positive, wanted, rtol=0, atol=1e-6)
    newest = torch.cat([batch.k for batch in run.key_batches(256)]).flip(0).double()  # unit vectors
    torch.testing.assert_close(
        negatives[:, :192], (q / q.norm(dim=1, keepdim=True)) @ newest[:192].T, rtol=0, atol=1e-6
    )


def test_no_key_is_of_an_anchors_image(run: TrainedRun) -> None:
    found = collect_explorer_data(run)
    assert not torch.isin(found.keys, found.anchors).any()
    assert len(found.keys.unique()) == len(found.keys) == 192
    assert len(found.anchors.unique()) == 64
    batches, keys = list(run.anchors(2)), list(run.key_batches(256))
    views = [*(batch.views[view] for view in (0, 1) for batch in batches), torch.cat([k.view for k in keys]).flip(0)]
    shown = run.data.views.unnormalize(
        torch.cat(views)[: 64 + 64 + 192]
    )  # digits of 8 px are shown four times as large
    assert torch.equal(found.pictures[..., ::4, ::4], (shown.clamp(0, 1) * 255).round().to(torch.uint8))
    fewer = collect_explorer_data(run, anchors=10, keys=5)
    assert torch.allclose(fewer.s.negatives, found.s.negatives[:10, :5], atol=1e-5)
    assert torch.equal(fewer.keys, found.keys[:5])


def test_weights_shares_and_entropy_are_those_of_hardness_at_every_slider_position(shown: Open, page: Path) -> None:
    view, told = shown()
    s = embedded(page)
    agrees(view, s)
    last = {id: int(view.locator(f"#{id}").get_attribute("max")) for id in ("alpha", "beta", "size")}
    view.locator("#anchors button").nth(20).click()
    for alpha, beta, size in (
        (0, 0, 0),
        (12, 30, 3),
        (last["alpha"], last["beta"], last["size"]),
        (5, last["beta"], 0),
    ):
        slide(view, "alpha", alpha)
        slide(view, "beta", beta)
        slide(view, "size", size)
        agrees(view, s)
    assert temperatures(view) == (slider_taus(0.1)[5], math.inf, 2)
    assert number(view, "entropy") == pytest.approx(math.log(64), rel=1e-12)
    assert told == []


def test_weights_near_zero_and_near_one_keep_their_digits(run: TrainedRun, tmp_path: Path, open_page: Open) -> None:
    found = collect_explorer_data(run)
    drawn = torch.rand(64, 192, generator=torch.Generator().manual_seed(0)) * 2 - 1
    drawn[:8] = -1.0
    s = Similarities(torch.linspace(1, -1, 64), drawn)  # 1 - p would lose W = 2 e^-100
    page = write_page(tmp_path / "extreme.html", explorer_page(run, found._replace(s=s)))
    view, told = open_page(page)
    for alpha, beta, size in ((0, 0, 0), (3, 3, 7)):
        slide(view, "alpha", alpha)
        slide(view, "beta", beta)
        slide(view, "size", size)
        agrees(view, embedded(page))
    assert told == []


def test_the_preset_of_a_run_has_its_weight(run: TrainedRun, open_page: Open, tmp_path: Path) -> None:
    equal = as_if(run, weight="equal")
    assert presets(equal, dictionary_sizes(192))[-1].about == "tau_alpha 0.1, weight equal, 64 keys"
    page = write_page(tmp_path / "equal.html", explorer_page(equal, collect_explorer_data(run)))
    view, told = open_page(page)
    for place, member in ((3, "equal"), (2, "sigmoid")):
        view.locator(".preset").nth(place).click()
        assert view.locator("#weight").input_value() == member
        assert view.locator(".preset").nth(place).get_attribute("aria-pressed") == "true"
        agrees(view, embedded(page))
    assert told == []


def test_presets_choose_what_they_say(shown: Open, page: Path) -> None:
    view, told = shown()
    s, wanted = embedded(page), [(0.1, 0.1, 192), (0.1, 0.1, 16), (0.1, 1.0, 16), (0.1, 0.1, 64)]
    for place, found in enumerate(wanted):
        view.locator(".preset").nth(place).click()
        assert temperatures(view) == found
        assert view.locator("#tie").is_checked() == (found[0] == found[1])
        assert view.locator(".preset").nth(place).get_attribute("aria-pressed") == "true"
        agrees(view, s)
    assert told == []


def as_if(run: TrainedRun, **chosen: Any) -> TrainedRun:
    return replace(run, chosen=run.chosen.model_copy(update=chosen))


@pytest.mark.parametrize(
    ("batch", "dictionary_size", "keys"),
    [(32, None, 32), (33, None, 32), (4, None, 4), (32, 65536, 192), (32, 100, 128)],
)
def test_the_run_s_own_dictionary_is_the_nearest_stop(
    run: TrainedRun, batch: int, dictionary_size: int | None, keys: int
) -> None:
    own = presets(as_if(run, batch=batch, dictionary_size=dictionary_size), dictionary_sizes(192))[-1]
    assert own.keys == keys


def test_of_two_presets_that_choose_the_same_one_is_pressed(run: TrainedRun, open_page: Open, tmp_path: Path) -> None:
    page = write_page(tmp_path / "same.html", explorer_page(as_if(run, dictionary_size=16), collect_explorer_data(run)))
    view, told = open_page(page)
    for place in (1, 3, 1):  # InfoNCE with a small dictionary, and as this run
        view.locator(".preset").nth(place).click()
        pressed = view.locator(".preset").evaluate_all("all => all.map(b => b.getAttribute('aria-pressed') === 'true')")
        assert pressed == [number == place for number in range(4)]
    assert told == []


def test_the_tie_moves_both_sliders_and_says_so(shown: Open, page: Path) -> None:
    view, told = shown()
    assert "Two temperatures" in view.locator("#sentence").inner_text()
    view.get_by_label("tie them").check()
    assert temperatures(view)[:2] == (0.1, 0.1)
    assert "One temperature" in view.locator("#sentence").inner_text()
    slide(view, "alpha", 20)
    assert temperatures(view)[0] == temperatures(view)[1]
    slide(view, "beta", int(view.locator("#beta").get_attribute("max")))  # infinity: tau_alpha stays finite
    assert temperatures(view)[:2] == (5.0, 5.0)
    agrees(view, embedded(page))
    view.get_by_label("tie them").uncheck()
    slide(view, "beta", 3)
    assert temperatures(view)[0] == 5.0
    assert told == []


def test_a_chosen_anchor_stays_chosen_and_shows_its_own_negatives(shown: Open) -> None:
    view, _ = shown()
    anchor = view.locator("#anchors button").nth(40)
    number_before = anchor.get_attribute("data-anchor")
    anchor.click()
    keys = view.locator("#negatives li").evaluate_all("all => all.map(b => b.dataset.key)")
    place = "e => 48 * e.style.getPropertyValue('--r') + 1 * e.style.getPropertyValue('--c')"
    assert view.locator("#anchor-view").evaluate(place) == int(number_before)
    assert view.locator("#positive-view").evaluate(place) == 64 + int(number_before)
    assert view.locator("#negatives li .tile").nth(3).evaluate(place) == 128 + int(keys[3])
    slide(view, "beta", 0)
    slide(view, "alpha", 3)
    pressed = view.locator("#anchors [aria-pressed=true]")
    assert pressed.count() == 1
    assert pressed.get_attribute("data-anchor") == number_before
    assert view.locator("#negatives li").evaluate_all("all => all.map(b => b.dataset.key)") == keys  # in the order of s
    position = view.locator("#profile i.here").evaluate("e => [...e.parentNode.children].indexOf(e)")
    assert view.locator("#anchors button").nth(position).get_attribute("data-anchor") == number_before


def test_the_address_keeps_what_is_chosen(shown: Open, open_page: Open, page: Path) -> None:
    view, told = shown()
    view.locator("#alpha").focus()
    view.keyboard.press("ArrowRight")
    view.locator("#anchors button").nth(9).focus()
    view.keyboard.press("Enter")
    view.get_by_label("weight W").check()
    slide(view, "beta", int(view.locator("#beta").get_attribute("max")))
    view.wait_for_function("location.hash.includes('bars=W') && location.hash.includes('beta=Infinity')")
    kept = view.evaluate("location.hash")
    chosen = view.locator("#anchors [aria-pressed=true]").get_attribute("data-anchor")
    assert temperatures(view)[0] == pytest.approx(0.11)
    view.goto("about:blank")
    view.goto(page.as_uri() + kept)
    assert temperatures(view) == (0.11, math.inf, 16)
    assert view.locator("#anchors [aria-pressed=true]").get_attribute("data-anchor") == chosen
    assert view.get_by_label("weight W").is_checked()
    for nonsense in ("#alpha=x&beta=-1&keys=0&anchor=1e9&tied=maybe&bars=q", "#alpha=1e99&beta=&keys=1e9&anchor=0"):
        view.goto("about:blank")
        view.goto(page.as_uri() + nonsense)
        agrees(view, embedded(page))
    assert told == []


def test_the_curves_pass_through_what_the_sliders_choose(shown: Open, page: Path) -> None:
    view, _ = shown()
    view.get_by_label("tie them").check()
    line = "e => e.getAttribute('points').split(' ').map(p => p.split(',').map(Number))"
    places = {}
    for id in ("entropy-curve", "effective-curve"):
        points = view.locator(f"#{id} polyline.these").evaluate(line)
        circle = view.locator(f"#{id} circle")
        x, y = float(circle.get_attribute("cx")), float(circle.get_attribute("cy"))
        assert min(abs(px - x) + abs(py - y) for px, py in points) < 0.3  # tau .1 is among the curve's points
        heights = [py for _, py in points]
        assert heights[0] > heights[-1]  # more with tau
        places[id] = points
    positive, negatives = embedded(page)
    taus = slider_taus(0.1)
    found = [
        entropy(relative_penalty(log_odds(positive, negatives[:, :16], tau))).item() for tau in (taus[0], 0.1, math.inf)
    ]
    ys = [places["entropy-curve"][i][1] for i in (0, next(i for i in range(99) if taus[2 * i] == 0.1), -1)]
    assert (ys[0] - ys[1]) / (ys[0] - ys[2]) == pytest.approx((found[1] - found[0]) / (found[2] - found[0]), abs=5e-3)


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.5])
def test_heights_beside_a_curve_differ_however_flat_it_is(
    run: TrainedRun, tmp_path: Path, open_page: Open, spread: float
) -> None:
    found = collect_explorer_data(run)
    s = Similarities(0.9 + spread * torch.linspace(-1, 0, len(found.s.positive)), found.s.negatives * 0)
    view, told = open_page(write_page(tmp_path / "flat.html", explorer_page(run, found._replace(s=s))))
    labels = view.locator("#entropy-curve text[text-anchor=end]").all_text_contents()
    assert len(labels) == len(set(labels)) == 4
    assert told == []


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (380, "light"), (1400, "dark")])
def test_the_page_fits_a_phone_and_the_dark(shown: Open, width: int, scheme: str) -> None:
    view, told = shown(width, scheme)
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    box = view.locator("#alpha").bounding_box()
    assert box["width"] >= 150
    colours = view.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    ink, ground = (sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in colours)
    assert abs(ink - ground) > 180
    assert (ground < 60) == (scheme == "dark")
    assert told == []


def test_every_control_has_a_name_and_every_slider_tells_its_value(shown: Open) -> None:
    view, _ = shown()
    for name, words in (("tau_alpha", "0.1"), ("tau_beta", "1"), ("dictionary", "16")):
        slider = view.get_by_role("slider", name=name)
        assert slider.get_attribute("aria-valuetext") == words
    assert view.get_by_role("switch", name="tie them").count() == 1
    assert all(
        view.locator("#anchors button").evaluate_all("all => all.map(b => b.getAttribute('aria-label').length > 10)")
    )


def test_few_images_of_another_framework_and_an_infinite_temperature(tmp_path: Path, open_page: Open) -> None:
    settings = {**SETTINGS, "batch": 8, "subset": 9, "tau_beta": math.inf, "knn_images": 8, "knn": 2}
    dualtemp.train(out=tmp_path / "few", method="simco", **settings, **HOW)  # pyright: ignore
    assert main(["explore", str(tmp_path / "few"), "--device", "cpu", "--out", str(tmp_path / "new" / "few.html")]) == 0
    page = tmp_path / "new" / "few.html"
    positive, negatives = embedded(page)
    assert positive.shape == (4,)
    assert 4 <= negatives.shape[1] <= 5
    view, told = open_page(page)
    view.locator(".preset").last.click()
    assert temperatures(view)[1] == math.inf
    agrees(view, (positive, negatives))
    assert told == []
