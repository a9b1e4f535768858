"""The explorer's chooser of the weight, in a real browser: each member of the family against its loss in float64."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from explorer_numbers import agrees, embedded, family_agrees, number, slide, temperatures

Open = Callable[..., tuple[Any, list[str]]]


@pytest.fixture
def page(explored_page: Path) -> Path:
    return explored_page


@pytest.fixture
def shown(open_page: Open, page: Path) -> Open:
    return partial(open_page, page)


@pytest.mark.parametrize("member", ["tied", "sigmoid", "equal", "memory", "per_image"])
def test_every_member_of_the_family_weighs_as_its_loss_does(shown: Open, page: Path, member: str) -> None:
    view, told = shown()
    s = embedded(page)
    view.get_by_label("weight of an anchor").select_option(member)
    view.locator("#anchors button").nth(30).click()
    for alpha, size in ((0, 0), (16, 3), (24, 5), (40, 7)):  # tau_alpha below tau_min, within, and above tau_max
        slide(view, "alpha", alpha)
        slide(view, "size", size)
        agrees(view, s)
        family_agrees(view, s, tau_beta=temperatures(view)[0] if member == "tied" else 1.0)
    assert view.locator("#family [aria-current=true]").get_attribute("data-member") == member
    if member == "memory":  # both visits met all keys
        assert number(view, "entropy") == pytest.approx(math.log(64), rel=1e-12)
    assert told == []


def test_the_weight_is_chosen_with_the_keyboard_and_kept_in_the_address(shown: Open, page: Path) -> None:
    view, told = shown()
    chooser = view.get_by_role("combobox", name="weight of an anchor")
    assert chooser.input_value() == "sigmoid"
    view.get_by_label("tie them").check()
    assert chooser.input_value() == "tied"
    chooser.focus()
    view.keyboard.press("ArrowDown")
    assert chooser.input_value() == "sigmoid"
    assert not view.get_by_label("tie them").is_checked()
    for _ in range(2):
        view.keyboard.press("ArrowDown")
    assert chooser.input_value() == "memory"
    assert view.get_by_label("tie them").is_disabled()
    beta = view.get_by_role("slider", name="tau_beta")
    assert beta.is_disabled()
    assert beta.get_attribute("aria-valuetext") == "not used"
    assert "second visit" in view.locator("#weight-about").inner_text()
    assert view.locator(".preset[aria-pressed=true]").count() == 0
    view.wait_for_function("location.hash.includes('weight=memory')")
    kept = view.evaluate("location.hash")
    for address, member in ((kept, "memory"), ("#weight=equal&tied=1", "equal"), ("#weight=toString", "sigmoid")):
        view.goto("about:blank")
        view.goto(page.as_uri() + address)
        assert view.locator("#weight").input_value() == member
        agrees(view, embedded(page))
    assert told == []
