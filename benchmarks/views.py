"""Views a second at 32 px with the paper's recipe, one thread: dualtemp against its peers, in one run.

    python benchmarks/views.py [--data train.npz]

Every peer crops, jitters, greys, flips and normalises with the same ranges and probabilities, and ends with a float
batch of 256. Peers get the form that suits them best: PIL images or uint8 tensors made beforehand. What differs is
said in the table. The rounds of all peers alternate, and the best of each counts. --data takes images (uint8 NHWC, 32
px) from an .npz file.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image

from dualtemp.data.augment.views import Views
from dualtemp.data.normalization import CIFAR10
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()
warnings.filterwarnings("ignore")

import kornia.augmentation as K  # noqa: E402
from lightly.transforms.simclr_transform import SimCLRViewTransform  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

SIZE, BATCH, BATCHES = 32, 256, 4
MEAN, STD = CIFAR10
BICUBIC = v1.InterpolationMode.BICUBIC
Batches = list[torch.Tensor]


def structured_images(count: int) -> torch.Tensor:
    """Smooth coloured images with edges and noise, for want of real ones: uint8 (count, 3, 32, 32)."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (SIZE, SIZE), mode="bilinear")
    smooth[:, :, 8:20, 10:26] = torch.rand(count, 3, 1, 1, generator=generator)
    noise = 0.05 * torch.randn(count, 3, SIZE, SIZE, generator=generator)
    return ((smooth + noise).clamp(0, 1) * 255).to(torch.uint8)


def load(path: str | None, count: int) -> torch.Tensor:
    if path is None:
        return structured_images(count)
    with np.load(path) as file:
        return torch.from_numpy(file["images"][:count]).permute(0, 3, 1, 2).contiguous()


def ours(images: torch.Tensor) -> Callable[[], None]:
    views = Views("paper", SIZE, 0, MEAN, STD)
    index = torch.arange(len(images)).split(BATCH)
    epoch = iter(range(1 << 30))

    def run() -> None:
        now = next(epoch)
        for part in index:
            views(images.index_select(0, part), part, now, 0)

    return run


def one_by_one(transform: Callable, items: list) -> Callable[[], None]:
    def run() -> None:
        for start in range(0, len(items), BATCH):
            torch.stack([transform(item) for item in items[start : start + BATCH]])

    return run


def torchvision_pil(pictures: list[Image.Image]) -> Callable[[], None]:
    steps = [
        v1.RandomResizedCrop(SIZE, scale=(0.08, 1.0), interpolation=BICUBIC),
        v1.RandomApply([v1.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        v1.RandomGrayscale(0.2),
        v1.RandomHorizontalFlip(),
        v1.ToTensor(),
        v1.Normalize(MEAN, STD),
    ]
    return one_by_one(v1.Compose(steps), pictures)


def torchvision_v2(images: torch.Tensor) -> Callable[[], None]:
    steps = [
        v2.RandomResizedCrop(SIZE, scale=(0.08, 1.0), interpolation=BICUBIC, antialias=True),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        v2.RandomGrayscale(0.2),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(MEAN), list(STD)),
    ]
    return one_by_one(v2.Compose(steps), list(images))


def lightly(pictures: list[Image.Image]) -> Callable[[], None]:
    transform = SimCLRViewTransform(
        input_size=SIZE, cj_strength=0.5, gaussian_blur=0.0, normalize={"mean": list(MEAN), "std": list(STD)}
    )
    return one_by_one(transform, pictures)


def kornia(images: torch.Tensor, mode: str) -> Callable[[], None]:
    steps = torch.nn.Sequential(
        K.RandomResizedCrop(
            (SIZE, SIZE), scale=(0.08, 1.0), resample="BICUBIC", align_corners=False, cropping_mode=mode
        ),
        K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomHorizontalFlip(p=0.5),
        K.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
    )

    @torch.no_grad()
    def run() -> None:
        for part in images.split(BATCH):
            steps(part.to(torch.float32) / 255)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="an .npz file with images, uint8 (N, 32, 32, 3)")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = load(arguments.data, BATCH * BATCHES)
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    peers: dict[str, tuple[Callable[[], None], str]] = {
        "dualtemp": (ours(images), "jitter order for each image"),
        "torchvision, PIL": (torchvision_pil(pictures), ""),
        "torchvision, v2 tensors": (torchvision_v2(images), ""),
        "lightly SimCLRViewTransform": (lightly(pictures), "resizes bilinear"),
        "kornia, slice": (kornia(images, "slice"), "no antialias, one jitter order a batch"),
        "kornia, resample": (kornia(images, "resample"), "no antialias, one jitter order a batch"),
    }
    best = dict.fromkeys(peers, float("inf"))
    for round_number in range(arguments.rounds + 1):
        for name, (run, _) in peers.items():
            begin = time.perf_counter()
            run()
            if round_number:  # the first one warms up
                best[name] = min(best[name], time.perf_counter() - begin)
    mine = len(images) / best["dualtemp"]
    print(f"views a second, {SIZE} px, paper's recipe, batch {BATCH}, 1 thread, best of {arguments.rounds} rounds")
    print(f"{'':30}{'views/s':>10}{'dualtemp is':>13}")
    for name, (_, remark) in peers.items():
        rate = len(images) / best[name]
        print(f"{name:30}{rate:10,.0f}{mine / rate:11.1f} x   {remark}")


if __name__ == "__main__":
    main()
