"""Color operations on batches, each image with its own factor; equal to torchvision's on float images in [0, 1].

Images are float (N, C, H, W) in [0, 1] and are changed in place; factors are (N,). Three channels are taken as RGB.
With any other number, hue, saturation and grayscale are skipped; the other operations treat all channels alike.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_LUMA = (0.2989, 0.587, 0.114)  # torchvision's weights of R, G, B


def gray_of(images: Tensor) -> Tensor:
    """Luma (N, 1, H, W) of RGB images; for any other number of channels, their mean."""
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
    """Rotate the hue by a fraction of the color circle, in [-0.5, 0.5].

    HSV images are not built: with v the largest channel, c the range of the channels and h the new hue in [0, 6), the
    new channels are v - c * clamp(2 - |h - 3|), v - c * clamp(|h - 2| - 1) and v - c * clamp(|h - 4| - 1), where clamp
    is to [0, 1].
    """
    red, green, blue = images.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    extent = value - torch.minimum(torch.minimum(red, green), blue)  # c; zero on gray pixels, whose hue does not matter
    # Choosing by 0/1 weights is several times faster on a CPU than torch.where with boolean masks.
    green_leads, red_leads = green.clone().eq_(value), red.clone().eq_(value)
    hue = torch.lerp(torch.lerp(red - green, blue - red, green_leads), green - blue, red_leads)
    hue.div_(extent.clamp(min=torch.finfo(extent.dtype).tiny))  # 0 / tiny = 0 on gray pixels
    hue.add_(green_leads.mul_(-2.0).add_(4.0).mul_(red_leads.neg_().add_(1.0)))  # offset: red 0, green 2, blue 4
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
    """Replace the channels of RGB images by their luma where chosen (N,) is 1; keep them where it is 0.

    This is `saturation_` with factor 0; a factor of 1 leaves images unchanged, bit for bit. On a CPU it is faster than
    copying the chosen images out and back.
    """
    saturation_(images, 1.0 - chosen)


def solarize_(images: Tensor) -> None:
    """Invert values of at least 0.5 (in uint8: 128)."""
    torch.where(images >= 0.5, 1.0 - images, images, out=images)


Operation = Callable[[Tensor, Tensor], None]
JITTER_OPERATIONS: tuple[Operation, ...] = (brightness_, contrast_, saturation_, hue_)  # numbered as torchvision does
COLOR_ONLY = (saturation_, hue_)
NOTHING = len(JITTER_OPERATIONS)


def jitter_plan(factors: Tensor, order: Tensor) -> tuple[Tensor, Tensor, tuple[tuple[int, ...], ...]]:
    """Plan how `jitter` sorts a batch, so that each image gets the operations in its own order.

    factors: float (N, 4), one for each of JITTER_OPERATIONS; order: int64 (N, steps), the numbers of the operations in
    the order to apply them, NOTHING for none; both on the CPU. Before each step the batch is sorted by its next
    operation, so that each operation works in place on one slice, and nothing is computed for images that do not need
    it.

    Returns int64 (steps + 1, N), the permutation before each step and a last one that restores the order; float (steps,
    N), the factors of the sorted images; and, for each step, the ends of the operations' slices.
    """
    place = torch.arange(len(order))  # the image at each position
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

    shuffles, factors, ends: from `jitter_plan`, the tensors on the device of the images.
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
