"""TensorBoard and Weights & Biases get the scalars of metrics.jsonl, each epoch once; read with their own readers."""

import json
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import dualtemp
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder
from dualtemp.training.observers.observer import scalars

RUN = {"data": "digits", "backbone": "resnet_mini", "batch": 64, "subset": 128, "knn_images": 128, "quiet": True}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs with both logs, killed in thought after the log and before the checkpoint, that went on."""
    torch.set_num_threads(1)
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    path, before = tmp_path_factory.mktemp("logs") / "run", pytest.MonkeyPatch()
    before.setenv("WANDB_MODE", "offline")
    before.setenv("WANDB_SILENT", "true")
    logs = ("tensorboard", "wandb")
    try:
        dualtemp.train(**RUN, epochs=2, evaluate_every=2, page=False, log=logs, out=path)
        sorted(path.glob("checkpoints/*"))[-1].unlink()  # epoch 2 is in the logs, and is made once more
        dualtemp.resume(path, 3, quiet=True, page=False, log=logs)
    finally:
        before.undo()
    return path


def test_tensorboard_reads_every_scalar_of_every_epoch_once(both: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    history = RunFolder(both).history()
    events = accumulator.EventAccumulator(str(both / "logs" / "tensorboard"))
    events.Reload()
    names = {name for line in history for name in scalars(line)}
    assert {"loss", "W_spread", "alignment", "images_per_second", "collapsed"} <= names
    assert set(events.Tags()["scalars"]) == names
    for name in names:
        read = [(event.step, event.value) for event in events.Scalars(name)]
        kept = [(line["epoch"], pytest.approx(float(line[name]), rel=1e-6)) for line in history if name in line]
        assert read == kept, name


def records(folder: Path) -> list[dict[str, float]]:
    """The history in what Weights & Biases has written: LevelDB's log format, of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("*.wandb")
    content, at, whole, found = file.read_bytes(), 7, b"", []  # after a header of 7 bytes
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # the rest of a block is too small for a record
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole, at = whole + content[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # a record, or the last part of one
            record = wandb_internal_pb2.Record()  # pyright: ignore[reportAttributeAccessIssue]
            record.ParseFromString(whole)
            whole = b""
            if record.HasField("history"):
                items = record.history.item
                found.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in items})
    return found


def test_wandb_reads_every_scalar_with_the_epoch_as_step_and_the_run_stays_the_same(both: Path) -> None:
    history = RunFolder(both).history()
    first, second = sorted((both / "logs" / "wandb").glob("offline-run-*"), key=lambda folder: folder.stat().st_mtime)
    assert first.name.rsplit("-", 1)[1] == second.name.rsplit("-", 1)[1], "one run, by its identity"
    assert [row["_step"] for row in records(first)] == [1, 2]
    rows = records(second)
    assert [row["_step"] for row in rows] == [2, 3]
    for row, line in zip(rows, history[1:], strict=True):
        assert {name: row[name] for name in scalars(line)} == pytest.approx(scalars(line))


def test_logs_are_no_settings(both: Path) -> None:
    config = yaml.safe_load((both / "config.yaml").read_text())
    assert not {"log", "page", "quiet"} & set(config)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_told_before_anything_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"pip install 'dualtemp\[{name}\]'"):
        dualtemp.train(**RUN, epochs=1, log=[name], out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_named_like_the_package_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "wandb").mkdir(parents=True)  # as wandb itself leaves one
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here")])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(UserError, match="pip install"):
        dualtemp.train(**RUN, epochs=1, log="wandb", out=tmp_path / "run")


def test_an_unknown_log_is_told_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'tensorbord': choose among tensorboard, wandb"):
        dualtemp.train(**RUN, epochs=1, log=("tensorbord",), out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_does_not_end_the_run(
    both: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(both, tmp_path / "run"))
    shutil.rmtree(path / "logs")
    (path / "logs").write_text("a file is in the way")
    metrics: dict[str, Any] = dualtemp.resume(path, 4, quiet=True, page=False, log=["tensorboard"])
    assert metrics["epoch"] == 4
    cosine, said = capsys.readouterr().err.splitlines()
    assert "cosine now ends at epoch 4" in cosine
    assert said.startswith("dualtemp: the log for TensorBoard is not available (")
