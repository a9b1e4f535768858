"""ReadBatch a second from files to a file of features: `dualtemp.encoder.embed` against the plain way.

    python benchmarks/embed.py --data FOLDER

FOLDER has class sub-folders with images. "forward" is the network alone, on one batch that is in memory already;
"dualtemp" writes a .parquet file; "plain" is torchvision's ImageFolder with timm's evaluation transform and a
DataLoader, the same network, and numpy.save. Both read with as many worker processes as the row says, and compute with
one thread. Weights are drawn, not trained: they make no difference here. Rounds alternate, the best of each counts.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

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
    with RunFolder(path).create(chosen, {}):
        save_backbone(path / "backbone.safetensors", build_backbone(backbone, size, seed=0))
    return path


def forward_rate(encoder: RunEncoder, batch: int, seconds: float) -> float:
    views = torch.randn(batch, 3, encoder.views.size, encoder.views.size)
    encoder.of_views(views)
    best, begin = 0.0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        encoder.of_views(views)
        best = max(best, batch / (time.perf_counter() - start))
    return best


def plain(encoder: RunEncoder, folder: Path, batch: int, out: Path) -> int:
    size = encoder.views.size
    crop = 0.875 if size >= 128 else 1.0
    shape = (3, size, size)
    transform = create_transform(
        shape, is_training=False, interpolation="bicubic", crop_pct=crop, mean=encoder.views.mean, std=encoder.views.std
    )
    images = ImageFolder(str(folder), transform)  # pyright: ignore[reportArgumentType]
    with torch.inference_mode():
        batches = DataLoader(images, batch, num_workers=WORKERS)
        features = [encoder.backbone(pixels).numpy() for pixels, _ in batches]
    np.save(out, np.concatenate(features))
    return len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with class sub-folders")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--size", type=int, default=224, help="of the network's images, px")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"photographs a second, {WORKERS} worker process, batch {arguments.batch}, best of {arguments.rounds}")
    print(f"{'network':20}{'forward':>9}{'dualtemp':>10}{'of forward':>12}{'plain':>8}{'ratio':>8}")
    backbone, size = arguments.backbone, arguments.size
    with tempfile.TemporaryDirectory() as folder:
        run = untrained_run(Path(folder) / "run", backbone, size, arguments.data)
        encoder = run_encoder(run, "cpu")
        ours = theirs = forward = 0.0
        for _ in range(arguments.rounds):
            forward = max(forward, forward_rate(encoder, arguments.batch, 3))
            begin = time.perf_counter()
            out = Path(folder) / "features.parquet"
            made = embed(run, data=arguments.data, out=out, batch=arguments.batch, workers=WORKERS, device="cpu")
            ours = max(ours, made.images / (time.perf_counter() - begin))
            begin = time.perf_counter()
            count = plain(encoder, arguments.data, arguments.batch, Path(folder) / "features.npy")
            theirs = max(theirs, count / (time.perf_counter() - begin))
    print(
        f"{f'{backbone}, {size} px':20}{forward:9,.0f}{ours:10,.0f}{ours / forward:11.0%} {theirs:8,.0f}"
        f"{ours / theirs:6.2f} x"
    )


if __name__ == "__main__":
    main()
