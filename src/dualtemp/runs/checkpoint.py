"""Checkpoints: whole, checked, the last two kept; loading one never runs code from it."""

import hashlib
import io
import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dualtemp.atomic_write import whole_file
from dualtemp.errors import UserError

_MAGIC = b"dualtemp checkpoint 1\n"
_HEAD = len(_MAGIC) + 32 + 8  # magic, digest, length of what follows
_KEPT = 2


class DamagedCheckpoint(Exception):
    """A checkpoint that is not what was written."""


def save(folder: Path, position: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint and drop all but the last two. `position`, steps of the whole run, orders them."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    path = folder / f"step-{position:010d}.ckpt"
    with whole_file(path) as file:
        file.write(_MAGIC + hashlib.blake2b(payload, digest_size=32).digest() + struct.pack("<Q", len(payload)))
        file.write(payload)
    for old in checkpoints(folder)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    return sorted(folder.glob("step-*.ckpt"))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint to the CPU; raises DamagedCheckpoint."""
    return unpacked(read(path), path.name)


def read(path: Path) -> bytes:
    """A checkpoint as it was written, checked, not yet unpacked; raises DamagedCheckpoint."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error.strerror})") from None
    if len(data) < _HEAD or not data.startswith(_MAGIC):
        raise DamagedCheckpoint(f"{path.name} is not a checkpoint")
    digest, (length,) = data[len(_MAGIC) : len(_MAGIC) + 32], struct.unpack("<Q", data[_HEAD - 8 : _HEAD])
    payload = data[_HEAD:]
    if len(payload) != length or hashlib.blake2b(payload, digest_size=32).digest() != digest:
        raise DamagedCheckpoint(f"{path.name} is damaged")
    return payload


def unpacked(payload: bytes, name: str = "checkpoint") -> dict[str, Any]:
    """The state in what `read` gave, on the CPU; tensors and plain values only, never code."""
    try:
        with warnings.catch_warnings(action="ignore"):  # what torch has to say of strange files is said below
            return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise DamagedCheckpoint(f"{name} holds something else than a run ({type(error).__name__})") from None


def read_latest(folder: Path) -> tuple[bytes | None, list[str]]:
    """The newest checkpoint that is whole, None if there is none; and what was wrong with newer ones.

    Newer ones are removed if one is found to go on from: they would pass for the newest again.
    """
    damaged: dict[Path, str] = {}
    for path in reversed(checkpoints(folder)):
        try:
            payload = read(path)
            unpacked(payload, path.name)
        except DamagedCheckpoint as error:
            damaged[path] = str(error)
            continue
        for newer in damaged:
            newer.unlink(missing_ok=True)
        return payload, list(damaged.values())
    if damaged:
        told = "; ".join(damaged.values())
        raise UserError(f"no checkpoint in {folder} can be read: {told}; train anew in another folder")
    return None, []


def refuse_foreign(saved: dict[str, Any], method: nn.Module, folder: Path) -> None:
    """Raise UserError unless a checkpoint of `folder` has the weights of this framework, by name and shape."""
    found, settings = saved.get("method"), saved.get("settings", {})
    if isinstance(found, dict) and _shapes(found) == _shapes(method.state_dict()):
        return
    whose = f" ({settings['method']}, {settings['backbone']})" if {"method", "backbone"} <= settings.keys() else ""
    raise UserError(
        f"the newest checkpoint of {folder} is of another run{whose} than its config.yaml tells: put the run's own "
        "checkpoint or config back, or train anew in another folder"
    )


def _shapes(state: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in state.items()}
