"""The page in a real browser, of synthetic results whose outcome is known."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualtemp.grids.results import DataFacts, Job, Results
from dualtemp.grids.tables import make_jobs
from dualtemp.paper.artifact import artifacts
from dualtemp.paper.page import write_paper_page
from dualtemp.paper.reproduce import Request

SEEDS = (1, 2, 3)
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
FACTS = {name: DataFacts(name, 32, 50_000, name) for name in ("cifar10", "cifar100", "svhn")}


def accuracy(job: Job) -> float:
    """The paper's shape in a formula: two temperatures beat one, SimCo beats SimMoCo beats MoCo."""
    s = job.settings
    value = {"moco": 44.0, "simmoco": 46.0, "simco": 50.0}.get(s.method, 40.0)
    alpha, beta = s.get("tau_alpha") or 0.0, s.get("tau_beta")
    beta = alpha if beta in (None, "tied") else float(beta)
    value -= 4.0 * (s.method in ("simco", "simmoco") and beta <= 0.1) + 15.0 * (alpha >= 1)
    rng = np.random.default_rng(int(job.name[:8], 16) + job.settings.seed)
    return value + float(rng.normal(0, 0.2))


def result(job: Job) -> dict[str, Any]:
    if job.settings.get("vector_sampling") == "earliest":
        return {"status": "collapsed", "metrics": {"probe_top1": 10.0}, "seconds": 240.0}
    if job.settings.get("symmetric"):
        return {"status": "failed", "reason": "the loss is not finite at step 7 <of 9>"}
    measured = {}
    if job.measured:
        size = {str(2**i): 3.0 + 0.1 * i + 0.001 * job.settings.seed * i for i in range(18)}
        curves = {f"{tau:g}": {k: v + tau for k, v in size.items()} for tau in (0.05, 0.1, 0.2, 0.5, 1.0)}
        weights = {"0.1": 0.9, "1": 0.5}
        anchor = {"anchor": DOT, "positive": DOT, "s_positive": 0.5, "W": weights, "r": weights, "anchors": 2}
        anchor["negatives"] = [{"picture": DOT, "s": 0.1, "p": weights}]  # pyright: ignore
        values = {"entropy": curves, "similarity": curves, "teaser": [{**anchor, "name": n} for n in ("easy", "hard")]}
        measured = {name: {"asked": json.loads(asked), "values": values[name]} for name, asked in job.measured}
    metrics = {"probe_top1": accuracy(job)}
    return {"status": "done", "metrics": metrics, "measured": measured, "seconds": 240.0}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    request = Request(["all"], "mini", SEEDS, results=folder / "results")
    results = Results(request.results)
    for job in make_jobs(request.make_plan(), SEEDS, FACTS).values():
        results.write(job, result(job))
    write_paper_page(request, folder / "page.html", FACTS)
    return folder / "page.html"


Open = Callable[..., tuple[Any, list[str]]]


@pytest.fixture
def shown(open_page: Open, page: Path) -> Open:
    return partial(open_page, page)


@pytest.mark.slow
def test_every_table_and_figure_is_there_without_an_error_or_the_network(shown: Open) -> None:
    view, told = shown()
    assert told == []
    for id in artifacts():
        section = view.locator(f"section[id='{id}']")
        assert section.is_visible()
        drawn = artifacts()[id].drawn
        if drawn in ("lines", "frameworks"):
            box = section.locator("svg").bounding_box()
            assert box["width"] > 300
            assert box["height"] > 100
        elif drawn == "table":
            assert section.locator("tbody tr").count() == len(artifacts()[id].rows)
    assert view.locator("section[id='F-dict'] svg circle").count() == 12
    assert view.locator("section[id='F-entropy'] svg polyline").count() == 5
    assert view.locator("section[id='F-teaser'] .anchor").count() == 2
    assert all(view.evaluate("[...document.images].map(i => i.complete && i.naturalWidth > 0)"))


def test_a_cell_shows_paper_measured_and_difference(shown: Open) -> None:
    view, _ = shown()
    row = view.locator("section[id='T-reverse'] tbody tr").first.locator("td").all_inner_texts()
    assert row[0] == "SimMoCo"
    found = re.fullmatch(r"([\d.]+) ± ([\d.]+)\s+paper\s49.52 \((.*)\)", row[1])
    mean, sd, difference = (float(word.replace("\N{MINUS SIGN}", "-")) for word in found.groups())  # pyright: ignore
    assert abs(mean - 42) < 0.5
    assert sd < 1
    assert difference == pytest.approx(mean - 49.52, abs=0.011)


def test_at_scale_smoke_no_difference_to_the_paper_is_told(tmp_path: Path) -> None:
    request = Request(["T-reverse"], "smoke", (1,), results=tmp_path)
    facts = {"digits": DataFacts("digits", 8, 1437)}
    for job in make_jobs(request.make_plan(), (1,), facts).values():
        Results(tmp_path).write(job, {"status": "done", "metrics": {"probe_top1": 40.0}})
    write_paper_page(request, tmp_path / "page.html", facts)
    cells = re.findall(r"40\.00.*?</td>", (tmp_path / "page.html").read_text(), re.DOTALL)
    assert len(cells) == 8
    assert sum("paper" in cell for cell in cells) == 4
    assert not any("(" in cell for cell in cells)


def test_tables_fit_a_small_screen(shown: Open) -> None:
    view, _ = shown(1000)
    wide = "[...document.querySelectorAll('section > .scroll')].map(e => e.scrollWidth > e.clientWidth)"
    assert view.evaluate(wide).count(True) == 0
    assert len(view.evaluate(wide)) > 8


def test_scale_data_and_what_it_changes_are_said(shown: Open) -> None:
    view, _ = shown()
    facts = view.locator(".facts").inner_text()
    assert "mini" in facts
    assert "cifar10" in facts
    assert "10,000" in facts
    assert "resnet_mini for backbone resnet18" in facts
    assert "supervised: batch \N{MULTIPLICATION SIGN} 1/2, subset 2500, evaluate_every 1000, lr 0.1" in facts
    assert "here 16384" in view.locator("section[id='F-dict'] table").text_content()
    assert "not at this scale" in view.locator("section[id='T-arch']").inner_text()


def test_what_holds_for_all_frameworks_is_said_once(tmp_path: Path) -> None:
    request = Request(["T-unified"], "sharp", (1,), results=tmp_path)
    write_paper_page(request, tmp_path / "page.html", FACTS)
    changed = (tmp_path / "page.html").read_text().split("<dt>Changed</dt>")[1].split("</dd>")[0]
    byol, simsiam = "byol: tau_weight 0.01, computation 1", "simsiam: tau_weight 0.01"
    assert changed.endswith(f"resnet_mini for backbone resnet18; {byol}; {simsiam}")
    assert changed.count("lr 0.12") == 1


def test_claims_carry_their_verdict_effect_and_runs(shown: Open) -> None:
    view, _ = shown()
    assert view.locator("details.claim").count() == 13
    first = view.locator("details.claim[id='C1']")
    assert "holds" in first.locator("summary").inner_text()
    first.locator("summary").click()
    cells = first.locator("tbody tr").first.locator("td").all_inner_texts()
    assert cells[:3] == ["T-reverse", "SimMoCo", "DT .1, 1 > ST .1"]
    assert 3 < float(cells[3]) < 5
    whole, at_once, by_seed = (
        [float(word.replace("\N{MINUS SIGN}", "-")) for word in cell.split(" … ")] for cell in cells[4:7]
    )
    assert sum(whole) / 2 == pytest.approx(sum(by_seed) / 2, abs=0.02)  # all seeds are there: one effect, two errors
    assert at_once[0] < whole[0] < whole[1] < at_once[1]
    assert cells[7] == "6"
    assert "undecided" in view.locator("details.claim[id='C10'] summary").inner_text()  # all its + runs failed


def test_collapsed_and_failed_runs_are_shown_as_such(shown: Open) -> None:
    view, _ = shown()
    assert "collapsed" in view.locator("section[id='T-vec-sampling']").inner_text()
    failed = view.locator("section[id='T-data'] .fails").first
    assert failed.inner_text() == "3 failed"
    assert "<of 9>" in failed.get_attribute("title")


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (375, "light"), (1400, "dark")])
def test_nothing_runs_over_the_edge_and_text_can_be_read(shown: Open, width: int, scheme: str) -> None:
    view, told = shown(width, scheme)
    assert told == []
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    colours = view.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    ink, ground = (sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in colours)
    assert abs(ink - ground) > 180
    assert (ground < 60) == (scheme == "dark")


def test_the_page_can_be_made_from_results_alone(page: Path) -> None:
    request = Request(["T-reverse"], "mini", SEEDS, results=page.parent / "results")
    write_paper_page(request, page.parent / "again.html")
    text = (page.parent / "again.html").read_text()
    assert "24 of 24 are done" in text
    assert 'id="T-batch"' not in text
    assert str(page.parent) not in text


def test_a_claim_rests_on_all_its_tables_though_one_is_shown(page: Path) -> None:
    request = Request(["T-batch"], "mini", SEEDS, results=page.parent / "results")
    write_paper_page(request, page.parent / "batch.html")
    text = (page.parent / "batch.html").read_text()
    assert text.count('class="claim"') == 1
    (claim,) = re.findall(r'id="C9">\s*<summary>.*?</summary>', text, re.S)
    assert "undecided" not in claim
    assert "T-epochs" in text


@pytest.mark.slow
def test_the_papers_values_do_not_stand_beside_ones_own_images(tmp_path: Path) -> None:
    def page_of(data: str, *tables: str) -> str:
        shown = list(tables) or ["T-reverse", "T-data"]
        request = Request(shown, "mini", (1,), [data], results=tmp_path / "results")
        facts = {**FACTS, data: DataFacts("0123456789abcdef", 32, 500)}
        for job in make_jobs(replace(request, ids=["T-reverse"]).make_plan(), (1,), facts).values():
            Results(request.results).write(job, {"status": "done", "metrics": {"probe_top1": 40.0}})
        write_paper_page(request, tmp_path / "page.html", facts)
        return (tmp_path / "page.html").read_text()

    mine = page_of(str(tmp_path / "mine"))
    assert mine.count("40.00") == 8
    assert "49.52" not in mine.split('id="T-reverse"')[1].split("</section>")[0]
    assert "82.35" in mine.split('id="T-data"')[1]  # varies the set, and has the paper's
    assert "its values are left out of T-reverse." in mine
    assert "mine (01234567)" in mine
    assert str(tmp_path) not in mine
    assert "Below each value is the paper's" in mine, "T-data's"
    assert "Below each value is the paper's" not in page_of(str(tmp_path / "mine"), "T-reverse")
    assert "49.52" not in page_of("svhn").split('id="T-reverse"')[1].split("</section>")[0]
    assert "49.52" in page_of("cifar100")
    assert "left out" not in page_of("cifar100")


def test_the_papers_value_is_left_out_where_a_single_set_is_replaced_and_stays_elsewhere(tmp_path: Path) -> None:
    mine = str(tmp_path / "mine")

    def page_of(*data: str) -> str:
        tables = ["T-reverse", "T-data", "S-noise", "F-frameworks"]
        request = Request(tables, "mini", (1,), data, results=tmp_path / "results")
        facts = {**FACTS, mine: DataFacts("0123456789abcdef", 32, 500)}
        write_paper_page(request, tmp_path / "page.html", facts)
        return (tmp_path / "page.html").read_text()

    page = page_of(f"svhn={mine}")
    assert "Below each value is the paper's" in page
    assert "47.25" not in page  # MoCo v2 on SVHN
    assert "82.35" in page  # MoCo v2 on CIFAR10
    assert "49.52" in page  # T-reverse has no SVHN
    assert "its values are left out of T-data (SVHN)." in page
    page = page_of(f"cifar10={mine}")  # at this scale, what T-reverse is measured on
    assert [value in page for value in ("47.25", "82.35", "49.52")] == [True, False, False]
    assert "its values are left out of T-reverse, T-data (CIFAR10), S-noise." in page
    assert "its values are left out of T-reverse, S-noise." in page_of(mine)  # T-data varies the set
    assert "left out" not in page_of("svhn=SVHN")
