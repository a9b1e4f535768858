"""Processor time from files to a file of features: `dualtemp embed` against the plain ways.

    python benchmarks/embed.py --data FOLDER

FOLDER has class sub-folders with images. "forward" is the network alone, on one batch that is in memory already.
"embed" writes an .npz file, "quick" is the same with --quick; "DataLoader" is torchvision's ImageFolder with timm's
evaluation transform and a DataLoader; "Pillow" a loop over the files that decodes, resizes and crops with Pillow and
stacks batches with numpy. All have the same network and one thread; the first three one worker process that reads.
Time is that of the processor, of all processes together, so that a busy machine counts little; rounds alternate, the
best of each counts. "workers" is how many processes have to read for one that computes, so that none waits. Weights are
drawn, not trained: they make no difference to time. The last line tells how close quick features are.

    python benchmarks/embed.py --pieces 8,16,64 --backbone tf_efficientnet_lite0 --size 224

times the network alone, on so many images at once, in both memory formats.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

from dualtemp.config import complete, settings
from dualtemp.encoder.embed import embed
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.models.backbones import build_backbone
from dualtemp.models.weights import save_backbone
from dualtemp.runs.folder import RunFolder
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()

from timm.data.transforms_factory import create_transform  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402

WORKERS = 1


def untrained_run(path: Path, backbone: str, size: int, data: Path) -> Path:
    chosen = complete(settings({"data": str(data), "backbone": backbone, "image_size": size}), size)
    # As training writes it: without it every command would measure mean and deviation of the images anew.
    images = {"channels": 3, "size": size, "mean": (0.46, 0.45, 0.42), "std": (0.28, 0.28, 0.3), "classes": []}
    with RunFolder(path).create(chosen, {"images": images}):
        save_backbone(path / "backbone.safetensors", build_backbone(backbone, size, seed=0))
    return path


def processor_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def forward_seconds(encoder: RunEncoder, batch: int) -> float:
    """Seconds an image of the network alone, the best of three batches."""
    views = torch.randn(batch, 3, encoder.views.size, encoder.views.size)
    encoder.of_views(views)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        encoder.of_views(views)
        best = min(best, (time.process_time() - began) / batch)
    return best


def time_pieces(backbone: str, size: int, pieces: list[int], rounds: int) -> None:
    """Print milliseconds an image of the network alone, by the number of images at once and by memory format."""
    networks = {
        name: build_backbone(backbone, size, seed=0).eval().to(memory_format=format)  # pyright: ignore
        for name, format in (("channels-last", torch.channels_last), ("contiguous", torch.contiguous_format))
    }
    images = torch.randn(max(pieces), 3, size, size)
    best: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for name, network in networks.items():
            given = images.to(memory_format=torch.channels_last) if name == "channels-last" else images
            for piece in pieces:
                began = time.process_time()
                with torch.inference_mode():
                    for part in given.split(piece):
                        network(part)
                taken = (time.process_time() - began) / len(images)
                best[name, piece] = min(best.get((name, piece), taken), taken)
    for (name, piece), seconds in best.items():
        print(f"{backbone} at {size} px, {name}, {piece:>3} at once: {1e3 * seconds:.1f} ms an image")


def by_data_loader(encoder: RunEncoder, folder: Path, batch: int, images: int, out: Path) -> None:
    size = encoder.views.size
    crop, shape = size / encoder.views.shorter_side, (3, size, size)
    transform = create_transform(
        shape, is_training=False, interpolation="bicubic", crop_pct=crop, mean=encoder.views.mean, std=encoder.views.std
    )
    found = Subset(ImageFolder(str(folder), transform), range(images))  # pyright: ignore[reportArgumentType]
    with torch.inference_mode():
        features = [encoder.backbone(pixels).numpy() for pixels, _ in DataLoader(found, batch, num_workers=WORKERS)]
    np.save(out, np.concatenate(features))


def by_pillow(encoder: RunEncoder, files: list[Path], batch: int, out: Path) -> None:
    views = encoder.views
    mean, std = (np.array(each, np.float32).reshape(3, 1, 1) for each in (views.mean, views.std))

    def read(file: Path) -> np.ndarray:
        image = Image.open(file).convert("RGB")
        width, height = (int(views.shorter_side * side / min(image.size)) for side in image.size)
        left, top = round((width - views.size) / 2), round((height - views.size) / 2)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image = image.crop((left, top, left + views.size, top + views.size))
        return (np.asarray(image, np.float32).transpose(2, 0, 1) / 255 - mean) / std

    with torch.inference_mode():
        pieces = _pieces(files, batch)
        features = [encoder.backbone(torch.from_numpy(np.stack([read(f) for f in piece]))).numpy() for piece in pieces]
    np.save(out, np.concatenate(features))


def _pieces(files: list[Path], batch: int) -> Iterator[list[Path]]:
    for start in range(0, len(files), batch):
        yield files[start : start + batch]


def chosen_files(files: list[Path], root: Path, to: Path, enlarge: int | None) -> Path:
    """A folder of links to these files, in their class folders, or of JPEGs whose shorter side has so many pixels."""
    for file in files:
        place = to / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        if enlarge is None:
            place.symlink_to(file.resolve())
        else:
            image = Image.open(file).convert("RGB")
            factor = enlarge / min(image.size)
            image.resize((round(image.width * factor), round(image.height * factor))).save(place, quality=90)
    return to


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with class sub-folders")
    parser.add_argument("--pieces", metavar="N,N,...", help="time the network alone on so many images at once")
    parser.add_argument("--backbone", default="resnet_mini")
    parser.add_argument("--size", type=int, default=64, help="of the network's images, px")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=256, help="so many of the folder, evenly spaced")
    parser.add_argument("--enlarge", type=int, metavar="PX", help="to this shorter side: like files of a camera")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.pieces:
        time_pieces(given.backbone, given.size, [int(word) for word in given.pieces.split(",")], given.rounds)
        return
    if given.data is None:
        parser.error("give --data FOLDER, or --pieces")
    every = [Path(path) for path, _ in ImageFolder(str(given.data)).samples]
    files = sorted(every[:: max(1, len(every) // given.images)][: given.images])
    print(f"{len(files)} images, {given.backbone} at {given.size} px, batch {given.batch}, best of {given.rounds}")
    with tempfile.TemporaryDirectory() as place:
        folder = chosen_files(files, given.data, Path(place) / "images", given.enlarge)
        files = [folder / file.relative_to(given.data) for file in files]
        run = untrained_run(Path(place) / "run", given.backbone, given.size, folder)
        encoder = run_encoder(run, "cpu")
        how: dict[str, Any] = {"data": folder, "batch": given.batch, "workers": WORKERS, "device": "cpu"}
        contestants: dict[str, Callable[[], object]] = {
            "embed": lambda: embed(run, out=Path(place) / "plain.npz", **how),
            "quick": lambda: embed(run, out=Path(place) / "quick.npz", quick=True, **how),
            "DataLoader": lambda: by_data_loader(encoder, folder, given.batch, len(files), Path(place) / "loader.npy"),
            "Pillow": lambda: by_pillow(encoder, files, given.batch, Path(place) / "pillow.npy"),
        }
        best, forward = dict.fromkeys(contestants, float("inf")), float("inf")
        for _ in range(given.rounds):
            forward = min(forward, forward_seconds(encoder, given.batch))
            for name, contestant in contestants.items():
                began = processor_seconds()
                contestant()
                best[name] = min(best[name], (processor_seconds() - began) / len(files))
        print(f"{'':12}{'ms an image':>12}{'images/s':>10}{'of forward':>12}{'workers':>9}{'to Pillow':>11}")
        for name, seconds in {"forward": forward, **best}.items():
            workers = f"{(seconds - forward) / forward:9.1f}" if name in best else ""
            print(
                f"{name:12}{1e3 * seconds:12.2f}{1 / seconds:10,.0f}{forward / seconds:12.0%}{workers:>9}"
                f"{best['Pillow'] / seconds:10.2f}x"
            )
        one, other = (np.load(Path(place) / f"{name}.npz")["features"] for name in ("plain", "quick"))
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    print(f"quick features: cosine with the others {cosines.mean():.5f} in the mean, {cosines.min():.5f} at worst")


if __name__ == "__main__":
    main()
