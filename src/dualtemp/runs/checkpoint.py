"""Checkpoints of a run: typed, written atomically, verified by a digest, the last two kept. Loading never runs code."""

import hashlib
import io
import pickle
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dualtemp.atomic_write import whole_file
from dualtemp.errors import UserError
from dualtemp.models.weights import CHECKPOINT_MARK

_MAGIC = CHECKPOINT_MARK + b" 1\n"
_HEAD = len(_MAGIC) + 32 + 8  # magic, digest, length of the payload
_KEPT = 2
_PART = {"part": True}  # marks the state dict of the training step's attribute of the same name


class DamagedCheckpoint(Exception):
    """The file does not contain what was written to it, or no checkpoint at all."""


@dataclass
class Checkpoint:
    """Everything a run needs to continue. To save one more thing, add a field with the value that older files imply.

    settings: by name, empty in old files; done: steps of the whole run; seconds: training time; totals: sums over the
    steps of an unfinished epoch; metrics_length: bytes of metrics.jsonl that belong to the checkpoint; start: measures
    of the run's start. The rest are state dicts, which `TrainStep` saves and restores by name; None for parts that a
    run does not have.
    """

    done: int
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    totals: Mapping[str, float] | torch.Tensor | None = None
    metrics_length: int = 0
    start: dict[str, Any] | None = None
    method: dict[str, Any] = field(default_factory=dict, metadata=_PART)
    optimizer: dict[str, Any] = field(default_factory=dict, metadata=_PART)
    scaler: dict[str, Any] = field(default_factory=dict, metadata=_PART)
    probe: dict[str, Any] | None = field(default=None, metadata=_PART)

    def to_payload(self) -> dict[str, Any]:
        """The fields by name, as they are written to disk."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Checkpoint":
        """Read the fields of any version's file: missing ones take their defaults, unknown ones are ignored."""
        return cls(**{each.name: payload[each.name] for each in fields(cls) if each.name in payload})


PARTS = tuple(each.name for each in fields(Checkpoint) if each.metadata.get("part"))


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, named after its step, and delete all but the last two."""
    buffer = io.BytesIO()
    torch.save(checkpoint.to_payload(), buffer)
    payload = buffer.getbuffer()
    path = folder / f"step-{checkpoint.done:010d}.ckpt"
    with whole_file(path) as file:
        file.write(_MAGIC + hashlib.blake2b(payload, digest_size=32).digest() + struct.pack("<Q", len(payload)))
        file.write(payload)
    for old in checkpoints(folder)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    return sorted(folder.glob("step-*.ckpt"))


def load(path: Path) -> Checkpoint:
    """Read a checkpoint to the CPU; raises DamagedCheckpoint, and a UserError if it cannot be read."""
    return unpack(read(path), path.name)


def read(path: Path) -> bytes:
    """Read the payload of a checkpoint and verify its digest; raises DamagedCheckpoint.

    A file that cannot be read may still be intact: it raises UserError, so that it is neither skipped nor deleted.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error.strerror})") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"{path} cannot be read ({reason}): make it readable, then resume") from None
    if len(data) < _HEAD or not data.startswith(_MAGIC):
        raise DamagedCheckpoint(f"{path.name} is not a checkpoint")
    digest, (length,) = data[len(_MAGIC) : len(_MAGIC) + 32], struct.unpack("<Q", data[_HEAD - 8 : _HEAD])
    payload = data[_HEAD:]
    if len(payload) != length or hashlib.blake2b(payload, digest_size=32).digest() != digest:
        raise DamagedCheckpoint(f"{path.name} is damaged")
    return payload


def unpack(payload: bytes, name: str = "checkpoint") -> Checkpoint:
    """Decode what `read` returned, onto the CPU: tensors and plain values only, never code."""
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's warning about foreign files; the error below suffices
            return Checkpoint.from_payload(torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError) as error:
        raise DamagedCheckpoint(f"{name} does not hold a run ({type(error).__name__})") from None


def read_latest(folder: Path) -> tuple[bytes | None, list[str]]:
    """Read the newest undamaged checkpoint, None if there are none; also returns what was wrong with newer ones.

    Newer, damaged files are deleted, because they would be taken for the newest again.
    """
    damaged: dict[Path, str] = {}
    for path in reversed(checkpoints(folder)):
        try:
            payload = read(path)
            unpack(payload, path.name)
        except DamagedCheckpoint as error:
            damaged[path] = str(error)
            continue
        for newer in damaged:
            newer.unlink(missing_ok=True)
        return payload, list(damaged.values())
    if damaged:
        reasons = "; ".join(damaged.values())
        raise UserError(f"no checkpoint in {folder} can be read: {reasons}; train anew in another folder")
    return None, []


def refuse_foreign(checkpoint: Checkpoint, method: nn.Module, folder: Path) -> None:
    """Raise UserError unless the checkpoint has the weights of this framework, by name and shape."""
    weights, settings = checkpoint.method, checkpoint.settings
    if isinstance(weights, dict) and _shapes(weights) == _shapes(method.state_dict()):
        return
    whose = f" ({settings['method']}, {settings['backbone']})" if {"method", "backbone"} <= settings.keys() else ""
    raise UserError(
        f"the newest checkpoint of {folder} is of another run{whose} than its config.yaml: put the run's own "
        "checkpoint or config back, or train anew in another folder"
    )


def _shapes(state: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in state.items()}
