"""The teacher of a distilled run: its features of all images are computed once and kept in the run's folder.

The teacher sees the clean view of every image at its own size and normalization, whatever the student sees, so that a
step costs only the student's pass. Rank 0 computes the features batch by batch into teacher.features. If the run is
killed meanwhile, resuming computes the remaining batches; later resumes just read the file. Features take 4 F bytes per
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
    """Open the teacher that settings name; raises UserError if it is missing or not the one recorded."""
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
    return replace(teacher, in_pieces=False)  # so that the bits of a run do not change


def find_teacher(chosen: Settings, device: torch.device) -> tuple[Settings, RunEncoder | None]:
    """Open a new run's teacher on rank 0; returns the settings with its hash, and the teacher (None on other ranks)."""
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
    """Give a framework its teacher's features of all images. Every process must call it.

    Raises Interrupted if asked to stop; features computed so far are kept.

    teacher: the teacher, if it is already open on rank 0; if None, it is opened only if features are missing.
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
    problems: dict[str, str] = {}  # ignored: the trainer meets unreadable files again, and reports them
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
    """Features (N, F); zeros for unreadable images, which no step uses."""
    found = torch.zeros(images, records[-1].features.shape[1])
    for record in records:
        found[torch.from_numpy(record.index.copy())] = torch.from_numpy(record.features.copy())
    return found


def _on_all_ranks(make: Callable[[], Tensor | None], device: torch.device) -> Tensor:
    """Call `make` on rank 0, and broadcast its features as a tensor (perhaps gigabytes); None raises Interrupted."""
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
