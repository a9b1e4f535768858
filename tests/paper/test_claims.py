from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from dualtemp.grids.comparisons import ABSENT, FAILS, HOLDS, RULES, UNDECIDED, Finding, MeasuredCell, Strictness, Table
from dualtemp.intervals import bonferroni, difference, pooled_variance
from dualtemp.paper import claims
from dualtemp.paper.artifact import artifacts
from dualtemp.paper.claims import Verdict, compare, describe_uncompared_cells, judge_claims, rules

SEEDS = (1, 2, 3, 4, 5)


def cell(mean: float, sd: float = 0.3, seeds: tuple[int, ...] = SEEDS, **other: object) -> MeasuredCell:
    """A cell whose values have exactly this mean and standard deviation."""
    noise = np.array([((i * 7) % 5) - 2.0 for i in range(len(seeds))])
    noise = (noise - noise.mean()) / (noise.std(ddof=1) or 1.0) if len(seeds) > 1 else noise * 0
    return MeasuredCell(dict(zip(seeds, (mean + sd * noise).tolist(), strict=True)), **other)  # pyright: ignore


def table(artifact: str, mean: Callable[[str, str], float], **other: object) -> Table:
    declared = artifacts()[artifact]
    return {(r, c): cell(mean(r, c), **other) for r in declared.rows for c in declared.columns}  # pyright: ignore


def published(artifact: str, **other: object) -> Table:
    found = {(c.row, c.column): c.paper for c in artifacts()[artifact].cells}
    return table(artifact, lambda r, c: found[r, c] or found.get(("SimMoCo", c)) or 0.0, **other)


def verdicts(tables: dict[str, Table]) -> dict[str, Verdict]:
    return {v.claim: v for v in judge_claims(tables)}


def test_the_papers_own_numbers_show_the_papers_claims() -> None:
    tables = {id: published(id) for id, a in artifacts().items() if a.paper}
    tables["F-dict"] = table("F-dict", lambda r, c: 53.3 - (3 if r == "scalar" and c in ("64", "256") else 0))
    noise = tables["S-noise"]
    noise["CE", "clean"], noise["CE(DT)", "clean"] = cell(90.0), cell(89.9)
    sizes = {c: i for i, c in enumerate(artifacts()["F-entropy"].columns)}
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
    assert found.findings[0].why == "1 failed run left out"


def test_a_collapsed_cell_counts_as_chance_but_not_as_noise() -> None:
    measured = {
        ("MoCo v2", "earliest"): cell(10.0, sd=0.0, collapsed=frozenset(SEEDS)),
        ("MoCo v2", "random"): cell(44.0, sd=2.0),
        ("MoCo v2", "newest"): cell(46.0, sd=2.0),
    }
    found = verdicts({"T-vec-sampling": measured})["C6"]
    assert [f.verdict for f in found.findings] == [UNDECIDED, HOLDS]
    assert found.findings[0].interval is not None
    assert found.findings[0].interval.df == 8


def test_cells_that_a_scale_has_not_are_left_out_of_the_verdict() -> None:
    measured = published("T-arch")
    for row in artifacts()["T-arch"].rows:
        measured[row, "ViT tiny"] = MeasuredCell(absent="backbone vit_tiny is not at this scale")
    others = {id: published(id) for id in ("T-tau-alpha", "T-batch", "T-epochs", "T-data")}
    found = verdicts({"T-arch": measured, **others})["C9"]
    assert found.verdict == HOLDS
    assert [f.where for f in found.findings if f.verdict == ABSENT] == ["ViT tiny", "ViT tiny"]


def test_a_curve_that_falls_somewhere_does_not_rise() -> None:
    rng = np.random.default_rng(0)

    def similarity(heights: list[float], sd: float) -> str:
        columns = artifacts()["S-similarity"].columns
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
    assert list(rules()["claims"]) == [f"C{i}" for i in range(1, 14)]
    for claim, rule in rules()["claims"].items():
        for line in rule["shown_by"]:
            (kind,) = set(line) & set(RULES)
            for id in [line["in"]] if isinstance(line["in"], str) else line["in"]:
                artifact = artifacts()[id]
                assert claim in artifact.claims
                along, across = (artifact.columns, artifact.rows)[:: 1 if line["each"] == "row" else -1]
                assert set(line[kind]) <= set(along)
                assert set(line.get("of", ())) <= set(across)
                # Cells that are compared share a variance.
                assert rules()["pools"][id]["over"] in ("table", "none", line["each"])


def test_a_cell_of_which_some_seeds_collapsed_decides_nothing() -> None:
    sound = MeasuredCell({1: 44.5, 2: 44.0, 3: 43.5})
    partly = MeasuredCell({1: 44.1, 2: 43.9, 3: 10.0}, collapsed=frozenset({3}))
    tables: dict[str, Table] = {
        "T-vec-sampling": {
            ("MoCo v2", "newest"): sound,
            ("MoCo v2", "random"): sound,
            ("MoCo v2", "earliest"): partly,
        },
        "S-similarity": {("0.1", c): partly for c in artifacts()["S-similarity"].columns},
    }
    found = verdicts(tables)
    last = found["C6"].findings[-1]
    assert (last.verdict, last.why, last.interval) == (UNDECIDED, "earliest: 1 of 3 seeds collapsed", None)
    assert found["C6"].verdict == UNDECIDED
    assert found["C12"].findings[0].why == "64: 1 of 3 seeds collapsed"


def finding(found: Verdict, where: str) -> Finding:
    return next(f for f in found.findings if f.where == where)


def test_noise_cells_are_judged_by_their_own_variance() -> None:
    noise = {
        ("CE", "clean"): cell(53.0, sd=0.1),
        ("CE(DT)", "clean"): cell(33.0, sd=0.1),
        ("CE", "symmetric .4"): cell(32.0, sd=1.5),
        ("CE(DT)", "symmetric .4"): cell(32.5, sd=1.5),
        ("CE", "symmetric .6"): cell(23.0, sd=1.5),
        ("CE(DT)", "symmetric .6"): cell(24.7, sd=1.5),
    }
    found = verdicts({"S-noise": noise})["C13"]
    alone = finding(found, "symmetric .6")
    first, second = (list(noise[row, "symmetric .6"].values.values()) for row in ("CE(DT)", "CE"))
    expected = stats.ttest_ind(first, second).confidence_interval(0.95)
    assert alone.interval is not None
    assert alone.interval.bounds == pytest.approx((expected.low, expected.high))
    assert alone.verdict == UNDECIDED
    # What the clean labels' quiet cells would have made of it.
    values = [list(c.values.values()) for c in noise.values()]
    assert difference(first, second, pooled_variance(values), 0.95).bounds[0] > 0


def test_runs_that_stand_in_two_cells_count_once_in_the_variance() -> None:
    whole = cell(42.4, sd=0.6, run="whole")
    shrunk = {("scalar", "64"): cell(41.0, sd=0.9, run="s"), ("vector", "64"): cell(40.0, sd=1.2, run="v")}
    found = verdicts({"F-dict": {**shrunk, ("scalar", "65536"): whole, ("vector", "65536"): whole}})["C5"]
    interval = found.findings[0].interval
    assert interval is not None
    assert interval.df == 3 * 4


def test_comparisons_are_counted_and_all_covered_at_once() -> None:
    tables = {"T-reverse": published("T-reverse")}
    found = verdicts(tables)
    assert (found["C1"].comparisons, found["C2"].comparisons, found["C7"].comparisons) == (2, 8, 3)
    assert found["C8"].comparisons == 5 * 6 + 6 * 5  # every rise, and each of its steps
    one = found["C2"].findings[0]
    assert one.interval is not None
    assert one.at_once is not None
    half = one.at_once.bounds[1] - one.at_once.effect
    single = one.interval.bounds[1] - one.interval.effect
    df = one.interval.df
    assert half / single == pytest.approx(stats.t.ppf(1 - 0.05 / 16, df) / stats.t.ppf(0.975, df))
    assert "up to 40 %" in found["C2"].error(0.95)
    assert "99.375 %" in found["C2"].error(0.95)


def test_at_once_the_intervals_of_a_claim_cover_all_their_differences() -> None:
    rng = np.random.default_rng(0)
    columns = list(artifacts()["S-scalar-sampling"].columns)
    (line,) = rules()["claims"]["C7"]["shown_by"]
    missed, draws = {"singly": 0, "at once": 0}, 400
    for _ in range(draws):  # three true means are equal, so an interval without zero has missed
        measured = {("MoCo v2", c): MeasuredCell(dict(enumerate(rng.normal(50, 1, 3)))) for c in columns}
        findings = compare(line, {"S-scalar-sampling": measured}, Strictness(1.0, 0.95, bonferroni(0.95, 3)))
        for word, intervals in (("singly", [f.interval for f in findings]), ("at once", [f.at_once for f in findings])):
            missed[word] += any(i is not None and not i.bounds[0] < 0 < i.bounds[1] for i in intervals)
    assert missed["at once"] / draws < 0.07
    assert missed["singly"] / draws > 0.08


def test_one_comparison_of_many_refutes_only_at_once() -> None:
    """A fall that the single interval shows and the one at which all are covered does not."""

    def c4(gap: float) -> Finding:
        means = {"0.05": gap}
        found = verdicts({"T-tau-beta": table("T-tau-beta", lambda r, c: 50 + means.get(c, 0.0) * (r == "current"))})
        return finding(found["C4"], "0.05")

    slight = c4(-1.45)
    assert slight.interval is not None
    assert slight.interval.bounds[1] < -1.0
    assert slight.verdict == UNDECIDED
    assert c4(-3.0).verdict == FAILS


def test_a_comparison_that_holds_by_its_own_interval_alone_says_so() -> None:
    found = verdicts({"T-reverse": table("T-reverse", lambda r, c: 50 + 0.42 * (c == "DT .1, 1"))})["C1"]
    assert {f.word for f in found.findings} == {"holds, singly"}
    assert found.verdict == HOLDS


def test_cells_that_no_claim_looks_at_are_named() -> None:
    told = describe_uncompared_cells("S-noise")
    assert told.startswith("No claim compares symmetric .8, asymmetric .4, asymmetric .6, asymmetric .8. ")
    assert "the recipe of asymmetric .6 and .8 is unknown" in told
    assert describe_uncompared_cells("T-reverse") == describe_uncompared_cells("S-dict") == ""
    assert describe_uncompared_cells("F-dict") == "No claim compares 1024, 4096, 16384, scalar 256."


@pytest.fixture
def two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {"planned": {"seeds": [5, 10], "level": 0.9706}}
    monkeypatch.setattr(claims, "rules", lambda: {**rules(), "looks": looks})


@pytest.mark.usefixtures("two_looks")
def test_claims_are_looked_at_after_the_declared_seeds_alone() -> None:
    def c1(gaps: list[float]) -> Finding:
        rng, seeds = np.random.default_rng(0), range(1, len(gaps) + 1)
        noise = {row: rng.normal(0, 0.3, (4, 10)) for row in ("SimMoCo", "SimCo")}
        measured = {
            (row, column): MeasuredCell(
                {s: 50 + gaps[s - 1] * (column == "DT .1, 1") + noise[row][i, s - 1] for s in seeds}
            )
            for row in noise
            for i, column in enumerate(artifacts()["T-reverse"].columns)
        }
        return next(v for v in judge_claims({"T-reverse": measured}, "planned") if v.claim == "C1").findings[0]

    early = c1([3.0] * 4)
    assert (early.verdict, early.why) == (UNDECIDED, "DT .1, 1: 4 of 5 seeds")
    first = c1([3.0] * 5)
    assert (first.verdict, first.runs) == (HOLDS, 10)
    assert first.interval is not None
    assert first.interval.df == 8 * 4
    assert c1([3.0] * 5 + [-9.0] * 5) == first  # what was decided stays decided, though ten seeds would refute it
    assert c1([0.0] * 5 + [9.0] * 4).runs == 10  # seeds in between are not looked at
    second = c1([0.0] * 5 + [3.0] * 5)
    assert (second.verdict, second.runs) == (HOLDS, 20)
    df = 8 * 9
    half = stats.t.ppf(1 - 0.0294 / 2, df)
    assert second.interval is not None
    assert second.by_seed is not None
    assert second.at_once is not None
    ratio = (second.at_once.bounds[1] - second.at_once.effect) / (second.interval.bounds[1] - second.interval.effect)
    assert ratio == pytest.approx(stats.t.ppf(1 - 0.0294 / 4, df) / half)
