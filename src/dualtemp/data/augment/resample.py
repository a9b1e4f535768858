"""Crop, flip and resize a batch by two small matrix products per image, rows x image x columns; and blur.

A separable filter along one side is a matrix: entry (i, j) is the weight of input pixel j in output pixel i. Cropping,
mirroring and the treatment of borders are part of the matrix, so each image has its own crop at no extra cost. The
kernel is antialiased bicubic (a = -0.5) or bilinear, as in Pillow and torch's `interpolate(antialias=True)`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGEST_TABLE = 1 << 23  # floats: 32 MB, enough for 128 px
_LARGEST_UNROLLED = 1 << 22  # floats: 16 MB, enough for 45 px; 32 px takes 4 MB


def separable(rows: Tensor, images: Tensor, columns: Tensor) -> Tensor:
    """rows (N or 1, S, H), images (N, C, H, W), columns (N or 1, T, W) -> (N, C, S, T)."""
    count, channels, height, width = images.shape
    narrowed = images.reshape(count, channels * height, width) @ columns.mT
    return rows.unsqueeze(1) @ narrowed.view(count, channels, height, columns.shape[1])


def cubic(distance: Tensor) -> Tensor:
    """The bicubic kernel with a = -0.5 at distances >= 0, zero from 2 on."""
    near = (1.5 * distance - 2.5) * distance * distance + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return torch.where(distance < 1.0, near, torch.where(distance < 2.0, far, 0.0))


def triangle(distance: Tensor) -> Tensor:
    """The bilinear kernel at distances >= 0, zero from 1 on."""
    return (1.0 - distance).clamp(min=0.0)


KERNELS = {"bicubic": cubic, "bilinear": triangle}


def resize_weights(
    start: Tensor,
    length: Tensor,
    side: int,
    size: int,
    dtype: torch.dtype = torch.float32,
    interpolation: str = "bicubic",
) -> Tensor:
    """Weights (N, size, side) that resize pixels start .. start + length - 1 of a side to `size` pixels.

    start, length: (N,) integers. Pixels outside the crop have weight 0, even for output pixels at its border.
    Computed in dtype, on the device of start.
    """
    device = start.device
    scale = (length.to(dtype) / size).view(-1, 1, 1)
    center = (torch.arange(size, dtype=dtype, device=device) + 0.5).view(1, -1, 1) * scale  # from the start of the crop
    pixel = (torch.arange(side, device=device) - start.view(-1, 1, 1)).to(dtype)  # (N, 1, side), 0 at the crop's start
    distance = (pixel + 0.5 - center).abs() / scale.clamp(min=1.0)  # shrinking widens the kernel: antialias
    weights = KERNELS[interpolation](distance)
    weights = weights * ((pixel >= 0) & (pixel < length.view(-1, 1, 1)))
    return weights / weights.sum(2, keepdim=True)


def gaussian_blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Blur each image with its own Gaussian: images (N, C, H, W), sigma (N,), kernel odd, reflected at the borders.

    Two depthwise convolutions; with so few taps they take at most half the time of two matrix products.
    """
    count, channels, height, width = images.shape
    half = kernel // 2
    if half >= min(height, width):
        raise ValueError(f"a kernel of {kernel} pixels does not fit images of {height} x {width}")
    offsets = torch.arange(-half, half + 1, dtype=images.dtype, device=images.device)
    taps = torch.softmax(-0.5 * (offsets / sigma.to(images).unsqueeze(1)) ** 2, 1)  # (N, kernel)
    taps = taps.repeat_interleave(channels, 0).view(-1, 1, 1, kernel)
    padded = F.pad(images, (half, half, half, half), mode="reflect").view(1, count * channels, height + 2 * half, -1)
    # For depthwise float32, CUDA uses torch's own kernel, and never TF32, which would keep 10 bits of a pixel.
    blurred = F.conv2d(padded, taps, groups=count * channels)
    return F.conv2d(blurred, taps.mT, groups=count * channels).view(images.shape)


class CropTable:
    """A table of the weights of all crops along a side: for small images, a lookup is far cheaper than computing them.

    It holds one matrix per length of a crop, padded with zeros; a sliding window over the padding gives every start.
    Small tables are unrolled into one matrix per length and start, which is faster still. Sides far beyond 128 px have
    no table: there the matrix products outweigh computing the weights.
    """

    def __init__(self, side: int, size: int, device: torch.device, interpolation: str = "bicubic") -> None:
        """Prepare for sides of `side` pixels, resized to `size`, on a device."""
        self.side, self.size, self.device, self.interpolation = side, size, device, interpolation
        self.windows: Tensor | None = None  # (side, side, size, side): by length - 1, then side - 1 - start
        self.unrolled: Tensor | None = None  # the same in one piece, (side * side, size, side)
        if side * size * (2 * side - 1) <= _LARGEST_TABLE:
            lengths = torch.arange(1, side + 1)
            from_zero = resize_weights(torch.zeros_like(lengths), lengths, side, size, torch.float64, interpolation)
            padded = F.pad(from_zero.to(torch.float32), (side - 1, 0)).to(device)
            self.windows = padded.unfold(2, side, 1).transpose(1, 2)
            if side * side * size * side <= _LARGEST_UNROLLED:
                self.unrolled = self.windows.flatten(0, 1).contiguous()

    def weights(self, start: Tensor, length: Tensor, mirrored: Tensor | None = None) -> Tensor:
        """Weights (N, size, side); start, length int64 (N,); mirrored int64, the rows to flip; all on the device."""
        if self.windows is None:
            found = resize_weights(start, length, self.side, self.size, interpolation=self.interpolation)
        elif self.unrolled is None:
            found = self.windows[length - 1, self.side - 1 - start]
        else:
            found = self.unrolled.index_select(0, length * self.side - 1 - start)
        if mirrored is not None:
            found.index_copy_(0, mirrored, found.index_select(0, mirrored).flip(1))
        return found
