"""A checkpoint by name: what it holds comes back, older and newer files are read, strange ones refused."""

import errno
import io
import os
from pathlib import Path

import pytest
import torch

from dualtemp.errors import UserError
from dualtemp.runs.checkpoint import PARTS, Checkpoint, DamagedCheckpoint, checkpoints, load, read_latest, save, unpack

WHOLE = Checkpoint(
    done=12,
    settings={"method": "simco"},
    seconds=1.5,
    totals={"loss": 2.0, "steps": 1.0},
    metrics_length=70,
    method={"weight": torch.arange(3.0)},
    optimizer={"state": {0: torch.ones(2)}},
    scaler={},
)


def packed(payload: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    return buffer.getvalue()


def test_what_is_saved_is_loaded_and_the_last_two_are_kept(tmp_path: Path) -> None:
    for done in (4, 8, 12):
        WHOLE.done = done
        save(tmp_path, WHOLE)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-0000000008.ckpt", "step-0000000012.ckpt"]
    loaded = load(checkpoints(tmp_path)[-1])
    assert torch.equal(loaded.method.pop("weight"), WHOLE.method["weight"])
    assert (loaded.done, loaded.settings, loaded.seconds, loaded.totals) == (12, WHOLE.settings, 1.5, WHOLE.totals)
    assert (loaded.metrics_length, loaded.scaler, loaded.probe) == (70, {}, None)
    assert PARTS == ("method", "optimizer", "scaler", "probe")


def test_a_file_of_an_older_version_takes_defaults_and_one_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    payload = {name: value for name, value in WHOLE.to_payload().items() if name not in ("settings", "probe")}
    loaded = unpack(packed({**payload, "from_the_future": 1}))
    assert (loaded.settings, loaded.probe, loaded.done) == ({}, None, WHOLE.done)


@pytest.mark.parametrize("payload", [{}, [], torch.zeros(3), {"method": {}}, 7])
def test_what_is_not_a_run_is_refused(payload: object) -> None:
    with pytest.raises(DamagedCheckpoint, match="does not hold a run"):
        unpack(packed(payload), "it.ckpt")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_checkpoint_that_cannot_be_read_is_not_taken_for_a_damaged_one(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for done in (4, 8):
        WHOLE.done = done
        save(tmp_path, WHOLE)
    before = checkpoints(tmp_path)
    read_bytes = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path == before[-1]:
            raise OSError(number, os.strerror(number))
        return read_bytes(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        with pytest.raises(UserError, match=rf"0008.ckpt cannot be read \({os.strerror(number)}\): make it readable"):
            read_latest(tmp_path)
    assert checkpoints(tmp_path) == before
    payload, damaged = read_latest(tmp_path)
    assert payload is not None
    assert (unpack(payload).done, damaged) == (8, [])


def test_a_checkpoint_that_is_gone_since_it_was_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, WHOLE)
    listed = [*checkpoints(tmp_path), tmp_path / "step-9999999999.ckpt"]
    monkeypatch.setattr("dualtemp.runs.checkpoint.checkpoints", lambda folder: listed)
    payload, damaged = read_latest(tmp_path)
    assert payload is not None
    assert damaged == ["step-9999999999.ckpt cannot be read (No such file or directory)"]
