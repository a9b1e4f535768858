"""What separates near-duplicates from other images: precision and recall by threshold, with copies made here.

    python benchmarks/near_duplicates.py RUN --data FOLDER

Of every image a copy is made: re-encoded (JPEG, quality 50), resized (to half its side), cropped (nine tenths of each
side), mirrored. Recall is the share of the copies whose cosine with their original reaches the threshold. "others" are
pairs of different originals that reach it: among real images some are near-duplicates themselves. Precision is that of
a folder in which every tenth image has a copy of the kind: copies found / (copies found + others).
"""

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

from dualtemp.data.image_source import to_tensor
from dualtemp.data.loading.crop_files import clean_crop
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.image_list import ImageList, listed
from dualtemp.encoder.near_duplicates import similar_pairs
from dualtemp.losses.similarity import unit

THRESHOLDS = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)


def encoded(picture: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=50)
    return Image.open(buffer).convert(picture.mode)


def resized(picture: Image.Image) -> Image.Image:
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BICUBIC)


def cropped(picture: Image.Image) -> Image.Image:
    width, height = picture.width * 9 // 10, picture.height * 9 // 10
    left, top = (picture.width - width) // 2, 0
    return picture.crop((left, top, left + width, top + height))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "re-encoded": encoded,
    "resized": resized,
    "cropped": cropped,
    "mirrored": ImageOps.mirror,
}


def pictures(images: ImageList, count: int) -> list[Image.Image]:
    return [images.images.source.open(i) for i in range(min(count, len(images)))]


def features(encoder: RunEncoder, shown: list[Image.Image], both: bool) -> Tensor:
    found = []
    for start in range(0, len(shown), 256):
        crops = [clean_crop(to_tensor(each), encoder.views.size) for each in shown[start : start + 256]]
        views = encoder.views.normalize(torch.stack(crops))
        each = encoder.of_views(views)
        found.append((each + encoder.of_views(views.flip(3))) / 2 if both else each)
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    encoder = run_encoder(arguments.run, "cpu")
    originals = pictures(listed(arguments.data), arguments.images)
    made = {name: [change(each) for each in originals] for name, change in COPIES.items()}
    for both in (False, True):
        base = features(encoder, originals, both)
        _, others, _ = similar_pairs(base, min(THRESHOLDS))
        (z,) = unit(base)
        cosines = {name: (z * unit(features(encoder, copies, both))[0]).sum(1) for name, copies in made.items()}
        print(f"{len(originals)} images{', --mirrored' if both else ''}; recall / precision, %")
        print(f"{'threshold':>10}" + "".join(f"{name:>14}" for name in cosines) + f"{'others':>9}")
        for threshold in THRESHOLDS:
            wrong = int((others >= threshold).sum())
            line = f"{threshold:10}"
            for s in cosines.values():
                recall = float((s >= threshold).double().mean())
                right = recall * len(originals) / 10
                precision = f"{100 * right / (right + wrong):.0f}" if right + wrong else "-"
                line += f"{f'{100 * recall:.1f} / {precision}':>14}"
            print(f"{line}{wrong:9}", flush=True)


if __name__ == "__main__":
    main()
