"""ReadBatch a second at 224 px, two views each: dualtemp's loader against torchvision's ImageFolder and DataLoader.

    python benchmarks/photos.py --data FOLDER

FOLDER has class sub-folders with images. Both sides decode every image once and make two views of it: "crops" is a
random resized crop (bicubic) and a flip; "recipe" adds the paper's colour jitter and grayscale. Both end with
normalised float batches, use as many worker processes as the row says and one thread in each process. Rounds
alternate, the best of each counts.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader

from dualtemp.data.augment.recipes import RECIPES, Augmentation, Recipe
from dualtemp.data.augment.views import Views
from dualtemp.data.images import FileImages, ImageSet
from dualtemp.data.loading.loader import Loader
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()
warnings.filterwarnings("ignore")

from torchvision import transforms as v1  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROPS = Augmentation(jitter=None, grayscale=0.0)


class TwoViews:
    def __init__(self, transform: Callable) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> tuple[torch.Tensor, torch.Tensor]:
        return self.transform(image), self.transform(image)


def reference(folder: Path, colour: bool, batch: int, workers: int) -> DataLoader:
    steps: list[Callable] = [v1.RandomResizedCrop(SIZE, scale=(0.08, 1.0), interpolation=v1.InterpolationMode.BICUBIC)]
    if colour:
        steps += [v1.RandomApply([v1.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8), v1.RandomGrayscale(0.2)]
    steps += [v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    images = ImageFolder(str(folder), TwoViews(v1.Compose(steps)))
    return DataLoader(images, batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True)


def ours(folder: Path, colour: bool, batch: int, workers: int) -> Loader:
    names = tuple(name for name, _ in ImageFolder(str(folder)).samples)
    files = FileImages(folder, tuple(Path(name).relative_to(folder).as_posix() for name in names))
    recipe = RECIPES["paper"] if colour else Recipe(CROPS, CROPS)
    return Loader(ImageSet("photographs", files), Views(recipe, SIZE, 0, MEAN, STD), batch, workers=workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with class sub-folders")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"photographs a second, two views of {SIZE} px each, batch {arguments.batch}")
    print(f"{'':10}{'workers':>8}{'torchvision':>13}{'dualtemp':>10}{'ratio':>8}   best of {arguments.rounds} epochs")
    for colour in (False, True):
        for workers in (1, 2):
            theirs = reference(arguments.data, colour, arguments.batch, workers)
            with ours(arguments.data, colour, arguments.batch, workers) as loader:
                best = [float("inf"), float("inf")]
                for epoch in range(arguments.rounds + 1):
                    for side, batches in enumerate((theirs, loader.batches(epoch))):
                        begin = time.perf_counter()
                        for _ in batches:
                            pass
                        if epoch:  # the first one starts the workers
                            best[side] = min(best[side], time.perf_counter() - begin)
                shown = loader.steps * arguments.batch
            rates = [shown / seconds for seconds in best]
            name = "recipe" if colour else "crops"
            print(f"{name:10}{workers:8}{rates[0]:13,.0f}{rates[1]:10,.0f}{rates[1] / rates[0]:6.1f} x", flush=True)
            del theirs


if __name__ == "__main__":
    main()
