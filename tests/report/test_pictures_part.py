"""The pictures' part of the run page, on a page of its own, in a real browser."""

import base64
import io
import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dualtemp.report.page import render, write_page

Open = Callable[..., tuple[Any, list[str]]]
TILE, COLUMNS, IMAGES, ANCHORS = 32, 10, 60, 20
CLASSES = ["cat", "dog & <b>wolf</b>", "ship"]


def sheet() -> str:
    """Tile n has the grey value 4 n."""
    rows = math.ceil(IMAGES / COLUMNS)
    tiles = np.arange(rows * COLUMNS, dtype=np.uint8).reshape(rows, COLUMNS) * 4
    buffer = io.BytesIO()
    Image.fromarray(np.kron(tiles, np.ones((TILE, TILE), np.uint8))).save(buffer, "JPEG", quality=95)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def named(n: int) -> dict[str, Any]:
    return {"name": f"image {n}.png", "label": CLASSES[n % 3]}


def anchor(n: int, W: float) -> dict[str, Any]:
    negatives = [{"picture": n + 2 + j, **named(n + 2 + j), "s": 0.9 - j / 10, "p": 0.5 / 2**j} for j in range(3)]
    return {"views": [n, n + 1], **named(n), "s": 0.25, "W": W, "r": W / 5, "negatives": negatives}


def made() -> dict[str, Any]:
    drawn = random.Random(0)
    places = [[drawn.gauss(0, 1), drawn.gauss(0, 1)] for _ in range(IMAGES)]
    return {
        "step": 1234,
        "tau_alpha": 0.1,
        "tau_beta": 1.0,
        "tile": TILE,
        "columns": COLUMNS,
        "sheet": sheet(),
        "anchors": {
            "count": ANCHORS,
            "hardest": [anchor(0, 0.75), anchor(7, 0.5)],
            "easiest": [anchor(14, 0.125)],
        },
        "neighbours": {
            "agreement": 0.5,
            "rows": [
                {"query": {"picture": n, **named(n)}, "found": [{"picture": m, **named(m), "s": 0.5} for m in (9, 10)]}
                for n in (0, 1)
            ],
        },
        "map": {
            "names": [f"image {n}.png" for n in range(IMAGES)],
            "pictures": list(range(IMAGES)),
            "labels": [n % 3 for n in range(IMAGES)],
            "classes": CLASSES,
            "W": [n / IMAGES for n in range(IMAGES)],
            "pca": places,
            "explained": [0.25, 0.125],
            "tsne": [[10 * y, 10 * x] for x, y in places],
        },
    }


@pytest.fixture
def shown(open_page: Open, tmp_path: Path) -> Open:
    """shown(pictures, width, scheme): the part alone on a page."""

    def show(pictures: dict[str, Any] | None, width: int = 1100, scheme: str = "light") -> tuple[Any, list[str]]:
        part = render("pictures.html.j2", {"pictures": json.loads(json.dumps(pictures))})
        head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        css = render("paper.css", {})
        page = f"<!doctype html>{head}<title>part</title><style>{css}</style><body>{part}</body>"
        return open_page(write_page(tmp_path / "part.html", page), width, scheme)

    return show


def colour_of(view: Any, tile: Any) -> int:
    """The grey value in the middle of a tile, as the browser paints it."""
    picture = np.asarray(Image.open(io.BytesIO(tile.screenshot())).convert("L"))
    return int(picture[picture.shape[0] // 2, picture.shape[1] // 2])


def test_anchors_show_their_views_weight_share_and_hardest_negatives(shown: Open) -> None:
    view, told = shown(made())
    cards = view.locator("#pictures .card")
    assert cards.count() == 3
    text = cards.first.inner_text()
    assert "W 0.750" in text
    assert "15.00 %, 3.00 of an equal share" in text  # r = .15 of 20 anchors
    assert "p̂ 50.0 %, s 0.90" in text
    assert cards.first.locator(".negatives li").count() == 3
    widths = cards.first.locator(".negatives .bar > i").evaluate_all(
        "bars => bars.map(b => b.offsetWidth / b.parentNode.offsetWidth)"
    )
    assert widths == pytest.approx([0.5, 0.25, 0.125], abs=0.01)
    assert told == []


def test_a_thumbnail_is_the_tile_of_its_number(shown: Open) -> None:
    view, _ = shown(made())
    second = view.locator("#pictures .card").nth(1)  # views 7 and 8, negatives 9, 10, 11: a new row of the sheet
    assert colour_of(view, second.locator(".views .tile").first) == pytest.approx(4 * 7, abs=2)
    assert colour_of(view, second.locator(".negatives .tile").nth(1)) == pytest.approx(4 * 10, abs=2)
    assert colour_of(view, second.locator(".negatives .tile").nth(2)) == pytest.approx(4 * 11, abs=2)


def test_neighbours_are_marked_as_agreeing_in_a_sign_and_not_by_colour_alone(shown: Open) -> None:
    view, _ = shown(made())
    rows = view.locator("#pictures .row")
    assert rows.nth(0).locator("li .called").all_inner_texts() == ["✓ cat", "✗ dog & <b>wolf</b>"]
    assert rows.nth(1).locator("li .called").all_inner_texts() == ["✗ cat", "✓ dog & <b>wolf</b>"]
    assert "50 % of the neighbors" in view.locator("#pictures").inner_text()


def test_pointing_tapping_and_arrow_keys_show_the_image_of_a_point(shown: Open) -> None:
    view, told = shown(made())
    tip, points = view.locator("#pictures .tip"), view.locator("#pictures .plot path")
    assert points.count() == IMAGES
    assert tip.is_hidden()
    view.emulate_media(reduced_motion="reduce")
    view.locator("#pictures .plot").scroll_into_view_if_needed()
    boxes = {n: points.nth(n).bounding_box() for n in (7, 48)}  # before the one pointed at is drawn last
    for n, box in boxes.items():
        view.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert tip.is_visible()
        assert tip.inner_text().strip() == f"image {n}.png · {CLASSES[n % 3]} · W {n / IMAGES:.3f}"
        assert colour_of(view, tip.locator(".tile")) == pytest.approx(4 * n, abs=2)
    view.mouse.move(1, 1)
    assert tip.is_hidden()
    view.locator("#pictures .plot svg").focus()
    names = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown"):
        view.keyboard.press(key)
        names.append(tip.inner_text())
    assert len(set(names)) >= 3
    view.keyboard.press("Escape")
    assert tip.is_hidden()
    assert told == []


def places(view: Any) -> np.ndarray:
    found = view.locator("#pictures .plot path").evaluate_all("paths => paths.map(p => p.style.transform)")
    return np.array([[float(x) for x in re.findall(r"-?[\d.]+", place)[:2]] for place in found])


def test_the_layout_can_be_switched_and_keeps_the_shape(shown: Open) -> None:
    pictures = made()
    view, told = shown(pictures)
    embedded = places(view)
    view.get_by_label("PCA").check()
    assert "25.0 % and 12.5 %" in view.locator("#pictures .axes").inner_text()
    found, wanted = places(view), np.array(pictures["map"]["pca"])
    assert not np.allclose(embedded, found)
    for axis, sign in ((0, 1), (1, -1)):  # upwards is less in a picture
        slope, offset = np.polyfit(wanted[:, axis], found[:, axis], 1)
        assert np.abs(slope * wanted[:, axis] + offset - found[:, axis]).max() < 0.2
        assert slope * sign > 0
    assert (found.min(0) >= 0).all()
    assert (found.max(0) <= (640, 480)).all()
    assert told == []


def test_colour_by_class_or_weight_comes_with_a_legend_that_picks_out(shown: Open) -> None:
    view, told = shown(made())
    legend = view.locator("#pictures .legend button")
    assert legend.all_inner_texts() == CLASSES
    legend.nth(1).click()
    faded = "paths => paths.filter(p => getComputedStyle(p).opacity < .5).length"
    assert view.locator("#pictures .plot path").evaluate_all(faded) == IMAGES * 2 // 3
    legend.nth(1).click()
    assert view.locator("#pictures .plot path").evaluate_all(faded) == 0
    view.get_by_label("anchor weight W").check()
    fills = view.locator("#pictures .plot path").evaluate_all("paths => paths.map(p => p.style.fill)")
    assert sorted(fills) == sorted(f"var(--ramp{n * 5 // IMAGES})" for n in range(IMAGES))
    assert "hard" in legend.last.inner_text()
    assert told == []


def without(*parts: str) -> dict[str, Any]:
    pictures = made()
    for part in parts:
        *path, last = part.split(".")
        inner = pictures
        for name in path:
            inner = inner[name]
        inner[last] = None
    return pictures


def unlabelled() -> dict[str, Any]:
    pictures = json.loads(json.dumps(made()).replace(json.dumps(CLASSES[1]), "null").replace('"cat"', "null"))
    pictures = json.loads(json.dumps(pictures).replace('"ship"', "null"))
    pictures["map"] |= {"labels": [-1] * IMAGES, "classes": [], "W": None}
    pictures["neighbours"]["agreement"] = None
    return pictures


def one_point_without_numbers() -> dict[str, Any]:
    pictures = made()
    kept = {name: pictures["map"][name][:1] for name in ("names", "pictures", "labels", "W")}
    pictures["map"] |= kept | {"pca": [[0.0, 0.0]], "tsne": None, "explained": [math.nan, math.nan]}
    pictures["tau_beta"] = math.inf
    pictures["anchors"]["hardest"][0]["W"] = None
    return pictures


@pytest.mark.parametrize(
    "pictures",
    [None, without("anchors"), without("anchors", "neighbours", "map"), without("map.tsne", "map.W"), unlabelled()],
    ids=["none", "supervised", "empty", "PCA alone", "unlabelled"],
)
def test_what_is_not_there_is_left_out_without_an_error(shown: Open, pictures: dict[str, Any] | None) -> None:
    view, told = shown(pictures)
    assert told == []
    text = view.locator("#pictures").inner_text()
    assert "None" not in text
    assert "undefined" not in text
    if pictures is None:
        assert "dualtemp report" in text
        return
    assert view.locator("#pictures-anchors").count() == bool(pictures["anchors"])
    assert view.locator("#pictures .plot path").count() == (IMAGES if pictures["map"] else 0)
    assert view.get_by_label("PCA").count() == bool(pictures["map"] and pictures["map"]["tsne"])


def test_numbers_that_are_not_finite_do_not_break_the_map(shown: Open) -> None:
    view, told = shown(one_point_without_numbers())
    assert told == []
    assert view.locator("#pictures .plot path").count() == 1
    assert "tau_beta inf" in view.locator("#pictures").inner_text()
    view.locator("#pictures .plot svg").focus()
    view.keyboard.press("ArrowDown")
    assert "image 0.png" in view.locator("#pictures .tip").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(380, "light"), (380, "dark"), (1400, "dark")])
def test_the_part_fits_a_phone_and_the_dark(shown: Open, width: int, scheme: str) -> None:
    pictures = made()
    long = "a-very-long-folder-name/" * 8 + "photograph.jpg"
    pictures["anchors"]["hardest"][0] |= {"name": long, "label": None}
    pictures["neighbours"]["rows"][0]["query"] |= {"name": long, "label": None}
    view, told = shown(pictures, width, scheme)
    assert told == []
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    view.locator("#pictures .plot svg").focus()
    view.keyboard.press("ArrowRight")
    assert view.evaluate("document.documentElement.scrollWidth") <= width


def test_pictures_are_printed(shown: Open) -> None:
    view, _ = shown(made())
    assert b"/Subtype /Image" in view.pdf(print_background=False)  # as browsers print unless told otherwise
