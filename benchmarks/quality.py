"""Quality for time: kNN and a linear probe on CIFAR-10 after so many minutes of one core, with one network.

    python benchmarks/quality.py --minutes 3 10 30
    python benchmarks/quality.py --minutes 3 --held-out              to choose settings: test images stay unseen
    python benchmarks/quality.py --minutes 3 --held-out --only demo --set optimizer=sgd lr=0.5 weight_decay=0.0005

    demo        what `make demo` trains
    solo-learn  SimCLR with the settings of solo-learn's script for CIFAR-10, trained by dualtemp
    lightly     lightly's SimCLR: its views, head and loss in a plain loop, with the settings of its CIFAR-10 example

Every contestant trains `resnet_mini` on one thread for as many steps as fit into the time, with its schedule drawn to
that length. Time is processor time of views, steps and everything between; starting and measuring are not counted. A
contestant passes at least four times over its images, so that a short time means fewer images. Each network is read
by the same probe and the same kNN (20 neighbors) with all labeled training images.
"""

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

import dualtemp
from dualtemp.commands.demo import FAST
from dualtemp.data import open_source
from dualtemp.data.images import ImageSet
from dualtemp.data.sources.validation import held_out_for_validation
from dualtemp.evaluation.knn import knn_accuracy
from dualtemp.evaluation.probe import linear_probe
from dualtemp.models.resnet_mini import ResNetMini
from dualtemp.torchvision_operators import declare_missing_operators

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NEIGHBORS, PASSES, SIZE = 20, 4, 32
QUIET: dict[str, Any] = {"device": "cpu", "threads": 1, "workers": 0, "quiet": True, "page": False}
UNMEASURED = {"evaluate_every": 10**6, "knn": 20, "knn_images": 500}  # what a run measures of itself is not its rate
SOLO_LEARN: dict[str, Any] = {
    "method": "simclr",
    "backbone": "resnet_mini",
    "recipe": "simclr",
    "tau_alpha": 0.2,
    "batch": 256,
    "optimizer": "lars",
    "lr": 0.4,
    "weight_decay": 1e-4,
}
NAMES = ("demo", "solo-learn", "lightly")


def pixels(images: ImageSet) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) as uint8, and their labels."""
    assert images.source.tensor is not None
    assert images.labels is not None
    return images.source.tensor, images.labels


@torch.no_grad()
def features(network: torch.nn.Module, images: Tensor) -> Tensor:
    network.eval()
    mean, std = (torch.tensor(x).view(1, 3, 1, 1) for x in (MEAN, STD))
    return torch.cat([network((part.float() / 255 - mean) / std) for part in images.split(500)])


def train_here(settings: dict[str, Any], most: int, minutes: float) -> torch.nn.Module:
    """Train with dualtemp for so long; the rate is measured by two short runs, after one that pays for first times."""
    settings = {**settings, **UNMEASURED, **QUIET}
    with tempfile.TemporaryDirectory() as place:

        def seconds(images: int, epochs: int, name: str) -> float:
            began = time.process_time()
            dualtemp.train(**{**settings, "warmup_epochs": 0}, subset=images, epochs=epochs, out=Path(place) / name)
            return time.process_time() - began

        batch = settings["batch"]
        few, many = 4 * batch, 44 * batch
        seconds(few, 1, "first")
        rate = (seconds(many, 1, "many") - seconds(few, 1, "few")) / (many - few)
        subset, epochs = length(60 * minutes / rate, most)
        out = Path(place) / "run"
        began = time.process_time()
        dualtemp.train(**settings, subset=subset, epochs=epochs, out=out)
        taken = time.process_time() - began
        network = ResNetMini(SIZE)
        network.load_state_dict(load_file(out / "backbone.safetensors"))
    print(f"    {subset:,} images, {epochs} epochs, {taken / 60:.1f} processor minutes with start and end", flush=True)
    return network


def length(seen: float, most: int) -> tuple[int, int]:
    """How many images, and how often, for so many in all."""
    images = min(most, int(seen / PASSES))
    return images, max(1, round(seen / images))


def train_lightly(images: Tensor, minutes: float, seed: int) -> torch.nn.Module:
    """lightly's SimCLR, in its own parts, for so long."""
    declare_missing_operators()
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead
    from lightly.transforms.simclr_transform import SimCLRTransform
    from torchvision.transforms.functional import to_pil_image

    torch.manual_seed(seed)
    network = ResNetMini(SIZE)
    head, loss = SimCLRProjectionHead(network.num_features, network.num_features, 128), NTXentLoss()
    views = SimCLRTransform(input_size=SIZE, gaussian_blur=0.0)
    optimizer = torch.optim.SGD([*network.parameters(), *head.parameters()], lr=0.06, momentum=0.9, weight_decay=5e-4)
    batch, budget = 256, 60 * minutes
    spent, steps, pool, order = 0.0, 0, len(images), torch.randperm(len(images))
    while spent < budget:
        began = time.process_time()
        if steps == 3:  # the rate is known: at least four passes over the images
            pool = length(batch * steps / spent * budget, len(images))[0]
            order = order[:pool]
        at = steps * batch % max(1, pool - batch + 1)
        if at < batch:
            order = order[torch.randperm(len(order))]
        pairs = [views(to_pil_image(images[i])) for i in order[at : at + batch]]
        for group in optimizer.param_groups:
            group["lr"] = 0.06 * 0.5 * (1 + math.cos(math.pi * spent / budget))
        x0, x1 = (torch.stack([torch.as_tensor(pair[side]) for pair in pairs]) for side in (0, 1))
        value = loss(head(network(x0)), head(network(x1)))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        spent, steps = spent + time.process_time() - began, steps + 1
    print(f"    {pool:,} images, {batch * steps / pool:.0f} epochs", flush=True)
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, nargs="+", default=[3, 10, 30])
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--held-out", action="store_true", help="measure on a tenth of the training images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="change settings of the demo")
    given = parser.parse_args()
    changes = {name: yaml.safe_load(value) for name, value in (pair.split("=", 1) for pair in given.set)}
    settings = {"demo": FAST | changes, "solo-learn": SOLO_LEARN}
    torch.set_num_threads(1)
    splits = open_source(given.data)
    splits = held_out_for_validation(splits) if given.held_out else splits
    assert splits.test is not None
    (images, labels), asked = pixels(splits.train), pixels(splits.test)
    print(f"{'minutes':>8}  {'':12}{'kNN':>8}{'probe':>8}")
    for minutes in given.minutes:
        for name in given.only:
            if name == "lightly":
                network = train_lightly(images, minutes, given.seed)
            else:
                common = {"data": given.data, "seed": given.seed, "validate": "held-out" if given.held_out else "test"}
                network = train_here({**settings[name], **common}, len(images), minutes)
            bank, found = features(network, images), features(network, asked[0])
            knn = knn_accuracy(bank, labels, found, asked[1], k=NEIGHBORS).top1
            probe = linear_probe(bank, labels, found, asked[1]).top1
            print(f"{minutes:>8g}  {name:12}{100 * knn:7.1f}%{100 * probe:7.1f}%", flush=True)


if __name__ == "__main__":
    main()
