"""Runs that distil a teacher: what it sees, what is kept of it, and what is refused."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from command_processes import Commands, kill_where_it_halts, signal_where_it_halts
from local_starts import INPUT, timm_folder, timm_network, write_timm_folder
from PIL import Image
from run_contents import different, everything
from trained_encoders import photos

from dualtemp.api import embed, export, resume, train
from dualtemp.data import open_source
from dualtemp.errors import UserError
from dualtemp.grids.results import DataFacts, key
from dualtemp.models.starts import open_start
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.work_file import WorkFile
from dualtemp.training.teacher import _computed, open_teacher

__all__ = ["photos", "timm_folder"]  # fixtures

QUIET: dict[str, Any] = {"device": "cpu", "workers": 0, "threads": 1, "quiet": True, "page": False}
SMALL: dict[str, Any] = {**QUIET, "method": "distil", "backbone": "resnet_mini", "batch": 8, "image_size": 32}


def kept_features(run: Path, about: dict[str, Any]) -> np.ndarray:
    """Features (N, F) in the order of the images, as teacher.features has them."""
    work = WorkFile(run / "teacher.features", about)
    records = list(work.records())
    work.close()
    assert not work.anew
    index = np.concatenate([record.index for record in records])
    assert (index == np.arange(len(index))).all()
    return np.concatenate([record.features for record in records])


def about(run: Path, images: int, batch: int = 64) -> dict[str, Any]:
    return {"teacher": RunFolder(run).settings().get("teacher_content"), "images": images, "batch": batch}


@pytest.fixture(scope="module")
def distilled(photos: Path, timm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs; not to be written into."""
    path = tmp_path_factory.mktemp("runs") / "distilled"
    train(data=str(photos), teacher=str(timm_folder), out=path, epochs=2, **SMALL)
    return path


def test_the_teacher_sees_every_image_at_its_own_size_and_with_its_own_constants(distilled: Path, photos: Path) -> None:
    from torchvision.transforms import v2

    files = open_source(str(photos)).train.source
    prepare = v2.Compose([v2.Resize(100, v2.InterpolationMode.BILINEAR, antialias=True), v2.CenterCrop(96)])
    mean, std = (torch.tensor(INPUT[name]).view(3, 1, 1) for name in ("mean", "std"))
    pixels = [torch.from_numpy(np.array(Image.open(files.path(i) or "").convert("RGB"))) for i in range(len(files))]
    images = torch.stack([(prepare(each.permute(2, 0, 1)) / 255 - mean) / std for each in pixels])
    with torch.no_grad():
        network: Any = timm_network()
        network.reset_classifier(0)
        expected = network(images)
    found = kept_features(distilled, about(distilled, len(files)))
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_the_content_of_the_teacher_and_not_its_place_is_in_config_and_key(distilled: Path, timm_folder: Path) -> None:
    config = yaml.safe_load((distilled / "config.yaml").read_text())
    assert config["teacher_content"] == open_start(str(timm_folder)).content
    chosen, facts = RunFolder(distilled).settings(), DataFacts("0", 32, 10)
    assert key(chosen.model_copy(update={"teacher": "/elsewhere"}), facts) == key(chosen, facts)
    assert key(chosen.model_copy(update={"teacher_content": "other"}), facts) != key(chosen, facts)


def test_a_student_learns_the_similarities_of_its_teacher(tmp_path: Path) -> None:
    teacher, student = tmp_path / "teacher", tmp_path / "student"
    few: dict[str, Any] = {**QUIET, "data": "digits", "subset": 256, "batch": 32, "backbone": "resnet_mini", "lr": 0.2}
    train(**few, method="supervised", epochs=4, out=teacher, recipe="weak")
    train(**few, method="distil", epochs=6, teacher=str(teacher), out=student, recipe="weak")
    losses = [line["loss"] for line in RunFolder(student).history()]
    assert losses[-1] < 0.8 * losses[0]
    rows = [_features(run, tmp_path) for run in (teacher, student)]
    centered = [each - each.mean(0) for each in rows]
    cosines = [np.corrcoef(each)[np.triu_indices(len(each), 1)] for each in centered]
    assert np.corrcoef(*cosines)[0, 1] > 0.5, "on images that neither has learned from"


def _features(run: Path, folder: Path) -> np.ndarray:
    out = embed(run, data="digits", part="test", out=folder / f"{run.name}.npz", device="cpu").path
    return np.load(out)["features"][:200]


HALT = """
import os, signal
from dualtemp.runs.work_file import WorkFile
import dualtemp.training.teacher as teacher
teacher.BATCH = 8
append, seen = WorkFile.append, []
def halt(self, record):
    append(self, record)
    seen.append(record)
    if len(seen) == {when}:
        os.kill(os.getpid(), signal.SIGSTOP)
WorkFile.append = halt
"""


@pytest.mark.slow
def test_a_run_that_is_killed_while_its_teacher_looks_ends_with_the_same_bits(
    photos: Path, timm_folder: Path, commands: Commands, tmp_path: Path
) -> None:
    words = ["--data", photos, "--method", "distil", "--backbone", "resnet_mini", "--batch", "8", "--image-size", "32"]
    words += ["--epochs", "1", "--workers", "0", "--teacher"]
    run, reference, teacher = tmp_path / "run", tmp_path / "reference", tmp_path / "teacher"
    shutil.copytree(timm_folder, teacher)
    kill_where_it_halts(commands.start("train", *words, teacher, "--out", run, first=HALT.format(when=2)))
    whole = (run / "teacher.features").read_bytes()
    with open(run / "teacher.features", "r+b") as file:  # as if it had been killed while it wrote
        os.ftruncate(file.fileno(), len(whole) - 7)
    gone = teacher.rename(tmp_path / "gone")
    refused = commands.run("resume", run, "--workers", "0", first=HALT.format(when=99))
    assert refused.code == 2
    assert refused.err == f"dualtemp: --teacher {teacher}: neither a network nor a run; give {WORDS}\n"
    gone.rename(teacher)
    assert commands.run("resume", run, "--workers", "0", first=HALT.format(when=99)).code == 0
    done = commands.run("train", *words, timm_folder, "--out", reference, first=HALT.format(when=99))
    assert done.code == 0, done.err
    assert different(everything(run), everything(reference)) == [".settings.teacher"]
    assert (run / "teacher.features").read_bytes() == (reference / "teacher.features").read_bytes()


@pytest.mark.slow
def test_a_job_that_is_asked_to_end_after_its_teachers_last_batch_is_requeued_and_goes_on(
    photos: Path, timm_folder: Path, commands: Commands, tmp_path: Path
) -> None:
    asked, run = tmp_path / "asked", tmp_path / "run"
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (tmp_path / "scontrol").chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    words = ["train", "--data", photos, "--method", "distil", "--backbone", "resnet_mini", "--batch", "8"]
    words += ["--image-size", "32", "--epochs", "1", "--workers", "0", "--teacher", timm_folder, "--out", run]
    last = -(-len(open_source(str(photos)).train) // 8)
    running = commands.start(*words, env=job, first=HALT.format(when=last))
    signal_where_it_halts(running, signal.SIGUSR1)
    ended = running.wait()
    assert ended.code == 130
    assert "what the teacher has seen is saved" in ended.err
    assert "job 7 is requeued" in ended.err
    assert asked.read_text() == "requeue 7\n"
    ended = commands.run(*words, env={**job, "SLURM_RESTART_COUNT": "1"}, first=HALT.format(when=99))
    assert ended.code == 0, ended.err
    assert len(RunFolder(run).history()) == 1


def test_nothing_is_left_for_a_teacher_that_has_seen_all_images(distilled: Path, photos: Path) -> None:
    images = open_source(str(photos)).train
    teacher = open_teacher(RunFolder(distilled).settings(), torch.device("cpu"))
    (end,) = _computed(teacher, images, 64, 0)
    assert end.index.shape == (0,)


WORDS = "imagenet, timm:NAME, a folder of timm, a run or FILE.onnx"


def test_a_run_goes_on_without_its_teacher_and_with_the_same_targets(
    distilled: Path, photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    teacher, run = shutil.copytree(timm_folder, tmp_path / "teacher"), tmp_path / "run"
    train(data=str(photos), teacher=str(teacher), out=run, epochs=1, warmup_epochs=0.2, **SMALL)
    shutil.rmtree(teacher)
    resume(run, epochs=2, **QUIET)
    found, wanted = ([line["loss"] for line in RunFolder(each).history()] for each in (run, distilled))
    assert found == pytest.approx(wanted, rel=0.2)  # another schedule, the same images and targets
    assert (run / "teacher.features").read_bytes() == (distilled / "teacher.features").read_bytes()


@pytest.mark.slow
def test_a_teacher_in_an_onnx_file_is_the_run_that_was_exported(photos: Path, distilled: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    graph = export(distilled, "onnx", tmp_path / "export") / "model.onnx"
    runs = [tmp_path / "of_onnx", tmp_path / "of_run"]
    for run, teacher in zip(runs, (graph, distilled), strict=True):
        train(data=str(photos), teacher=str(teacher), out=run, epochs=1, **SMALL)
    images = len(open_source(str(photos)).train)
    one, other = (kept_features(run, about(run, images)) for run in runs)
    np.testing.assert_allclose(one, other, atol=1e-4)
    (graph.parent / "preprocessing.json").unlink()
    with pytest.raises(UserError, match=r"its input .* is not known: put preprocessing\.json"):
        train(data=str(photos), teacher=str(graph), out=tmp_path / "none", **SMALL)
    graph.write_bytes(b"no graph")
    (graph.parent / "preprocessing.json").write_text("{}")
    with pytest.raises(UserError, match="onnxruntime cannot open it"):
        train(data=str(photos), teacher=str(graph), out=tmp_path / "none", **SMALL)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("teacher", "said"),
    [
        (None, "distil needs a teacher: give --teacher, imagenet"),
        ("nowhere", "--teacher nowhere: neither a network nor a run"),
        ("nowhere.onnx", "nowhere.onnx: no such file; give an ONNX file"),
        ("timm:resnet19", "timm has no network called 'resnet19': did you mean"),
    ],
)
def test_a_teacher_that_cannot_be_had_is_refused_before_anything_is_written(
    teacher: str | None, said: str, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        train(data=str(photos), teacher=teacher, out=tmp_path / "run", **SMALL)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_another_teacher_than_the_settings_say_and_images_of_other_channels_are_refused(
    photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    other = write_timm_folder(tmp_path / "other", seed=2)
    content = open_start(str(timm_folder)).content
    with pytest.raises(UserError, match=f"has other content .* than teacher_content says .{content}"):
        train(data=str(photos), teacher=str(other), teacher_content=content, out=tmp_path / "run", **SMALL)
    four = tmp_path / "four.npz"
    np.savez(four, images=np.random.default_rng(0).integers(0, 255, (40, 16, 16, 4), dtype=np.uint8))
    with pytest.raises(UserError, match=r"has images of 4 channels, the encoder of .* takes 3"):
        train(data=str(four), teacher=str(timm_folder), out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
