from collections.abc import Callable

import numpy as np
import pytest

from dualtemp.paper.artefact import artefacts, read_yaml
from dualtemp.paper.claims import ABSENT, FAILS, HOLDS, RULES, UNDECIDED, MeasuredCell, Table, Verdict, judged

SEEDS = (1, 2, 3, 4, 5)


def cell(mean: float, sd: float = 0.3, seeds: tuple[int, ...] = SEEDS, **other: object) -> MeasuredCell:
    """A cell whose values have exactly this mean and standard deviation."""
    noise = np.array([((i * 7) % 5) - 2.0 for i in range(len(seeds))])
    noise = (noise - noise.mean()) / (noise.std(ddof=1) or 1.0) if len(seeds) > 1 else noise * 0
    return MeasuredCell(dict(zip(seeds, (mean + sd * noise).tolist(), strict=True)), **other)  # pyright: ignore


def table(artefact: str, mean: Callable[[str, str], float], **other: object) -> Table:
    declared = artefacts()[artefact]
    return {(r, c): cell(mean(r, c), **other) for r in declared.rows for c in declared.columns}  # pyright: ignore


def published(artefact: str, **other: object) -> Table:
    found = {(c.row, c.column): c.paper for c in artefacts()[artefact].cells}
    return table(artefact, lambda r, c: found[r, c] or found.get(("SimMoCo", c)) or 0.0, **other)


def verdicts(tables: dict[str, Table]) -> dict[str, Verdict]:
    return {v.claim: v for v in judged(tables)}


def test_the_papers_own_numbers_show_the_papers_claims() -> None:
    tables = {id: published(id) for id, a in artefacts().items() if a.paper}
    tables["F-dict"] = table("F-dict", lambda r, c: 53.3 - (3 if r == "scalar" and c in ("64", "256") else 0))
    noise = tables["S-noise"]
    noise["CE", "clean"], noise["CE(DT)", "clean"] = cell(90.0), cell(89.9)
    sizes = {c: i for i, c in enumerate(artefacts()["F-entropy"].columns)}
    tables["F-entropy"] = table("F-entropy", lambda r, c: 4 + 0.1 * float(r) + 0.01 * sizes[c], sd=0.001)
    tables["S-similarity"] = table("S-similarity", lambda r, c: 0.5 + 0.1 * len(c), sd=0.001)
    # Paired values that differ by a constant have no spread of their own.
    for name in ("F-entropy", "S-similarity"):
        rng = np.random.default_rng(0)
        for measured in tables[name].values():
            for seed in SEEDS:
                measured.values[seed] += rng.normal(0, 1e-5)
    found = verdicts(tables)
    assert {c for c, v in found.items() if v.verdict != HOLDS} == {"C7"}
    # The paper's earliest and newest keys of the scalar are 1.19 points apart: more than the margin.
    assert [f.verdict for f in found["C7"].findings if f.says == "earliest = newest"] == [UNDECIDED]


def test_a_difference_the_other_way_refutes() -> None:
    found = verdicts({"T-reverse": table("T-reverse", lambda r, c: 50.0 if c == "ST .1" else 48.0)})
    assert found["C1"].verdict == FAILS
    assert found["C1"].findings[0].interval is not None
    assert found["C1"].findings[0].interval.effect == pytest.approx(-2.0)
    assert found["C3"].verdict == UNDECIDED  # its table was not run


def test_ties_are_undecided_where_an_effect_is_claimed_and_shown_where_none_is() -> None:
    found = verdicts(
        {
            "T-reverse": table("T-reverse", lambda r, c: 50.0),
            "S-scalar-sampling": table("S-scalar-sampling", lambda r, c: 50.0, sd=0.3),
        }
    )
    assert found["C1"].verdict == UNDECIDED
    assert found["C7"].verdict == HOLDS


def test_equivalence_needs_an_interval_within_the_margin() -> None:
    def sampling(gap: float, sd: float) -> str:
        means = {"earliest": 50.0, "random": 50.0, "newest": 50.0 + gap}
        return verdicts({"S-scalar-sampling": table("S-scalar-sampling", lambda r, c: means[c], sd=sd)})["C7"].verdict

    assert sampling(0.0, 0.3) == HOLDS
    assert sampling(0.0, 3.0) == UNDECIDED  # too noisy to say
    assert sampling(0.9, 0.3) == UNDECIDED  # the interval reaches over the margin
    assert sampling(3.0, 0.3) == FAILS


def test_at_least_allows_better_and_not_worse() -> None:
    def current(gap: float) -> str:
        return verdicts({"T-tau-beta": table("T-tau-beta", lambda r, c: 50 + gap * (r == "current"))})["C4"].verdict

    assert [current(gap) for gap in (5.0, 0.0, -0.9, -5.0)] == [HOLDS, HOLDS, UNDECIDED, FAILS]


def test_far_below_means_by_more_than_the_margin() -> None:
    def gap(points: float) -> str:
        means = {"ST .1": 50.0, "DT .1, 1": 50.0}
        return verdicts({"T-reverse": table("T-reverse", lambda r, c: means.get(c, 50 - points))})["C2"].verdict

    assert [gap(points) for points in (5.0, 1.1, 0.2)] == [HOLDS, UNDECIDED, FAILS]


def test_one_seed_decides_nothing_and_says_so() -> None:
    found = verdicts({"T-reverse": published("T-reverse", seeds=(1,))})["C1"]
    assert found.verdict == UNDECIDED
    assert found.findings[0].why == "one seed: no interval"


def test_seeds_that_do_not_differ_decide_nothing() -> None:
    found = verdicts({"T-reverse": published("T-reverse", sd=0.0)})["C1"]
    assert (found.verdict, found.findings[0].why) == (UNDECIDED, "the seeds do not differ at all: no interval")


def test_failed_cells_leave_a_claim_undecided_and_failed_seeds_are_left_out() -> None:
    measured = published("T-reverse")
    measured["SimMoCo", "ST .1"] = MeasuredCell(failed={1: "the loss is not finite"})
    found = verdicts({"T-reverse": measured})["C1"]
    assert found.verdict == UNDECIDED
    assert "the loss is not finite" in found.findings[0].why
    measured["SimMoCo", "ST .1"] = cell(49.5, seeds=(1, 2, 3), failed={4: "x"})
    found = verdicts({"T-reverse": measured})["C1"]
    assert (found.verdict, found.findings[0].runs) == (HOLDS, 8)
    assert found.findings[0].why == "1 failed runs left out"


def test_a_collapsed_cell_counts_as_chance_but_not_as_noise() -> None:
    measured = {
        ("MoCo v2", "earliest"): cell(10.0, sd=0.0, collapsed=5),
        ("MoCo v2", "random"): cell(44.0, sd=2.0),
        ("MoCo v2", "newest"): cell(46.0, sd=2.0),
    }
    found = verdicts({"T-vec-sampling": measured})["C6"]
    assert [f.verdict for f in found.findings] == [UNDECIDED, HOLDS]
    assert found.findings[0].interval is not None
    assert found.findings[0].interval.df == 8


def test_cells_that_a_scale_has_not_are_left_out_of_the_verdict() -> None:
    measured = published("T-arch")
    for row in artefacts()["T-arch"].rows:
        measured[row, "ViT tiny"] = MeasuredCell(absent="backbone vit_tiny is not at this scale")
    others = {id: published(id) for id in ("T-tau-alpha", "T-batch", "T-epochs", "T-data")}
    found = verdicts({"T-arch": measured, **others})["C9"]
    assert found.verdict == HOLDS
    assert [f.where for f in found.findings if f.verdict == ABSENT] == ["ViT tiny", "ViT tiny"]


def test_a_curve_that_falls_somewhere_does_not_rise() -> None:
    rng = np.random.default_rng(0)

    def similarity(heights: list[float], sd: float) -> str:
        columns = artefacts()["S-similarity"].columns
        curve = {
            ("0.1", c): MeasuredCell({s: h + float(rng.normal(0, sd)) for s in SEEDS})
            for c, h in zip(columns, heights, strict=True)
        }
        return verdicts({"S-similarity": curve})["C12"].verdict

    assert similarity([1, 2, 3, 4, 5, 6], 0.01) == HOLDS
    assert similarity([1, 2, 3, 2.5, 5, 6], 0.01) == FAILS
    assert similarity([6, 5, 4, 3, 2, 1], 0.01) == FAILS
    assert similarity([1, 1, 1, 1, 1, 1], 0.01) != HOLDS


def test_every_claim_names_cells_that_exist() -> None:
    rules = read_yaml("claims.yaml")
    assert list(rules["claims"]) == [f"C{i}" for i in range(1, 14)]
    for claim, rule in rules["claims"].items():
        for line in rule["shown_by"]:
            (kind,) = set(line) & set(RULES)
            for id in [line["in"]] if isinstance(line["in"], str) else line["in"]:
                artefact = artefacts()[id]
                assert claim in artefact.claims
                along, across = (artefact.columns, artefact.rows)[:: 1 if line["each"] == "row" else -1]
                assert set(line[kind]) <= set(along)
                assert set(line.get("of", ())) <= set(across)
