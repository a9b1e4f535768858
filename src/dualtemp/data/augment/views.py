"""Views of images: batched augmentation on the device of the pixels, and the clean view for evaluation.

Operations work in float32, and nothing is rounded to 8 bits between them; only images from files arrive cropped to
uint8. After the bicubic resize, values are clamped to [0, 1], as torchvision and Pillow do for 8-bit images.
"""

import warnings
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from dualtemp.data.augment import color
from dualtemp.data.augment.crop import crop_words, random_crops
from dualtemp.data.augment.parameters import drawn_parameters
from dualtemp.data.augment.philox import words
from dualtemp.data.augment.recipes import Recipe, recipe_named
from dualtemp.data.augment.resample import KERNELS, CropTable, gaussian_blur, resize_weights, separable
from dualtemp.data.augment.view_plan import ViewPlan, plans_on_device, view_plan
from dualtemp.data.loading.stacks import Levels
from dualtemp.errors import UserError
from dualtemp.losses.similarity import true_precision

_LARGEST_PART = 1 << 21  # floats of a batch worked on at once on a CPU: 8 MB, 682 images of 32 px, 13 of 224 px


class Views:
    """Random views of a batch, each a function of (seed, epoch, image index, view) alone.

    recipe: a name ("paper", "mocov2", "simclr", "byol") or a Recipe; size: the views are size x size pixels;
    mean, std: one value per channel, for pixels in [0, 1]; interpolation: of every resize, "bicubic" or "bilinear";
    crop: the share of the shorter side that the clean view shows (default: see `evaluation_side`); levels: the values
    that become 0 and 255 when files of stacks, or of gray images of more than 8 bits, are read (loading/stacks.py).

        views = Views("paper", size=32, seed=0, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
        first = views(pixels, index, epoch=0, view=0)  # uint8 (N, C, H, W), int64 (N,) -> float32 (N, C, 32, 32)
    """

    def __init__(
        self,
        recipe: str | Recipe,
        size: int,
        seed: int,
        mean: Sequence[float],
        std: Sequence[float],
        interpolation: str = "bicubic",
        crop: float | None = None,
        levels: Levels | None = None,
    ) -> None:
        """Check and keep the arguments; nothing is drawn yet."""
        if size < 1:
            raise UserError(f"the size of a view is {size} pixels: give at least 1.")
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise UserError(f"mean {tuple(mean)} and std {tuple(std)}: give one pair a channel, each std above 0.")
        if interpolation not in KERNELS:
            raise UserError(f"no interpolation is called {interpolation!r}: choose {' or '.join(KERNELS)}.")
        if crop is not None and not 0 < crop <= 1:
            raise UserError(f"crop {crop}: give a share of the image above 0 and at most 1.")
        self.recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
        self.size, self.seed = size, seed
        self.mean, self.std = tuple(mean), tuple(std)
        self.interpolation, self.crop, self.levels = interpolation, crop, levels
        self._tables: dict[tuple[int, torch.device], CropTable] = {}
        self._constants_by_device: dict[torch.device, tuple[Tensor, Tensor]] = {}

    @property
    def shorter_side(self) -> int:
        """The length of the shorter side before the central crop of the clean view."""
        return evaluation_side(self.size, self.crop)

    def with_recipe(self, recipe: str | Recipe, seed: int) -> "Views":
        """Return views of the same size and normalization by another recipe."""
        return Views(recipe, self.size, seed, self.mean, self.std, self.interpolation, self.crop, self.levels)

    def __call__(self, pixels: Tensor, index: Tensor, epoch: int, view: int) -> Tensor:
        """uint8 (N, C, H, W) -> float32 (N, C, size, size), normalized, on the device of the pixels.

        index: int64 (N,), the images' numbers in their set, preferably on the CPU (otherwise it is copied there).
        """
        _check(pixels, index, self.mean)
        if (parts := _parts(pixels, self.size)) is not None:
            return torch.cat([self(pixels[part], index[part], epoch, view) for part in parts])
        plan = self.plan(index.cpu(), epoch, view, (pixels.shape[2], pixels.shape[3]))
        (plan,), _ = plans_on_device([plan], [], pixels.device)
        return self.apply(plan, pixels)

    def plan(self, index: Tensor, epoch: int, view: int, sides: tuple[int, int] | None = None) -> ViewPlan:
        """Draw a view of images, on the CPU; sides: their height and width, None if they are cropped already."""
        augmentation = self.recipe.of_view(view)
        random, boxes = words(self.seed, epoch, index, view), None
        if sides is not None:
            heights, widths = torch.tensor(sides).unsqueeze(1).expand(2, len(index))
            boxes = random_crops(random, heights, widths, augmentation.scale, augmentation.ratio)
        kernel = 0 if augmentation.blur is None or self.size == 1 else augmentation.blur.kernel(self.size)
        return view_plan(boxes, drawn_parameters(random, augmentation), kernel)

    def apply(self, plan: ViewPlan, pixels: Tensor) -> Tensor:
        """uint8 (N, C, H, W) -> float32 (N, C, size, size), normalized; the plan is on the device of the pixels."""
        height, width = pixels.shape[2:]
        with true_precision(pixels.device):  # half precision would round pixels to 8 bits or fewer
            if plan.boxes.numel():
                top, left, crop_height, crop_width = plan.boxes
                rows = self._table(height, pixels.device).weights(top, crop_height).div_(255.0)
                columns = self._table(width, pixels.device).weights(left, crop_width, plan.flipped)
                images = separable(rows, pixels.to(torch.float32), columns).clamp_(0.0, 1.0)
            else:
                images = pixels.to(torch.float32).div_(255.0)
                images.index_copy_(0, plan.flipped, images.index_select(0, plan.flipped).flip(3))
            return self._recolor(images, plan)

    def crop_boxes(self, index: Tensor, epoch: int, view: int, heights: Tensor, widths: Tensor) -> Tensor:
        """Draw the crops of images of these sizes: (N, 4) int64 top, left, height, width. All on the CPU."""
        augmentation = self.recipe.of_view(view)
        random = crop_words(self.seed, epoch, index, view)
        return random_crops(random, heights, widths, augmentation.scale, augmentation.ratio)

    def after_crop(self, cropped: Tensor, index: Tensor, epoch: int, view: int) -> Tensor:
        """Everything after the crop: uint8 (N, C, size, size) -> float32 (N, C, size, size), normalized."""
        _check(cropped, index, self.mean)
        if (parts := _parts(cropped, self.size)) is not None:
            return torch.cat([self.after_crop(cropped[part], index[part], epoch, view) for part in parts])
        (plan,), _ = plans_on_device([self.plan(index.cpu(), epoch, view)], [], cropped.device)
        return self.apply(plan, cropped)

    def evaluation(self, pixels: Tensor) -> Tensor:
        """The clean view: uint8 (N, C, H, W) -> float32 (N, C, size, size). See evaluation_view."""
        return evaluation_view(pixels, self.size, self.mean, self.std, self.interpolation, self.crop)

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 (N, C, H, W) of any size -> float32, normalized and otherwise unchanged."""
        return self._normalize(pixels.to(torch.float32).div_(255.0))

    def normalised(self, pixels: Tensor) -> Tensor:
        """Former name of `normalize`."""
        warnings.warn("Views.normalised is now Views.normalize", DeprecationWarning, stacklevel=2)
        return self.normalize(pixels)

    def unnormalize(self, views: Tensor) -> Tensor:
        """Convert normalized views back to pixels in [0, 1]."""
        mean, std = self._constants(views.device)
        return (views * std + mean).clamp_(0.0, 1.0)

    def unnormalised(self, views: Tensor) -> Tensor:
        """Former name of `unnormalize`."""
        warnings.warn("Views.unnormalised is now Views.unnormalize", DeprecationWarning, stacklevel=2)
        return self.unnormalize(views)

    def _recolor(self, images: Tensor, plan: ViewPlan) -> Tensor:
        """Jitter, grayscale, blur, solarize, normalize; each only where it was drawn."""
        if plan.ends:
            images = color.jitter(images, plan.shuffles, plan.factors, plan.ends)
        if images.shape[1] == 3 and len(plan.gray):
            color.grayscale_(images, plan.gray)
        if len(plan.blurred):
            where = plan.blurred
            images.index_copy_(0, where, gaussian_blur(images.index_select(0, where), plan.sigma, plan.kernel))
        if len(plan.solarized):
            part = images.index_select(0, plan.solarized)
            color.solarize_(part)
            images.index_copy_(0, plan.solarized, part)
        return self._normalize(images)

    def _normalize(self, images: Tensor) -> Tensor:
        mean, std = self._constants(images.device)
        return images.sub_(mean).div_(std)

    def _constants(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._constants_by_device:
            self._constants_by_device[device] = _constants(self.mean, self.std, device)
        return self._constants_by_device[device]

    def _table(self, side: int, device: torch.device) -> CropTable:
        key = (side, device)
        if key not in self._tables:
            self._tables[key] = CropTable(side, self.size, device, self.interpolation)
        return self._tables[key]

    def __getstate__(self) -> dict[str, object]:
        """Leave out tensors on devices: worker processes only crop, and need none of them."""
        return {**self.__dict__, "_tables": {}, "_constants_by_device": {}}


def evaluation_view(
    pixels: Tensor,
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    interpolation: str = "bicubic",
    crop: float | None = None,
) -> Tensor:
    """The clean view of images in one tensor: nothing random.

    The shorter side is resized to `evaluation_side(size, crop)`, the central size x size pixels are cut out and
    normalized. uint8 (N, C, H, W) -> float32 (N, C, size, size) on the device of the pixels.
    """
    height, width = pixels.shape[2:]
    images = pixels.to(torch.float32)
    with true_precision(pixels.device):
        if (height, width) != (size, size) or evaluation_side(size, crop) != size:
            new_height, new_width, top, left = evaluation_geometry(height, width, size, crop)
            rows, columns = (
                _whole(side, new, interpolation)[:, start : start + size]
                for side, new, start in ((height, new_height, top), (width, new_width, left))
            )
            images = separable(rows.to(images.device), images, columns.to(images.device))
        mean_there, std_there = _constants(mean, std, images.device)
        return images.div_(255.0).clamp_(0.0, 1.0).sub_(mean_there).div_(std_there)


def evaluation_side(size: int, crop: float | None = None) -> int:
    """The length of the shorter side before the central crop of `size` pixels, which shows the share `crop` of it.

    By default 8/7 of the size from 128 px on (256 for 224), and the size itself below.
    """
    if crop is not None:
        return max(size, int(size / crop + 1e-6))  # timm's floor, but not of 255.9999999
    return size * 8 // 7 if size >= 128 else size


def evaluation_geometry(height: int, width: int, size: int, crop: float | None = None) -> tuple[int, int, int, int]:
    """Height and width after the resize, top and left of the central crop; torchvision's Resize and CenterCrop."""
    shorter = evaluation_side(size, crop)
    if height <= width:
        new_height, new_width = shorter, int(shorter * width / height)
    else:
        new_height, new_width = int(shorter * height / width), shorter
    return new_height, new_width, round((new_height - size) / 2.0), round((new_width - size) / 2.0)


def _whole(side: int, size: int, interpolation: str) -> Tensor:
    """Weights (1, size, side) that resize a whole side."""
    start, length = torch.tensor([0]), torch.tensor([side])
    return resize_weights(start, length, side, size, torch.float64, interpolation).to(torch.float32)


def _constants(mean: Sequence[float], std: Sequence[float], device: torch.device) -> tuple[Tensor, Tensor]:
    both = torch.tensor([list(mean), list(std)], dtype=torch.float32).view(2, 1, -1, 1, 1)
    both = both.to(device, non_blocking=True)
    return both[0], both[1]


def _parts(pixels: Tensor, size: int) -> list[slice] | None:
    """Split a batch into parts that suit a CPU's cache and allocator; None if it is small enough, or not on a CPU."""
    if pixels.device.type != "cpu":
        return None
    _keep_freed_memory()
    count, channels = pixels.shape[:2]
    most = max(1, _LARGEST_PART // (channels * max(size * size, pixels.shape[2] * pixels.shape[3])))
    return None if count <= most else [slice(start, start + most) for start in range(0, count, most)]


@cache
def _keep_freed_memory() -> None:
    """Make glibc keep freed blocks of a batch's size for the next batch; views take a third less time on a CPU.

    glibc returns blocks above a threshold to the system, so that every batch pays for fresh pages; the threshold rises
    to the largest block freed so far. Hence free a large block once. It is never touched, so it costs nothing, and
    other allocators are not affected.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def _check(pixels: Tensor, index: Tensor, mean: Sequence[float]) -> None:
    if pixels.dtype != torch.uint8 or pixels.ndim != 4:
        raise TypeError(f"pixels: uint8 (N, C, H, W) expected, not {pixels.dtype} {tuple(pixels.shape)}")
    if index.shape != (len(pixels),):
        raise ValueError(f"index: ({len(pixels)},) expected, not {tuple(index.shape)}")
    if pixels.shape[1] != len(mean):
        raise UserError(
            f"the images have {pixels.shape[1]} channels, mean and std have {len(mean)}: give one pair a channel."
        )
