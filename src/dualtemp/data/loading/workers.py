"""Worker processes that read images into shared memory, a few batches ahead of the consumer.

A batch is read in parts, so that all workers share the work on the next one. The result of a part depends on the part
alone, so if a worker dies, a new pool simply reads the parts that are left. With fork, the memory is an anonymous
mapping (no limit of /dev/shm applies), otherwise torch's shared memory.
"""

import contextlib
import mmap
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dualtemp.data.augment.views import Views
from dualtemp.data.image_source import ImageSource
from dualtemp.data.images import ImagesGone
from dualtemp.data.loading.crop_files import Outcome, Part, enough_pixels, read_part
from dualtemp.data.loading.worker_pool import FORKS, WorkerPool, wait_for

_AHEAD = 2  # batches in preparation while one is in use
_IMAGES_A_PART = 16
_ATTEMPTS = 3  # to read a batch while workers die
_PATIENCE = 30.0  # seconds without a finished part of 16 images before a message says so


class WorkersLost(ImagesGone):
    """Worker processes died repeatedly at the same batch, which therefore cannot be read."""


@dataclass(frozen=True)
class Request:
    """A batch to read: image numbers, and the epoch (None: the clean view of evaluation)."""

    index: tuple[int, ...]
    epoch: int | None


@dataclass(frozen=True)
class ReadBatch:
    """A batch that was read.

    pixels: uint8 (views, N, C, size, size), valid until the next batch is asked for; shown: the number of the image in
    each row (None: none); problems: unreadable files as (name, reason).
    """

    request: Request
    pixels: Tensor
    shown: tuple[int | None, ...]
    problems: tuple[tuple[str, str], ...]


@dataclass
class _Pending:
    slot: int
    request: Request
    parts: list[Part]
    futures: dict[Part, Future[Outcome]] = field(default_factory=dict)


class Reader:
    """Reads batches of images, in order, with `workers` processes (0: in this one).

    Workers that die are replaced, with a message; the third time at the same batch, WorkersLost is raised.
    """

    def __init__(
        self, source: ImageSource, views: Views, batch: int, workers: int, enough: int | None = None, count: int = 2
    ) -> None:
        """Reserve shared memory for batches of up to `batch` images; processes start with the first batch.

        enough: pixels needed on an image's shorter side; default: enough for the smallest crop of a view. count: views
        per image; evaluation needs one.
        """
        if views.levels is not None:
            source = source.convert(levels=views.levels)
        self.source, self.views = source.convert(enough=enough or enough_pixels(views)), views
        self.batch, self.workers = batch, workers
        slots = 1 + _AHEAD if workers else 1
        shape = (slots, count, batch, source.channels, views.size, views.size)
        self._buffer = _shared(shape) if workers else torch.empty(shape, dtype=torch.uint8)
        self._pool: WorkerPool | None = None
        self._busy = False

    def read(self, requests: Iterable[Request]) -> Iterator[ReadBatch]:
        """Yield the batches asked for, in order. One iteration at a time; leaving it early is fine."""
        if self._busy:
            raise RuntimeError("this reader is already reading: finish or close that iteration first")
        self._busy = True
        pending: deque[_Pending] = deque()
        free = deque(range(len(self._buffer)))
        remaining = iter(requests)
        try:
            while True:
                while free and (request := next(remaining, None)) is not None:
                    item = _Pending(free.popleft(), request, [])
                    item.parts = list(_parts(request, item.slot))
                    pending.append(item)
                    with contextlib.suppress(BrokenProcessPool):  # repaired when this batch's turn comes
                        self._submit(item)
                if not pending:
                    return
                outcomes = self._outcomes(pending)
                item = pending.popleft()
                yield ReadBatch(
                    request=item.request,
                    pixels=self._buffer[item.slot, :, : len(item.request.index)],
                    shown=tuple(number for outcome in outcomes for number in outcome.shown),
                    problems=tuple(problem for outcome in outcomes for problem in outcome.problems),
                )
                free.append(item.slot)
        finally:
            # No worker may still write into the buffer when the next iteration uses it.
            if any(not future.done() for item in pending for future in item.futures.values()):
                self.close()
            self._busy = False

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _submit(self, item: _Pending) -> None:
        """Submit the parts that have not been submitted to the present pool; start one if there is none."""
        if self.workers == 0:
            return
        if self._pool is None:
            self._pool = WorkerPool(self.workers, _begin, self.source, self.views, self._buffer)
        for part in item.parts:
            if part not in item.futures or _broken(item.futures[part]):
                item.futures[part] = self._pool.submit(_read_in_worker, part)

    def _outcomes(self, pending: deque[_Pending]) -> list[Outcome]:
        """Wait for the first pending batch; if the pool breaks, replace it and resubmit all pending batches."""
        first = pending[0]
        if self.workers == 0:
            return [read_part(part, self.source, self.views, self._buffer) for part in first.parts]
        died = ""
        for attempt in range(1, _ATTEMPTS + 1):
            with contextlib.suppress(BrokenProcessPool):
                self._submit(first)  # the pool may have broken before the batch could be submitted
                wait_for(tuple(first.futures.values()), _PATIENCE, self._tell_of_delay)
                return [first.futures[part].result() for part in first.parts]
            died = self._deaths()
            if attempt < _ATTEMPTS:
                _say(f"worker process {died}, which reads images, has ended; it is replaced and nothing is lost")
                for item in pending:
                    with contextlib.suppress(BrokenProcessPool):
                        self._submit(item)
        raise WorkersLost(
            f"worker processes that read images below {self.source.place} were killed {_ATTEMPTS} times at the same "
            f"batch, the last one was {died}; the system may be short of memory: use {self._fewer()}"
        )

    def _fewer(self) -> str:
        few = f"fewer than {self.workers} workers, or 0" if self.workers > 1 else "0 workers"
        return f"{few} to read in the main process"

    def _deaths(self) -> str:
        """Discard a broken pool; say which of its workers died, and why."""
        pool, self._pool = self._pool, None
        return "" if pool is None else ", ".join(pool.deaths())

    def _tell_of_delay(self, seconds: int) -> None:
        stopped = self._pool.stopped() if self._pool is not None else []
        if not stopped:
            _say(f"no image below {self.source.place} could be read for {seconds} s; still waiting")
            return
        pids = " ".join(map(str, stopped))
        _say(
            f"worker process {pids}, which reads images, is stopped, and the run waits for it since {seconds} s: "
            f"`kill -CONT {pids}` lets it go on, `kill -KILL {pids}` has it replaced"
        )


def _broken(future: Future[Outcome]) -> bool:
    return future.done() and isinstance(future.exception(), BrokenProcessPool)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        if sys.stderr is not None:
            print(f"dualtemp: {text}", file=sys.stderr, flush=True)


def _parts(request: Request, slot: int) -> Iterator[Part]:
    for row in range(0, len(request.index), _IMAGES_A_PART):
        yield Part(slot, row, request.index[row : row + _IMAGES_A_PART], request.epoch)


def _shared(shape: tuple[int, ...]) -> Tensor:
    size = max(1, torch.Size(shape).numel())
    if FORKS:
        return torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)[: torch.Size(shape).numel()].view(shape)
    return torch.empty(shape, dtype=torch.uint8).share_memory_()


_in_worker: tuple[ImageSource, Views, Tensor] | None = None


def _begin(source: ImageSource, views: Views, buffer: Tensor) -> None:
    """Set up a worker: its source, views and buffer, and a single thread."""
    global _in_worker
    _in_worker = (source, views, buffer)
    torch.set_num_threads(1)


def _read_in_worker(part: Part) -> Outcome:
    assert _in_worker is not None
    return read_part(part, *_in_worker)
