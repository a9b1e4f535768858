import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from grids.test_results import saved_set
from made_runs import made_run
from paper.smoke import DIVERGING, TINY, digits, tiny_job

from dualtemp.data.images import ImagesGone
from dualtemp.errors import Unreachable, UserError, writing
from dualtemp.file_lock import locked
from dualtemp.grids.plan import PlannedRun, run_id
from dualtemp.grids.results import Job, Results, make_job, read_data_facts
from dualtemp.grids.worker import BUSY, make_result, perform
from dualtemp.runs.folder import RunFolder
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.start import start


class Silent:
    """A watch that ends the run after some steps, if told to."""

    def __init__(self, steps: int | None = None) -> None:
        self.left = steps

    def begin(self, *_: object) -> None: ...

    def step(self, *_: object) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt

    def epoch(self, *_: object) -> None: ...

    def note(self, *_: object) -> None: ...

    def close(self) -> None: ...


def done(results: Results, job: Job, **how: object) -> tuple[str, str]:
    return perform(job, results, "cpu", 1, Silent(), **how)  # pyright: ignore


def test_a_run_becomes_one_result_and_leaves_no_folder(tmp_path: Path) -> None:
    results, job = Results(tmp_path / "r"), tiny_job()
    assert done(results, job) == ("done", "")
    found = results.read(job)
    assert found is not None
    observer: Any = Silent()
    options = ExecutionOptions(device="cpu", threads=1, quiet=True)
    expected = start(job.settings, tmp_path / "same", options, observer)
    assert found["metrics"]["probe_top1"] == expected["probe_top1"]
    assert found["versions"]["torch"]
    assert list(results.runs.iterdir()) == []
    assert done(results, tiny_job(seed=2), keep=True)[0] == "done"
    assert (results.run_folder(tiny_job(seed=2)) / "metrics.jsonl").is_file()


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path: Path) -> None:
    results, job = Results(tmp_path), tiny_job()
    results.runs.mkdir(parents=True)
    with locked(results.runs / f".{job.name}.lock"):
        assert done(results, job) == (BUSY, "")
    assert not results.run_folder(job).exists()


def test_a_result_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    results, job = Results(tmp_path), tiny_job()
    results.write(job, {"status": "collapsed", "metrics": {"probe_top1": 10.0}})
    assert done(results, job) == ("collapsed", "")
    assert not results.run_folder(job).exists()


def test_a_loss_that_is_not_finite_is_a_result(tmp_path: Path) -> None:
    results, job = Results(tmp_path), tiny_job(**DIVERGING)
    status, reason = done(results, job)
    assert status == "failed"
    assert "not finite" in reason
    assert results.read(job) is not None


def test_a_cell_with_a_start_and_no_backbone_takes_that_of_the_start(tmp_path: Path) -> None:
    results, first = Results(tmp_path), tiny_job()
    done(results, first, keep=True)
    values = {name: value for name, value in TINY.items() if name != "backbone"}
    values["init"] = str(results.run_folder(first))
    job = make_job(PlannedRun(run_id(values), values, ()), 1, digits())
    assert done(results, job, keep=True) == ("done", "")
    assert RunFolder(results.run_folder(job)).settings().backbone == TINY["backbone"]
    found = results.read(job)
    assert found is not None
    assert "backbone" not in found["settings"], "resnet18, the default, would not be true"


def test_what_an_interruption_left_is_gone_on_with(tmp_path: Path) -> None:
    whole, cut = Results(tmp_path / "whole"), Results(tmp_path / "cut")
    job = tiny_job(epochs=2)
    done(whole, job)
    with pytest.raises(KeyboardInterrupt):
        perform(job, cut, "cpu", 1, Silent(steps=3))  # in the second epoch of two steps
    assert len((cut.run_folder(job) / "metrics.jsonl").read_text().splitlines()) == 1
    assert cut.read(job) is None
    assert done(cut, job)[0] == "done"
    found, expected = cut.read(job), whole.read(job)
    assert found is not None
    assert expected is not None
    assert found["losses"] == expected["losses"]
    assert found["metrics"]["probe_top1"] == expected["metrics"]["probe_top1"]


def test_what_cannot_be_gone_on_with_is_begun_anew(tmp_path: Path) -> None:
    results, job = Results(tmp_path), tiny_job()
    folder = results.run_folder(job)
    done(results, job, keep=True)
    (results.path / f"{job.name}.json").unlink()
    for file in (folder / "checkpoints").iterdir():
        file.write_bytes(b"damaged")
    assert done(results, job)[0] == "done"
    assert not folder.exists()


def test_measurements_are_made_when_the_run_ends(tmp_path: Path) -> None:
    asked = {"sizes": [8, 64, 4096], "taus": [0.1, 1.0]}
    job = tiny_job(method="moco", dictionary_size=128, measured=(("entropy", json.dumps(asked)),))
    results = Results(tmp_path)
    assert done(results, job)[0] == "done"
    found = results.read(job)
    assert found is not None
    curves = found["measured"]["entropy"]["values"]
    assert curves["0.1"]["4096"] is None  # the dictionary has 128 keys
    assert 0 < curves["0.1"]["8"] < curves["1"]["8"] < curves["1"]["64"]
    shutil.rmtree(tmp_path)


def test_a_disk_that_cannot_be_written_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"results folder .* cannot be written"):
        done(Results(tmp_path / "file" / "results"), tiny_job())
    results = Results(tmp_path / "results")

    class Full(Silent):
        def epoch(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"No space left on device.*repeat the same command"):
        perform(tiny_job(), results, "cpu", 1, Full())
    assert results.read(tiny_job()) is None


def begun(tmp_path: Path, data: str = "digits") -> tuple[Results, Job]:
    """Return a job that was interrupted in its second epoch of two steps."""
    results = Results(tmp_path / "results")
    values = {**TINY, "data": data, "epochs": 2}
    job = make_job(PlannedRun(run_id(values), values, ()), 1, read_data_facts(data))
    with pytest.raises(KeyboardInterrupt):
        perform(job, results, "cpu", 1, Silent(steps=3))
    return results, job


def is_kept(results: Results, job: Job) -> bool:
    return results.read(job) is None and any((results.run_folder(job) / "checkpoints").iterdir())


class Ends(Silent):
    """A watch that ends the run with an error, in its first step."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def step(self, *_: object) -> None:
        with writing("the run", "make room"):  # as the trainer does where it writes
            raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), r"No space left on device.*repeat the same command"),
        (ImagesGone("photos is gone: put it back"), r"photos is gone: put it back; then repeat the same command"),
    ],
)
def test_a_resumed_run_keeps_what_it_has_learned_if_the_trouble_is_not_its_own(
    tmp_path: Path, error: Exception, said: str
) -> None:
    results, job = begun(tmp_path)
    with pytest.raises(UserError, match=said):
        perform(job, results, "cpu", 1, Ends(error))
    assert is_kept(results, job)
    assert done(results, job)[0] == "done"


def test_a_run_that_somebody_resumes_by_hand_is_left_to_them(tmp_path: Path) -> None:
    results, job = begun(tmp_path)
    with RunFolder(results.run_folder(job)).reopen():
        assert done(results, job) == (BUSY, "")
    assert is_kept(results, job)


def test_a_run_whose_folder_of_images_is_away_is_no_result_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    images, away = saved_set(tmp_path / "images"), tmp_path / "away"
    results, job = begun(tmp_path, str(images))
    images.rename(away)
    with pytest.raises(UserError, match=r"images is gone: put it back; then repeat the same command"):
        done(results, job)
    assert is_kept(results, job)
    away.rename(images)
    assert done(results, job)[0] == "done"


def test_a_hub_that_does_not_answer_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(*_: object) -> None:
        raise Unreachable("timm:resnet18: the hub does not answer: connect to the network")

    monkeypatch.setattr("dualtemp.training.start.start", unanswered)
    results, job = Results(tmp_path), tiny_job()
    with pytest.raises(UserError, match="connect to the network; then repeat the same command"):
        done(results, job)
    assert results.read(job) is None


@pytest.mark.parametrize("kept", [True, False], ids=["an earlier epoch", "its start"])
def test_a_run_that_stopped_itself_is_filed_with_the_encoder_that_it_kept(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = {
        "loss": 3.0,
        "probe_top1": 80.0,
        "knn_top1": 81.0,
        "held_out_gained": 3,
        "held_out_lost": 1,
        "stopped": False,
    }
    fallen = {"loss": 2.0, "probe_top1": 40.0, "knn_top1": 41.0, "held_out_gained": 0, "held_out_lost": 60}
    fallen |= {"stopped": True, "collapsed": True, "seconds": 9.0, "start_knn_top1": 70.0}

    def trained(_: object, folder: Path, *__: object) -> dict[str, Any]:
        made_run(folder, [fine, fallen] if kept else [fallen], init="imagenet", stop_below_start=True)
        return fallen

    monkeypatch.setattr("dualtemp.training.start.start", trained)
    result = make_result(tiny_job(), tmp_path / "run", "cpu", 1, Silent())
    assert (result["status"], result["seconds"], result["losses"][-1]) == ("done", 9.0, 2.0)
    figures = {key: result["metrics"].get(key) for key in ("probe_top1", "knn_top1")}
    assert figures == ({"probe_top1": 80.0, "knn_top1": 81.0} if kept else {"probe_top1": None, "knn_top1": 70.0})
