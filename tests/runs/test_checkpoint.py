"""A checkpoint by name: what it holds comes back, older and newer files are read, strange ones refused."""

import io
from pathlib import Path

import pytest
import torch

from dualtemp.runs.checkpoint import PARTS, Checkpoint, DamagedCheckpoint, checkpoints, load, save, unpack

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
