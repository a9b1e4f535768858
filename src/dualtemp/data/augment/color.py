"""Color operations on batches, each image with its own factor; equal to torchvision's on float images in [0, 1].

Images (N, C, H, W) float in [0, 1], changed in place; factors (N,). With three channels, all of them are RGB
operations. With any other number there is no hue, saturation or grayscale; brightness and contrast act on all
channels alike.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_LUMA = (0.2989, 0.587, 0.114)  # torchvision's weights of R, G, B


def gray_of(images: Tensor) -> Tensor:
    """Luma (N, 1, H, W) of RGB; of any other number of channels their plain mean."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red, green, blue = images.unbind(1)
    return red.mul(_LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2]).unsqueeze(1)


def brightness_(images: Tensor, factor: Tensor) -> None:
    """Blend with black."""
    images.mul_(_per_image(factor)).clamp_(0.0, 1.0)


def contrast_(images: Tensor, factor: Tensor) -> None:
    """Blend with the mean luma of each image."""
    factor = _per_image(factor)
    target = gray_of(images).mean((1, 2, 3), keepdim=True)
    images.mul_(factor).add_(target.mul_(1.0 - factor)).clamp_(0.0, 1.0)


def saturation_(images: Tensor, factor: Tensor) -> None:
    """Blend with the luma of each pixel."""
    factor = _per_image(factor)
    target = gray_of(images).mul_(1.0 - factor)
    images.mul_(factor).add_(target).clamp_(0.0, 1.0)


def hue_(images: Tensor, factor: Tensor) -> None:
    """Turn the hue by a share of the circle, in [-0.5, 0.5].

    Without a detour through HSV images: with the largest channel v, the range c of the channels and the hue h in [0,
    6), the channels come back as v - c * clamp(2 - |h - 3|), v - c * clamp(|h - 2| - 1), v - c * clamp(|h - 4| - 1),
    clamped to [0, 1].
    """
    red, green, blue = images.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    extent = value - torch.minimum(torch.minimum(red, green), blue)  # c; zero on gray pixels, whose hue does not matter
    # Choosing by 0/1 weights is several times faster on a CPU than torch.where with boolean masks.
    green_leads, red_leads = green.clone().eq_(value), red.clone().eq_(value)
    hue = torch.lerp(torch.lerp(red - green, blue - red, green_leads), green - blue, red_leads)
    hue.div_(extent.clamp(min=torch.finfo(extent.dtype).tiny))  # 0 / tiny = 0 on gray pixels
    hue.add_(green_leads.mul_(-2.0).add_(4.0).mul_(red_leads.neg_().add_(1.0)))  # from red 0, green 2, blue 4
    hue.add_(6.0 * factor.view(-1, 1, 1))
    hue.sub_((hue * (1.0 / 6.0)).floor_(), alpha=6.0)
    shares = (
        (hue - 3.0).abs_().neg_().add_(2.0),
        (hue - 2.0).abs_().sub_(1.0),
        hue.sub_(4.0).abs_().sub_(1.0),
    )
    for channel, share in enumerate(shares):
        torch.addcmul(value, share.clamp_(0.0, 1.0), extent, value=-1.0, out=images[:, channel])


def grayscale_(images: Tensor, chosen: Tensor) -> None:
    """Replace the channels of RGB images by their luma where chosen (N,) is 1, and not where it is 0.

    It is a saturation of 0; a factor of 1 leaves every bit as it is. On a CPU this beats picking and putting back.
    """
    saturation_(images, 1.0 - chosen)


def solarize_(images: Tensor) -> None:
    """Invert what is at least a half (uint8: at least 128)."""
    torch.where(images >= 0.5, 1.0 - images, images, out=images)


Operation = Callable[[Tensor, Tensor], None]
JITTER_OPERATIONS: tuple[Operation, ...] = (brightness_, contrast_, saturation_, hue_)  # numbered as torchvision does
COLOR_ONLY = (saturation_, hue_)
NOTHING = len(JITTER_OPERATIONS)


def jitter_plan(factors: Tensor, order: Tensor) -> tuple[Tensor, Tensor, tuple[tuple[int, ...], ...]]:
    """How `jitter` has to sort a batch, so that each image meets its operations in its own order.

    factors: float (N, 4), one for each of JITTER_OPERATIONS; order: int64 (N, steps), their numbers in the order in
    which they act, NOTHING for no operation; both on the CPU. Before each step the batch is sorted by the operation
    that comes next, so that each works in place on one slice, and nothing is computed for images that do not need it.

    Returns int64 (steps + 1, N), the sorting before each step and the one back; float (steps, N), the factors in that
    order; and for each step where the slice of each operation ends.
    """
    place = torch.arange(len(order))  # which image stands where
    shuffles, sorted_factors, ends = [], [], []
    for step in range(order.shape[1]):
        following, shuffle = order[place, step].sort(stable=True)
        place = place[shuffle]
        shuffles.append(shuffle)
        sorted_factors.append(factors[place, following.clamp(max=NOTHING - 1)])
        ends.append(tuple(torch.bincount(following, minlength=NOTHING + 1).cumsum(0).tolist()))
    return torch.stack([*shuffles, place.argsort()]), torch.stack(sorted_factors), tuple(ends)


def jitter(images: Tensor, shuffles: Tensor, factors: Tensor, ends: tuple[tuple[int, ...], ...]) -> Tensor:
    """Apply jitter operations to each image in its own order; the result may share the images' memory.

    The rest is what `jitter_plan` gives, its tensors on the device of the images.
    """
    for step, limits in enumerate(ends):
        images = images.index_select(0, shuffles[step])
        for number, operation in enumerate(JITTER_OPERATIONS):
            part = slice(limits[number - 1] if number else 0, limits[number])
            if part.start < part.stop and not (operation in COLOR_ONLY and images.shape[1] != 3):
                operation(images[part], factors[step, part])
    return images.index_select(0, shuffles[-1])


def _per_image(factor: Tensor) -> Tensor:
    return factor.view(-1, 1, 1, 1)
