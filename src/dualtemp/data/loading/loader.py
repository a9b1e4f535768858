"""Batches of random views: the same for any number of processes, and from any step on.

An epoch has floor(N / batch) steps over the images in an order given by seed and epoch; the rest is dropped. The batch
is the global one: rank r of R takes its contiguous share of each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dualtemp.data.augment.philox import permutation
from dualtemp.data.augment.view_plan import ViewPlan, plans_on_device
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet, ImagesGone
from dualtemp.data.loading.image_order import UNIFORM, shards_at_once
from dualtemp.data.loading.shard_order import describe_order, shard_order
from dualtemp.data.loading.workers import ReadBatch, Reader, Request
from dualtemp.errors import UserError
from dualtemp.machine import cores

EVALUATION_BATCH = 256  # images at once


@dataclass(frozen=True)
class Batch:
    """A training batch.

    index: int64 (n,) on the CPU, the images of the set that are shown; on the device: labels, int64 (n,) or None;
    views, each float32 (n, C, size, size); device_index, a copy of the index.
    """

    index: Tensor
    labels: Tensor | None
    views: tuple[Tensor, ...]
    device_index: Tensor


@dataclass(frozen=True)
class CleanBatch:
    """Images for evaluation: index int64 (n,) on the CPU; labels int64 (n,) or None and pixels float32 (n, C, size,
    size), normalized, on the device.
    """

    index: Tensor
    labels: Tensor | None
    pixels: Tensor


class Loader:
    """Training batches of an image set.

    batch: images per step over all ranks, a multiple of `world`; workers: processes that read images, by default one
    less than there are cores, 1 to 8 (sets in memory need none); count: views per image; order: of the images in an
    epoch, "uniform" or some shards at a time (shard_order.py). `problems` collects unreadable files, name -> reason, as
    they occur; each is replaced by another image of the set.

        with Loader(images, Views("paper", 32, 0, mean, std), batch=256) as loader:
            for batch in loader.batches(epoch=3, start_step=17):
                ...
    """

    def __init__(
        self,
        images: ImageSet,
        views: Views,
        batch: int,
        *,
        device: torch.device | str = "cpu",
        rank: int = 0,
        world: int = 1,
        workers: int | None = None,
        count: int = 2,
        order: str = UNIFORM,
    ) -> None:
        """Move a set in memory to the device; files are opened when they are needed."""
        if batch < 1 or batch > len(images):
            raise UserError(f"batch {batch}, but {images.name} has {len(images)} images: give 1 to {len(images)}.")
        if batch % world:
            raise UserError(f"batch {batch} cannot be shared by {world} processes: give a multiple of {world}.")
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}")
        self.device = torch.device(device)
        self.images = images.to(self.device)
        self.views, self.batch, self.rank, self.world, self.count = views, batch, rank, world, count
        self.steps = len(images) // batch
        self.problems: dict[str, str] = {}
        self.at_once = shards_at_once(order)
        shards = None if self.at_once is None else images.source.shards()
        if self.at_once is not None and shards is None:
            raise UserError(
                f"order {order}: {images.name} is in no shards; leave the order out, or pack it into shards"
            )
        self._shards = None if shards is None else torch.from_numpy(shards)
        self._reader: Reader | None = None
        if not images.in_memory:
            workers = default_workers() if workers is None else workers
            self._reader = Reader(images.source, views, batch // world, workers, count=count)

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Yield this rank's batches of an epoch from `start_step` on; earlier steps are not computed."""
        if epoch < 0 or not 0 <= start_step <= self.steps:
            raise ValueError(f"epoch {epoch}, step {start_step}: an epoch has steps 0 to {self.steps}")
        share = self.batch // self.world
        order = self.order(epoch)
        firsts = range(start_step * self.batch + self.rank * share, self.steps * self.batch, self.batch)
        indices = (order[first : first + share] for first in firsts)
        tensor = self.images.source.tensor
        return self._read(indices, epoch) if tensor is None else self._from_memory(tensor, indices, epoch)

    def order(self, epoch: int) -> Tensor:
        """The images of an epoch, int64 (N,), in the order in which all processes together see them."""
        if self._shards is None or self.at_once is None:
            return permutation(self.views.seed, epoch, len(self.images))
        return shard_order(self.views.seed, epoch, self._shards, self.at_once)

    def describe_order(self) -> str:
        """How far the order is from a uniform one, measured; "" if it is uniform."""
        if self._shards is None or self.at_once is None:
            return ""
        return describe_order(self.views.seed, self._shards, self.at_once, self.batch)

    def close(self) -> None:
        """End the worker processes, if there are any."""
        if self._reader is not None:
            self._reader.close()

    def __enter__(self) -> "Loader":
        """Return the loader; leaving closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _from_memory(self, pixels: Tensor, indices: Iterator[Tensor], epoch: int) -> Iterator[Batch]:
        if self.device.type != "cpu":
            yield from self._from_device_memory(pixels, indices, epoch)
            return
        for index in indices:
            chosen = pixels.index_select(0, index)
            views = tuple(self.views(chosen, index, epoch, view) for view in range(self.count))
            yield Batch(index, _labels(self.images, index), views, index)

    def _from_device_memory(self, pixels: Tensor, indices: Iterator[Tensor], epoch: int) -> Iterator[Batch]:
        """The same on an accelerator: the next batch is drawn while the device works on this one."""
        sides = (pixels.shape[2], pixels.shape[3])
        drawn = ((index, self._plans(index, epoch, sides)) for index in indices)
        following = next(drawn, None)
        while following is not None:
            index, plans = following
            plans, (there,) = plans_on_device(plans, [index], self.device)
            chosen = pixels.index_select(0, there)
            views = tuple(self.views.apply(plan, chosen) for plan in plans)
            batch = Batch(index, _labels(self.images, there), views, there)
            following = next(drawn, None)  # while the device works
            yield batch

    def _read(self, indices: Iterator[Tensor], epoch: int) -> Iterator[Batch]:
        assert self._reader is not None
        requests = (Request(tuple(index.tolist()), epoch) for index in indices)
        for found in self._reader.read(requests):
            self.problems.update(found.problems)
            index, shown = torch.tensor(found.request.index), _all_shown(found, self.images)
            pixels = found.pixels
            if self.device.type == "cpu":
                views = tuple(self.views.after_crop(crops, index, epoch, view) for view, crops in enumerate(pixels))
                yield Batch(shown, _labels(self.images, shown), views, shown)
            else:
                plans, (pixels, there) = plans_on_device(self._plans(index, epoch, None), [pixels, shown], self.device)
                views = tuple(map(self.views.apply, plans, pixels))
                yield Batch(shown, _labels(self.images, there), views, there)

    def _plans(self, index: Tensor, epoch: int, sides: tuple[int, int] | None) -> list[ViewPlan]:
        return [self.views.plan(index, epoch, view, sides) for view in range(self.count)]


def evaluation_batches(
    images: ImageSet,
    views: Views,
    batch: int = EVALUATION_BATCH,
    *,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    problems: dict[str, str] | None = None,
    may_be_empty: bool | None = None,
    quick: bool = False,
) -> Iterator[CleanBatch]:
    """Yield every image once, in order, without augmentation, `batch` at a time (the last may be smaller).

    Size and normalization are those of `views`. Unreadable files are left out (see `index`) and added to `problems`,
    name -> reason. If no file at all can be read, ImagesGone is raised, unless `may_be_empty` (default: whether
    `problems` is given).

    quick: decode files only as large as the clean view needs, not as large as training does: less work, and slightly
    different pixels.
    """
    if batch < 1:
        raise UserError(f"evaluation batch {batch}: give at least 1.")
    device = torch.device(device)
    indices = torch.arange(len(images)).split(batch)
    if (tensor := images.source.tensor) is not None:
        for index in indices:
            pixels = tensor[index[0] : index[-1] + 1].to(device)
            yield CleanBatch(index, _labels(images, index, device), views.evaluation(pixels))
        return
    workers = default_workers() if workers is None else workers
    may_be_empty = problems is not None if may_be_empty is None else may_be_empty
    enough = views.shorter_side if quick else None
    reader = Reader(images.source, views, min(batch, len(images)), workers, enough, count=1)
    any_shown, last = False, ()
    try:
        for found in reader.read(Request(tuple(index.tolist()), None) for index in indices):
            if problems is not None:
                problems.update(found.problems)
            last = found.problems or last
            rows = [row for row, number in enumerate(found.shown) if number is not None]
            if rows:
                any_shown = True
                index = torch.tensor([found.request.index[row] for row in rows])
                shown = found.pixels[0] if len(rows) == len(found.shown) else found.pixels[0, rows]
                pixels = views.normalize(shown.to(device))
                yield CleanBatch(index, _labels(images, index, device), pixels)
    finally:
        reader.close()
    if not any_shown and not may_be_empty and len(images):
        raise _gone(images, last)


def default_workers() -> int:
    """One worker less than the cores that this process may use; at least 1, at most 8."""
    return max(1, min(8, cores() - 1))


def _labels(images: ImageSet, index: Tensor, device: torch.device | None = None) -> Tensor | None:
    if images.labels is None:
        return None
    found = images.labels.index_select(0, index.to(images.labels.device, non_blocking=True))
    return found if device is None else found.to(device)


def _all_shown(found: ReadBatch, images: ImageSet) -> Tensor:
    numbers = [number for number in found.shown if number is not None]
    if len(numbers) < len(found.shown):
        raise _gone(images, found.problems)
    return torch.tensor(numbers)


def _gone(images: ImageSet, problems: Sequence[tuple[str, str]]) -> ImagesGone:
    source = images.source
    if source.is_gone():
        return ImagesGone(f"{source.place} is gone: put it back")
    name, reason = problems[-1]
    return ImagesGone(
        f"hardly an image below {source.place} can be read any more ({len(problems)} files in a row cannot, the "
        f"last is {name}: {reason}): check the folder with `dualtemp data`"
    )
