"""The teacher of a run that distils one: its features of all images, computed once and kept in the run's folder.

The teacher sees the clean view of every image at its own size and normalization, whatever the student sees: a step then
costs the student alone. Rank 0 computes the features batch by batch into teacher.features; a run that is killed
meanwhile goes on with the batches that are left, and one that is resumed later reads them. They take 4 F bytes an
image, on disk and in memory.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.images import ImageSet
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.work_file import Record, WorkFile
from dualtemp.training.failures import Interrupted, explain_disk_errors
from dualtemp.training.observers.observer import Observer, notify
from dualtemp.training.run_encoder import RunEncoder, names_start, onnx_encoder, run_encoder

BATCH = 64  # images at once; another number would change the last bits of features
WORDS = "imagenet, timm:NAME, a folder of timm, a run or FILE.onnx"


def has_teacher(chosen: Settings) -> bool:
    """Whether the framework of a run learns from a teacher."""
    return getattr(chosen.framework, "learns_from_teacher", False)


def open_teacher(chosen: Settings, device: torch.device) -> RunEncoder:
    """Open the teacher that settings name; one that cannot be had, or is another than they say, is a UserError."""
    word = chosen.get("teacher")
    if not word:
        raise UserError(f"{chosen.method} needs a teacher: give --teacher, {WORDS}")
    path = Path(word)
    if path.suffix.lower() == ".onnx":
        teacher = onnx_encoder(path)
    elif names_start(word) or RunFolder(path).config.is_file():
        teacher = run_encoder(path, str(device))
    else:
        raise UserError(f"--teacher {word}: neither a network nor a run; give {WORDS}")
    known = chosen.get("teacher_content")
    if known not in (None, teacher.fingerprint):
        raise UserError(
            f"--teacher {word} has other content ({teacher.fingerprint}) than teacher_content says ({known}): put the "
            "teacher back, or leave teacher_content out"
        )
    return replace(teacher, in_pieces=False)  # the bits of a run stay what they were


def find_teacher(chosen: Settings, device: torch.device) -> tuple[Settings, RunEncoder | None]:
    """Open a new run's teacher on rank 0; returns the settings with its content, and the teacher there, else None."""
    found: list[RunEncoder] = []

    def find() -> Settings:
        found.append(open_teacher(chosen, device))
        return chosen.model_copy(update={"teacher_content": found[0].fingerprint})

    return (distributed.run_on_rank0(find), found[0] if found else None) if has_teacher(chosen) else (chosen, None)


def learn_from_teacher(
    chosen: Settings,
    method: Any,
    images: ImageSet,
    run: RunFolder,
    device: torch.device,
    observer: Observer,
    workers: int | None,
    stop_requested: Callable[[], bool],
    teacher: RunEncoder | None,
) -> None:
    """Give a framework the features that its teacher has of all images. Every process must call it.

    Raises Interrupted if asked to stop: what the teacher has seen is kept.

    teacher: on rank 0, if it is open; by default it is opened if the run's folder lacks features.
    """

    def make() -> Tensor | None:
        with explain_disk_errors(run), closing(WorkFile(run.teacher, _about(chosen, images))) as work:
            records = list(work.records())
            if not _is_complete(records):
                for record in _computed(teacher or open_teacher(chosen, device), images, _done(records), workers):
                    work.append(record)
                    records.append(record)
                    notify(observer, "working", "the teacher looks at the images", _done(records), len(images))
                    if stop_requested():
                        return None
            return _joined(records, len(images))

    if has_teacher(chosen):
        method.framework.teacher.load(_on_all_ranks(make, device))


def _about(chosen: Settings, images: ImageSet) -> dict[str, Any]:
    return {"teacher": chosen.get("teacher_content"), "images": len(images), "batch": BATCH}


def _computed(teacher: RunEncoder, images: ImageSet, start: int, workers: int | None) -> Any:
    """Yield records of the images from number `start` on, and an empty one after the last."""
    problems: dict[str, str] = {}  # the trainer names unreadable files: it meets them again
    if start < len(images):
        for index, features in teacher.features(images.since(start), BATCH, workers, problems):
            yield Record(index.numpy() + start, features.numpy(), {})
    yield Record(np.zeros(0, np.int64), np.zeros((0, teacher.width), np.float32), {})


def _is_complete(records: list[Record]) -> bool:
    return bool(records) and not len(records[-1].index)


def _done(records: list[Record]) -> int:
    """Images of whole batches, so that later batches are those of an uninterrupted run."""
    last = next((record for record in reversed(records) if len(record.index)), None)
    return 0 if last is None else -(-(int(last.index[-1]) + 1) // BATCH) * BATCH


def _joined(records: list[Record], images: int) -> Tensor:
    """Features (N, F); zeros for an image that could not be read, which no step shows."""
    found = torch.zeros(images, records[-1].features.shape[1])
    for record in records:
        found[torch.from_numpy(record.index.copy())] = torch.from_numpy(record.features.copy())
    return found


def _on_all_ranks(make: Callable[[], Tensor | None], device: torch.device) -> Tensor:
    """Make features on rank 0 and broadcast them, as a tensor: they may take gigabytes. None is Interrupted."""
    made: list[Tensor] = []

    def shape() -> tuple[int, ...] | None:
        found = make()
        if found is None:
            return None
        made.append(found)
        return tuple(found.shape)

    wanted = distributed.run_on_rank0(shape)
    if wanted is None:
        raise Interrupted
    found = made[0].to(device) if made else torch.empty(wanted, device=device)
    if distributed.world_size() > 1:
        dist.broadcast(found, 0)
    return found
