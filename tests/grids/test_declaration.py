from pathlib import Path

import pytest
from pydantic import Field

from dualtemp.errors import UserError
from dualtemp.frameworks import frameworks, registry
from dualtemp.frameworks.simco import SimCo
from dualtemp.grids.claims import judge_claims
from dualtemp.grids.comparisons import HOLDS, UNDECIDED, MeasuredCell
from dualtemp.grids.data_choice import DataChoice
from dualtemp.grids.declaration import Grid, load_grid

GRID = """
title: Two temperatures
data: digits
fixed: {backbone: resnet_mini, epochs: 2, batch: 64}
rows:
  SimCo: {method: simco}
  SimMoCo: {method: simmoco}
columns: {tau_beta: [0.1, 1]}
seeds: [1, 4]
claims:
  two: {says: two beat one, shown_by: [{each: row, beats: [1, 0.1]}]}
"""


def load(folder: Path, text: str) -> Grid:
    (folder / "temperatures.yaml").write_text(text)
    return load_grid(folder / "temperatures.yaml")


def test_a_list_of_values_is_a_column_each_and_cells_join_fixed_row_and_column(tmp_path: Path) -> None:
    grid = load(tmp_path, GRID)
    assert list(grid.artifact.columns) == ["0.1", "1"]
    assert (grid.artifact.column_title, grid.artifact.id, grid.seeds) == ("tau_beta", "temperatures", "1,4,")
    plan = grid.make_plan()
    assert len(plan.runs) == 4
    cell = plan.cells["temperatures"]["SimMoCo", "1"]
    assert cell.settings == {
        "data": "digits",
        "backbone": "resnet_mini",
        "epochs": 2,
        "batch": 64,
        "method": "simmoco",
        "tau_beta": 1,
    }
    assert grid.make_plan(DataChoice(all="cifar10")).cells["temperatures"]["SimCo", "1"].settings["data"] == "cifar10"


def test_names_may_be_numbers_and_numbers_that_differ_have_different_names(tmp_path: Path) -> None:
    grid = load(
        tmp_path,
        "rows: {1: {}, off: {}}\ncolumns: {lr: [0.1, 0.10000001, 1.0]}\n"
        "claims: {2: {shown_by: [{each: column, beats: [1, off]}]}}",
    )
    assert list(grid.artifact.rows) == ["1", "false"]  # as YAML reads `off`
    assert {name: settings["lr"] for name, settings in grid.artifact.columns.items()} == {
        "0.1": 0.1,
        "0.10000001": 0.10000001,
        "1": 1.0,
    }
    assert list(grid.rules.claims) == ["2"]


def test_data_of_a_row_may_lie_beside_the_file_too(tmp_path: Path) -> None:
    for name in ("photos", "scans"):
        (tmp_path / name).mkdir()
    grid = load(tmp_path, "data: photos\nfixed: {method: simco}\nrows: {a: {}, b: {data: scans}, c: {data: digits}}")
    found = {row: cell.settings["data"] for (row, _), cell in grid.make_plan().cells["temperatures"].items()}
    assert found == {"a": str(tmp_path / "photos"), "b": str(tmp_path / "scans"), "c": "digits"}
    chosen = grid.make_plan(DataChoice(named={"scans": "cifar10"})).cells["temperatures"]
    assert chosen["b", ""].settings["data"] == "cifar10"


def test_a_set_is_replaced_by_the_name_that_the_file_gives_it(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for word, name in (("photos", "photos"), ("CIFAR-100", "cifar100")):
        grid = load(tmp_path, f"data: {word}\nrows: {{a: {{}}}}")
        chosen = grid.make_plan(DataChoice.parse([f"{name}=some/folder"]))
        assert chosen.cells["temperatures"]["a", ""].settings["data"] == "some/folder"


def test_a_replacement_of_what_the_grid_does_not_use_is_refused(tmp_path: Path) -> None:
    grid = load(tmp_path, "data: cifar100\nrows: {a: {}, b: {data: digits}}")
    for word, said in (
        ("cifra100=x", "--data cifra100=x: nothing here is measured on 'cifra100': did you mean 'cifar100'?"),
        ("qqq=x", "--data qqq=x: nothing here is measured on 'qqq': choose among cifar100, digits"),
    ):
        with pytest.raises(UserError) as caught:
            grid.make_plan(DataChoice.parse([word]))
        assert str(caught.value) == said


def test_a_folder_with_an_equals_sign_in_its_name_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "lr=0.1" / "photos").mkdir(parents=True)
    folder = str(tmp_path / "lr=0.1" / "photos")
    assert DataChoice.parse([folder]) == DataChoice(folder)
    assert DataChoice.parse(["digits=x=y"]) == DataChoice(None, {"digits": "x=y"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([""], "--data '': an empty name"),
        (["digits="], "--data 'digits=': an empty name"),
        (["digits=a", "DIGITS=b"], "--data DIGITS=b: DIGITS is replaced twice"),
    ],
)
def test_data_that_names_nothing_or_two_things_is_refused_and_never_ignored(words: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        DataChoice.parse(words)
    assert said in str(caught.value)
    assert DataChoice.parse(["digits=a", "digits=a"]) == DataChoice(None, {"digits": "a"})


def test_a_plugins_setting_may_begin_like_a_temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(SimCo):
        class Settings(SimCo.Settings):
            tau_kind: str = Field("fixed", description="Of the temperature.")

    assert "own" not in frameworks()  # which loads all of them first
    monkeypatch.setitem(registry._registry._declared, "own", Own)
    grid = load(tmp_path, "data: digits\nfixed: {method: own}\ncolumns: {tau_kind: [fixed, learned]}")
    assert len(grid.make_plan().runs) == 2


def test_what_is_merged_may_be_given_again(tmp_path: Path) -> None:
    text = "rows: {inner: &inner {<<: &usual {method: simco, lr: 0.1}, lr: 0.2}, outer: {<<: *inner, lr: 0.3}}"
    grid = load(tmp_path, "data: digits\n" + text)
    assert [row["lr"] for row in grid.artifact.rows.values()] == [0.2, 0.3]


def test_claims_may_share_their_comparisons_by_an_alias(tmp_path: Path) -> None:
    grid = load(
        tmp_path,
        "data: digits\nrows: {a: {}, b: {}}\nclaims:\n"
        "  one: {shown_by: &shown [{each: column, beats: [a, b]}]}\n  two: {shown_by: *shown}",
    )
    one, two = (grid.rules.claims[name]["shown_by"] for name in ("one", "two"))
    assert one == two == [{"each": "column", "beats": ["a", "b"], "in": "temperatures"}]


def test_cells_that_compute_the_same_share_one_run(tmp_path: Path) -> None:
    grid = load(tmp_path, "data: digits\nrows: {a: {method: simco}, b: {method: simco, tau_beta: 1.0}}")
    assert len(grid.make_plan().runs) == 1  # 1 is what simco's tau_beta is by default


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "holds no grid"),
        ("{", "is not YAML"),
        ("rows: {a: {}}\nnote: 2024-13-45", "is not YAML (month must be in 1..12)"),
        ("a: " + 5000 * "[", "is not YAML"),
        ("rows:\n  a: {lr: 0.1}\n  b: {}\n  a: {lr: 0.2}", "'a' is given twice, line 4"),
        ("seeds: 3\nrows: {a: {}}\nseeds: 5", "'seeds' is given twice, line 3"),
        ("rows:\n  0.1: {lr: 0.1}\n  0.10: {lr: 0.2}", "'0.10' is given twice, line 3"),
        ("rows:\n  1: {lr: 0.1}\n  '1': {lr: 0.2}", "'1' is the name of two of its rows"),
        ("rows: {tau_alpha: []}", "rows: tau_alpha must be a list of different values"),
        ("rows: {tau_alpha: [0.1, 0.10]}", "rows: tau_alpha must be a list of different values"),
        ("rows: {a: {}}\nseeds: []", "seeds: give how many (3), or which ([1, 2, 5])"),
        ("rows: {a: {}}\nseeds: 0", "seeds: give how many (3), or which ([1, 2, 5])"),
        ("rows: {a: {}}\nseeds: yes", "seeds: give how many (3), or which ([1, 2, 5])"),
        ("rows: {a: {}}\nseeds: [1, no]", "seeds: give how many (3), or which ([1, 2, 5])"),
        ("rows: {a: {}}\nseeds: many", "seeds: give how many (3), or which ([1, 2, 5])"),
        ("rows: {a: {}}\nseeds: 20000", "seeds: give at most 10,000; the one seed 20000 is [20000]"),
        ("title: x", "neither rows nor columns"),
        ("colums: {a: {}}", "no 'colums': did you mean 'columns'"),
        ("rows: {a: 3}", "rows: a must be settings"),
        ("rows: {a: {1: 2}}", "rows, a: 1 is not the name of a setting"),
        ("columns: {a: {true: 2}}", "columns, a: True is not the name of a setting"),
        ("rows: {seed: [1, 2]}", "rows, 1: every cell has the same seeds: write `seeds: [1, 2]` at the top"),
        ("columns: {a: {seed: 1}}", "columns, a: every cell has the same seeds"),
        ("rows: {a: {}}\nfixed: {seed: 1}", "fixed: every cell has the same seeds"),
        ("rows: {a: {}}\nmetric: prob_top1", "no measure is called 'prob_top1'"),
        ("rows: {a: {}}\nvariance: all", "variance"),
        ("rows: {a: {}}\nmargin: -1", "margin"),
        ("rows: {a: {}}\nmargin: yes", "margin: a number is expected, got yes or no"),
        ("rows: {a: {}}\nconfidence: no", "confidence: a number is expected, got yes or no"),
        ("rows: {a: {}}\nlooks: [5, 10]", "looks: give seeds and level, such as {seeds: [5, 10], level: 0.9706}"),
        ("rows: {a: {}}\nlooks: {seeds: [], level: 0.97}", "looks.seeds"),
        ("rows: {a: {}}\nlooks: {seeds: [5, 10], level: 97}", "looks.level"),
        ("rows: {a: {}, b: {}}\nclaims: {c: no}", "claim c: give `says`"),
        ("rows: {a: {}, b: {}}\nclaims: {c: {shown_by: [{each: column, tops: [a, b]}]}}", "one of beats"),
        ("rows: {a: {}, b: {}}\nclaims: {c: {shown_by: [{each: column, beats: [a, x]}]}}", "there is no 'x'"),
        ("rows: {a: {}, b: {}}\nclaims: {c: {shown_by: [{each: column, beats: [a]}]}}", "at least two"),
        ("rows: {a: {}, b: {}}\nclaims: {c: {shown_by: [{each: column, beats: [a, a]}]}}", "each named once"),
        ("rows: {a: {}, b: {}}\nclaims: {c: {shown_by: [{each: column, rises: [a, b, a]}]}}", "each named once"),
        (
            "rows: {a: {}, b: {}}\nclaims: {c: {shown_by: [{each: row, beats: [a, b]}]}}",
            "compares columns, and",
        ),
        (
            "rows: {a: {}, b: {}}\nclaims: {c: {shown_by: [{each: column, beats: [a, b], of: x}]}}",
            "claim c: the grid has no columns: leave of out",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "temperatures.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows: {a: {}}", "names no data"),
        ("rows: {a: {}}\nfixed: {data: [digits, cifar10]}", "cell a: data must be a word, got ['digits', 'cifar10']"),
        ("rows: {a: {data: {digits: 1}}}", "cell a: data must be a word, got {'digits': 1}"),
        ("data: digits\nrows: {a: {tau_alhpa: 1}}", "cell a: no setting is called 'tau_alhpa'"),
        ("data: digits\nrows: {a: {method: simco}}\ncolumns: {epochs: [-1]}", "cell a, -1: "),
    ],
)
def test_a_mistake_in_a_cell_names_the_cell(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text).make_plan()
    assert said in str(caught.value)


@pytest.mark.parametrize("order", ["5, 10", "10, 5"])
def test_claims_are_judged_at_the_declared_looks_alone(order: str, tmp_path: Path) -> None:
    """Three clear seeds decide nothing where five were declared; what five decide, ten do not take back."""
    grid = load(
        tmp_path,
        f"data: digits\nrows: {{a: {{}}, b: {{}}}}\nlooks: {{seeds: [{order}], level: 0.9706}}\n"
        "claims: {c: {says: a is better, shown_by: [{each: column, beats: [a, b]}]}}",
    )

    def verdict(seeds: int, later: float = 0.0) -> str:
        values = {seed: float(seed % 3) / 10 for seed in range(1, seeds + 1)}
        better = {seed: value + (5 if seed <= 5 else later) for seed, value in values.items()}
        table = {("a", ""): MeasuredCell(better), ("b", ""): MeasuredCell(values)}
        return judge_claims(grid.rules, {"temperatures": table})[0].verdict

    assert [verdict(3), verdict(5), verdict(10, later=-50.0)] == [UNDECIDED, HOLDS, HOLDS]


def test_the_name_of_a_set_is_the_set_in_any_spelling_and_beside_a_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    for word, expected in (("digits", "digits"), ("CIFAR-10", "cifar10"), ("./digits", str(tmp_path / "digits"))):
        (run,) = load(tmp_path, f"data: {word}\nrows: {{a: {{}}}}").make_plan().runs.values()
        assert run.settings["data"] == expected


def test_a_claim_of_rises_alone_says_that_it_is_judged_within_seeds(tmp_path: Path) -> None:
    text = "data: digits\ncolumns: {tau_beta: [0.1, 1]}\nclaims: {up: {shown_by: [{each: row, rises: [0.1, 1]}]}}"
    (verdict,) = judge_claims(load(tmp_path, text).rules, {})
    assert list(verdict.pools.values()) == ["not pooled, seed by seed (a rise is measured within seeds)"]
