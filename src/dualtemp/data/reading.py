"""Worker processes that read photographs into shared memory, a few batches ahead of the consumer.

A batch is read in parts, so that all workers help with the next one. Parts carry all that decides their outcome, so a
pool that lost a worker is simply started again and given the same parts. The memory is anonymous and shared by fork
where there is fork (no limit of /dev/shm applies), else torch's.
"""

import contextlib
import mmap
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from dualtemp.data.images import FileImages
from dualtemp.data.photographs import Outcome, Part, enough_pixels, read_part
from dualtemp.data.views import Views
from dualtemp.errors import UserError

_AHEAD = 2  # batches in preparation while one is in use
_IMAGES_A_PART = 16


@dataclass(frozen=True)
class Request:
    """A batch to read: image numbers, and the epoch (None: the clean view of evaluation)."""

    index: tuple[int, ...]
    epoch: int | None


@dataclass(frozen=True)
class Photographs:
    """A batch that was read.

    pixels: uint8 (2, N, C, size, size), valid until the next batch is asked for; shown: the number of the image in each
    row (None: none); problems: unreadable files as (name, reason).
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
    futures: list[Future[Outcome]] = field(default_factory=list)


class Reader:
    """Reads batches of photographs, in order, with `workers` processes (0: in this one).

    A worker that dies is replaced once for a batch; a second death at the same batch ends with one line.
    """

    def __init__(self, files: FileImages, views: Views, batch: int, workers: int) -> None:
        """Reserve shared memory for batches of up to `batch` images; processes start with the first batch."""
        self.files, self.views = replace(files, enough=enough_pixels(views)), views
        self.batch, self.workers = batch, workers
        slots = 1 + _AHEAD if workers else 1
        shape = (slots, 2, batch, files.channels, views.size, views.size)
        self._buffer = _shared(shape) if workers else torch.empty(shape, dtype=torch.uint8)
        self._pool: ProcessPoolExecutor | None = None
        self._busy = False

    def read(self, requests: Iterable[Request]) -> Iterator[Photographs]:
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
                    with contextlib.suppress(BrokenProcessPool):  # it is mended when this batch's turn comes
                        self._submit(item)
                if not pending:
                    return
                outcomes = self._outcomes(pending)
                item = pending.popleft()
                yield Photographs(
                    request=item.request,
                    pixels=self._buffer[item.slot, :, : len(item.request.index)],
                    shown=tuple(number for outcome in outcomes for number in outcome.shown),
                    problems=tuple(problem for outcome in outcomes for problem in outcome.problems),
                )
                free.append(item.slot)
        finally:
            # Nobody may write into the buffer once the next iteration uses it.
            left = [future for item in pending for future in item.futures if not future.cancel()]
            wait(left)
            self._busy = False

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _submit(self, item: _Pending) -> None:
        if self.workers == 0:
            return
        if self._pool is None:
            self._pool = _pool(self.workers, self.files, self.views, self._buffer)
        item.futures = [self._pool.submit(_read_in_worker, part) for part in item.parts]

    def _outcomes(self, pending: deque[_Pending]) -> list[Outcome]:
        """Wait for the first pending batch; start a broken pool again, once, with everything that is pending."""
        first = pending[0]
        if self.workers == 0:
            return [read_part(part, self.files, self.views, self._buffer) for part in first.parts]
        for attempt in (1, 2):
            try:
                if len(first.futures) == len(first.parts):
                    return [future.result() for future in first.futures]
                raise BrokenProcessPool  # it broke before the batch could be submitted
            except BrokenProcessPool:
                self.close()
                if attempt == 2:
                    break
                for item in pending:
                    with contextlib.suppress(BrokenProcessPool):
                        self._submit(item)
        raise UserError(
            f"worker processes that read images below {self.files.root} were killed twice at the same batch; the "
            f"system may be short of memory: use fewer than {self.workers} workers, or 0 to read in the main process."
        )


def _parts(request: Request, slot: int) -> Iterator[Part]:
    for row in range(0, len(request.index), _IMAGES_A_PART):
        yield Part(slot, row, request.index[row : row + _IMAGES_A_PART], request.epoch)


def _shared(shape: tuple[int, ...]) -> Tensor:
    size = max(1, torch.Size(shape).numel())
    if _forks():
        return torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)[: torch.Size(shape).numel()].view(shape)
    return torch.empty(shape, dtype=torch.uint8).share_memory_()


def _forks() -> bool:
    return sys.platform == "linux"


def _pool(workers: int, files: FileImages, views: Views, buffer: Tensor) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("fork" if _forks() else None)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(files, views, buffer))


_in_worker: tuple[FileImages, Views, Tensor] | None = None


def _begin(files: FileImages, views: Views, buffer: Tensor) -> None:
    """Set up a worker: one thread, no answer to Ctrl-C (the main process decides), gone when the main process is."""
    global _in_worker
    _in_worker = (files, views, buffer)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _read_in_worker(part: Part) -> Outcome:
    assert _in_worker is not None
    return read_part(part, *_in_worker)
