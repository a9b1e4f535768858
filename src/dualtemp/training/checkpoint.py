"""Checkpoints: whole, checked, the last two kept; loading one never runs code from it."""

import hashlib
import io
import struct
from pathlib import Path
from typing import Any

import torch

from dualtemp.errors import UserError
from dualtemp.whole_file import whole_file

_MAGIC = b"dualtemp checkpoint 1\n"
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
    data = path.read_bytes()
    head = len(_MAGIC) + 32 + 8
    if len(data) < head or not data.startswith(_MAGIC):
        raise DamagedCheckpoint(f"{path.name} is not a checkpoint")
    digest, (length,) = data[len(_MAGIC) : len(_MAGIC) + 32], struct.unpack("<Q", data[head - 8 : head])
    payload = memoryview(data)[head:]
    if len(payload) != length or hashlib.blake2b(payload, digest_size=32).digest() != digest:
        raise DamagedCheckpoint(f"{path.name} is damaged")
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)


def load_latest(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest checkpoint that is whole, None if there is none; and what was wrong with newer ones."""
    damaged: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            return load(path), damaged
        except DamagedCheckpoint as error:
            damaged.append(str(error))
        except OSError as error:
            damaged.append(f"{path.name} cannot be read ({error.strerror})")
    if damaged:
        raise UserError(f"no checkpoint in {folder} can be read: {'; '.join(damaged)}; train anew in another folder")
    return None, damaged
