import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.smoke import TINY, digits, tiny_job
from torch import Tensor

from dualtemp.data import open_source
from dualtemp.errors import UserError
from dualtemp.grids.plan import PlannedRun, run_id
from dualtemp.grids.results import Job, KnownData, Results, key, make_job, read_data_facts


def saved_set(folder: Path, images: int = 200) -> Path:
    train = open_source("digits").train
    assert isinstance(train.pixels, Tensor)
    assert train.labels is not None
    folder.mkdir(parents=True)
    for name, part in (("train", slice(0, images)), ("test", slice(images, images + 50))):
        np.savez(folder / f"{name}.npz", images=train.pixels[part, 0].numpy(), labels=train.labels[part].numpy())
    return folder


def job_on(data: Path, **changes: object) -> Job:
    values = {**TINY, "data": str(data), **changes}
    return make_job(PlannedRun(run_id(values), values, ()), 1, read_data_facts(str(data)))


def test_a_key_knows_the_datas_content_and_not_its_place(tmp_path: Path) -> None:
    here = saved_set(tmp_path / "a")
    there = Path(shutil.copytree(here, tmp_path / "deep" / "b"))
    assert job_on(here).name == job_on(there).name
    other = saved_set(tmp_path / "c", images=199)
    assert job_on(here).name != job_on(other).name


def test_a_key_knows_the_content_of_a_file_of_labels_and_not_its_place(tmp_path: Path) -> None:
    one, copy = tmp_path / "labels.csv", tmp_path / "copy.csv"
    for path in (one, copy):
        path.write_text("file,label\na.png,cat\nb.png,dog\n")
    before = tiny_job(labels_from=str(one)).name
    assert tiny_job(labels_from=str(copy)).name == before != tiny_job().name
    one.write_text("file,label\na.png,cat\nb.png,cat\n")
    assert tiny_job(labels_from=str(one)).name != before
    one.unlink()
    with pytest.raises(UserError, match=r"labels\.csv: cannot be read \(No such file or directory\)"):
        tiny_job(labels_from=str(one))


def test_every_setting_that_changes_the_run_changes_the_key() -> None:
    plain = tiny_job()
    for name, value in {"tau_beta": 0.5, "epochs": 2, "batch": 32, "lr": 0.1, "recipe": "weak", "subset": 256}.items():
        assert tiny_job(**{name: value}).name != plain.name
    assert tiny_job(seed=2).name != plain.name
    assert key(plain.settings, replace(digits(), normalised_as="svhn")) != key(plain.settings, digits())


def test_runs_from_other_starts_and_of_other_teachers_have_other_keys() -> None:
    rows = [
        {},
        {"init": "runs/a"},
        {"init": "runs/b"},
        {"method": "distil", "teacher": "runs/a"},
        {"method": "distil", "teacher": "runs/b"},
    ]
    assert len({tiny_job(**row).name for row in rows}) == len(rows)
    assert tiny_job(init="none").name == tiny_job().name


def test_a_start_whose_content_is_known_is_in_the_key_by_its_content_alone() -> None:
    a, b, other = (tiny_job(init=word, init_content=content).name for word, content in ("ax", "bx", "ay"))
    assert a == b != other
    assert a != tiny_job().name


def test_defaults_and_their_values_are_the_same_key() -> None:
    plain = tiny_job()
    assert tiny_job(tau_alpha=0.1, tau_beta=1, both_views=False, image_size=8).name == plain.name
    assert tiny_job(method="moco", tau_beta="tied").name == tiny_job(method="moco", tau_beta=0.1).name


def test_a_subset_as_large_as_the_set_is_the_set(tmp_path: Path) -> None:
    folder = saved_set(tmp_path / "a")
    assert job_on(folder, subset=10_000).name == job_on(folder, subset=None).name
    assert job_on(folder, subset=10_000).settings.subset is None


def test_a_result_comes_back_and_names_no_path(tmp_path: Path) -> None:
    results, one = Results(tmp_path / "results"), job_on(saved_set(tmp_path / "some" / "images"))
    assert results.read(one) is None
    results.write(one, {"status": "done", "metrics": {"probe_top1": 50.0, "entropy": float("nan")}})
    found = results.read(one)
    assert found is not None
    assert found["metrics"] == {"probe_top1": 50.0, "entropy": "nan"}
    assert found["settings"]["data"] == "images"
    text = (results.path / f"{one.name}.json").read_text()
    assert str(tmp_path) not in text
    json.loads(text, parse_constant=pytest.fail)  # strict JSON
    (results.path / "resnet-scores.json").write_text("[0.9]")  # somebody else's file is none of our business
    assert Results(results.path).known_data == [KnownData("images", one.facts, 1)]


def test_a_result_names_files_without_their_folders(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,label\n")
    files = {"labels_from": str(tmp_path / "labels.csv"), "init": str(tmp_path / "start.safetensors")}
    results, one = Results(tmp_path / "results"), job_on(saved_set(tmp_path / "images"), **files)
    results.write(one, {"status": "failed", "reason": "none"})
    text = (results.path / f"{one.name}.json").read_text()
    assert str(tmp_path) not in text
    found = json.loads(text)["settings"]
    assert (found["labels_from"], found["init"]) == ("labels.csv", "start.safetensors")


def test_a_result_without_a_measurement_that_is_wanted_is_made_anew(tmp_path: Path) -> None:
    results, asked = Results(tmp_path), {"taus": [0.1]}
    one = tiny_job(method="moco", measured=(("entropy", json.dumps(asked)),))
    results.write(one, {"status": "done", "metrics": {}, "measured": {}})
    assert results.read(one) is None
    results.write(one, {"status": "done", "metrics": {}, "measured": {"entropy": {"asked": asked, "values": {}}}})
    assert results.read(one) is not None


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    results, one = Results(tmp_path), tiny_job()
    (tmp_path / f"{one.name}.json").write_text("{}")
    with pytest.raises(UserError, match="is not a valid result"):
        results.read(one)
