import re
from importlib.resources import files
from pathlib import Path

import pytest

from dualtemp.cli import main
from dualtemp.commands.paper_arguments import SCALES as IN_HELP
from dualtemp.config import complete, settings
from dualtemp.errors import UserError
from dualtemp.grids.data_choice import DataChoice
from dualtemp.grids.declaration import load_grid
from dualtemp.paper.artifact import artifacts, read_yaml, select_artifacts
from dualtemp.paper.plan import Plan, plan
from dualtemp.paper.reproduce import Request
from dualtemp.paper.scale import load_scale

SCALES = ("paper", "unequal", "mini", "long", "sharp", "smoke")


def planned(scale: str, *ids: str, data: DataChoice = DataChoice()) -> Plan:  # noqa: B008
    return plan(select_artifacts(ids or ("all",)), load_scale(scale), data)


def run(found: Plan, id: str, row: str, column: str) -> str:
    word = found.cells[id][row, column].run
    assert word is not None
    return word


def test_every_file_is_an_artifact_under_its_own_name() -> None:
    names = {f.name.removesuffix(".yaml") for f in files("dualtemp.paper").joinpath("artifacts").iterdir()}
    assert names == {a.id for a in artifacts().values()} == set(artifacts())


def test_artifacts_are_listed_in_the_order_of_the_documentation_and_no_two_share_a_place() -> None:
    text = (Path(__file__).parents[2] / "docs" / "paper.md").read_text().split("## Scales")[0]
    assert list(artifacts()) == re.findall(r"^\| ([FTS]-[a-z-]+) \|", text, re.MULTILINE)
    assert len({a.order for a in artifacts().values()}) == len(artifacts()) == 17


def test_published_values_fill_their_tables() -> None:
    for artifact in artifacts().values():
        assert set(artifact.paper) <= set(artifact.rows)
        assert all(len(row) == len(artifact.columns) for row in artifact.paper.values())
    cells = {(c.artifact, c.row, c.column): c.paper for a in artifacts().values() for c in a.cells}
    # A few, as the paper prints them.
    assert cells["T-vec-sampling", "MoCo v2", "random"] == 44.03
    assert cells["T-tau-beta", "current", "0.5"] == 54.45
    assert cells["T-reverse", "SimMoCo", "DT reverse 1, .1"] == 31.28
    assert cells["T-batch", "SimMoCo", "1024"] == 49.70
    assert cells["T-arch", "SimCo", "Swin tiny"] == 42.64
    assert cells["T-data", "SimMoCo+", "SVHN"] == 44.74
    assert cells["T-unified", "SimSiam", "on"] == 39.18
    assert cells["S-noise", "CE(DT)", "asymmetric .6"] == 59.53
    assert cells["S-noise", "CE", "clean"] is None


@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_is_settings_that_train_accepts(scale: str) -> None:
    found = planned(scale)
    assert all(settings({**run.settings, "seed": 1}) for run in found.runs.values())
    with_runs = {id for id, table in found.cells.items() if any(cell.run for cell in table.values())}
    assert with_runs == set(artifacts()) - {"F-frameworks"}


@pytest.mark.parametrize("scale", SCALES)
def test_equal_cells_of_different_tables_are_one_run(scale: str) -> None:
    found = planned(scale)
    dual = run(found, "T-reverse", "SimMoCo", "DT .1, 1")
    assert dual == run(found, "T-tau-beta", "current", "1")
    assert dual == run(found, "T-unified", "SimMoCo", "off") == run(found, "T-tau-alpha", "SimMoCo", "0.1")
    assert dual == run(found, "T-batch", "SimMoCo", "256") == run(found, "T-epochs", "SimMoCo", "200")
    assert run(found, "T-reverse", "SimCo", "ST .1") == run(found, "T-unified", "SimCo", "on")
    assert run(found, "T-reverse", "SimMoCo", "ST 1") == run(found, "T-tau-alpha", "SimMoCo", "1")
    moco = run(found, "F-dict", "scalar", "65536")
    assert moco == run(found, "F-dict", "vector", "65536") == run(found, "S-dict", "MoCo v2", "65536")
    assert moco == run(found, "F-entropy", "0.5", "64") == run(found, "F-teaser", "MoCo v2", "batch")
    assert run(found, "F-dict", "vector", "256") == run(found, "T-vec-sampling", "MoCo v2", "newest")
    assert run(found, "F-dict", "scalar", "4096") == run(found, "S-scalar-sampling", "MoCo v2", "newest")
    assert run(found, "T-tau-beta", "last", "1") != run(found, "T-tau-beta", "current", "1")


def test_the_papers_scale_is_the_published_recipe() -> None:
    found = planned("paper")
    for word in (run(found, "T-reverse", "SimCo", "DT .1, 1"), run(found, "F-dict", "scalar", "65536")):
        chosen = complete(found.runs[word].with_seed(1), image_size=32)
        assert (chosen.data, chosen.backbone, chosen.epochs, chosen.batch) == ("cifar100", "paper_resnet18", 200, 256)
        assert (chosen.lr, chosen.warmup_epochs, chosen.subset) == (0.03, 10, None)
    noise = found.runs[run(found, "S-noise", "CE(DT)", "symmetric .4")].with_seed(1)
    assert (noise.data, noise.epochs, noise.batch, noise.options.tau_beta) == ("cifar10", 120, 128, float("inf"))


def test_networks_are_the_authors_at_the_papers_scale_alone() -> None:
    columns = {"ResNet-50": "resnet50", "ViT tiny": "vit_tiny", "Swin tiny": "swin_tiny", "ResNet-18": "resnet18"}
    table = planned("paper", "T-arch").cells["T-arch"]
    assert {place[1] for place in table} == set(columns)
    for (_, column), cell in table.items():
        assert cell.settings["backbone"] == f"paper_{columns[column]}"
    for scale in SCALES[1:]:
        assert {run.settings["backbone"] for run in planned(scale).runs.values()} == {"resnet_mini"}


def test_the_mini_scale_keeps_the_papers_ratios() -> None:
    paper, mini = planned("paper"), planned("mini")
    for id in ("F-dict", "S-dict", "T-vec-sampling", "S-scalar-sampling", "T-batch", "T-epochs"):
        for place in paper.cells[id]:
            published, here = (found.cells[id][place].settings for found in (paper, mini))
            for name in ("vector_size", "scalar_size", "dictionary_size"):
                assert (name in published) == (name in here)
                if name in published:
                    assert here[name] / 64 == published[name] / 256  # in batches
            assert here["batch"] / 64 == published["batch"] / 256
            assert here["epochs"] / 20 == published["epochs"] / 200
    largest = mini.runs[run(mini, "F-dict", "scalar", "65536")].settings
    assert (largest["dictionary_size"], largest["batch"], largest["subset"]) == (16384, 64, 10000)


def test_the_unequal_scale_is_mini_with_larger_crops_and_more_epochs() -> None:
    mini, unequal = planned("mini"), planned("unequal")
    for id, table in mini.cells.items():
        for place, cell in table.items():
            if cell.run is None:
                continue
            here = {name: value for name, value in cell.settings.items() if name != "computation"}
            factor, changed = 3, {"recipe": "paper_large_crops", "warmup_epochs": 3}
            if cell.settings["method"] == "supervised":
                factor, changed = 2, {"lr": 0.02}
            assert unequal.cells[id][place].settings == {**here, **changed, "epochs": factor * here["epochs"]}


def test_retired_scales_are_read_but_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ["--results", str(tmp_path)]
    for scale in ("long", "sharp"):
        assert main(["reproduce", "T-reverse", "--scale", scale, *results]) == 2
        assert f"scale {scale} is retired" in capsys.readouterr().err
        assert main(["paper", "T-reverse", "--scale", scale, *results]) == 0
        capsys.readouterr()


def test_the_long_scale_is_mini_with_more_epochs() -> None:
    mini, long = planned("mini"), planned("long")
    for id, table in mini.cells.items():
        for place, cell in table.items():
            if cell.run is None:
                continue
            supervised = cell.settings["method"] == "supervised"
            other = {"lr": 0.02} if supervised else {"warmup_epochs": 3}
            longer = {**cell.settings, "epochs": (2 if supervised else 3) * cell.settings["epochs"], **other}
            assert long.cells[id][place].settings == longer


def test_the_sharp_scale_is_mini_but_for_the_weight_of_byol_and_simsiam() -> None:
    mini, sharp = planned("mini"), planned("sharp")
    for id, table in mini.cells.items():
        for place, cell in table.items():
            weighed = {"tau_weight": 0.01} if cell.settings.get("method") in ("byol", "simsiam") else {}
            assert sharp.cells[id][place].settings == {**cell.settings, **weighed}


def test_what_makes_no_sense_at_a_scale_is_said_and_never_replaced() -> None:
    found = planned("mini")
    assert found.cells["T-arch"]["SimCo", "ViT tiny"].absent == "backbone vit_tiny is not at this scale"
    assert found.cells["T-arch"]["SimCo", "ViT tiny"].run is None
    assert found.cells["T-data"]["SimCo", "ImageNet100"].absent == "data imagenet100 is not at this scale"
    assert found.cells["T-data"]["SimCo", "CIFAR100"].settings["data"] == "cifar100"


def test_no_scale_sets_what_an_artifact_varies() -> None:
    for name in SCALES:
        scale = load_scale(name)
        for artifact in artifacts().values():
            varied = set[str]().union(*(part for part in (*artifact.rows.values(), *artifact.columns.values())))
            for cell in artifact.cells:
                _, fixed = scale.of_method(cell.settings["method"])
                assert not set(fixed) & varied


def test_another_set_replaces_the_scales_but_not_those_that_are_compared() -> None:
    found = planned("mini", data=DataChoice.parse(["digits", "cifar100=some/folder"]))
    assert found.cells["T-reverse"]["SimCo", "ST 1"].settings["data"] == "digits"
    assert found.cells["S-noise"]["CE", "clean"].settings["data"] == "digits"
    assert found.cells["T-data"]["SimCo", "CIFAR10"].settings["data"] == "cifar10"
    assert found.cells["T-data"]["SimCo", "CIFAR100"].settings["data"] == "some/folder"
    with pytest.raises(UserError, match="one set for all"):
        DataChoice.parse(["digits", "svhn"])


def test_a_replacement_of_a_set_that_the_paper_does_not_have_is_refused() -> None:
    Request(["T-reverse"], data=["cifar100=some/folder"]).make_plan()  # of another table: one command for all of them
    with pytest.raises(UserError, match=r"--data cifar1000=x: .* did you mean 'cifar100'\?"):
        Request(["T-reverse"], data=["cifar1000=x"]).make_plan()


def test_tau_beta_stays_when_tau_alpha_is_swept_except_in_moco() -> None:
    found = planned("paper", "T-tau-alpha")
    for row, column in found.cells["T-tau-alpha"]:
        chosen = found.runs[run(found, "T-tau-alpha", row, column)].with_seed(1)
        assert chosen.options.tau_beta == ("tied" if row == "MoCo v2" else 1.0)


def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean T-reverse"):
        select_artifacts(["T-revers"])
    with pytest.raises(UserError, match="choose among paper, mini, unequal, smoke"):
        load_scale("tiny")


def test_only_runs_that_a_figure_looks_into_are_measured() -> None:
    found = planned("smoke")
    measured = [run for run in found.runs.values() if run.measured]
    assert [run.id for run in measured] == [run(found, "F-entropy", "0.1", "64")]
    assert [name for name, _ in measured[0].measured] == ["entropy", "similarity", "teaser"]
    alone = planned("smoke", "S-dict")  # measured for the other figures too, so that they need no second run
    assert [name for r in alone.runs.values() for name, _ in r.measured] == ["entropy", "similarity", "teaser"]


def test_scales_say_what_they_are_for() -> None:
    assert all(scale["about"] for scale in read_yaml("scales.yaml").values())
    scales = read_yaml("scales.yaml")
    assert set(scales) == set(SCALES)
    assert set(re.split(", | or ", IN_HELP)) == {name for name, scale in scales.items() if "retired" not in scale}


def test_the_grid_of_the_same_step_shares_its_runs_with_the_papers_table() -> None:
    path = Path(__file__).parents[2] / "docs" / "results" / "unequal" / "same-step.yaml"
    grid = load_grid(path).make_plan().cells[path.stem]
    table = planned("unequal", "T-reverse").cells["T-reverse"]
    for row in ("SimMoCo", "SimCo"):
        for here, there in (("one", "ST .1"), ("two", "DT .1, 1")):
            assert grid[row, here].run == table[row, there].run
        assert grid[row, "two, same step"].run not in {cell.run for cell in table.values()}
