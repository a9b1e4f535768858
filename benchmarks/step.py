"""Images per second of a training step, per framework, against the encoder passes that it cannot do without.

    python benchmarks/step.py

One run, one thread. The limit of a framework is its passes alone: forward and backward for queries, forward alone for
keys, on ready-made views. The share of it that a whole step reaches (views, loss, dictionary, optimiser, momentum,
online probe) is what our own code costs. Four passes a step, two of queries with gradient and two of keys, is what the
authors' code runs for every framework.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from dualtemp.config import complete, settings
from dualtemp.data import open_source
from dualtemp.data.loading.loader import Loader
from dualtemp.frameworks import build_framework
from dualtemp.training.run_data import image_size, opened, training_data
from dualtemp.training.train_step import TrainStep

CPU = torch.device("cpu")

# framework and settings: passes with gradient, passes without
FRAMEWORKS: dict[str, tuple[dict[str, Any], int, int]] = {
    "moco": ({"method": "moco", "dictionary_size": 16384}, 1, 1),
    "simmoco": ({"method": "simmoco"}, 1, 1),
    "simco": ({"method": "simco"}, 2, 0),
    "simclr": ({"method": "simclr"}, 2, 0),
    "byol": ({"method": "byol"}, 2, 2),
    "simsiam": ({"method": "simsiam"}, 2, 0),
    "supervised": ({"method": "supervised"}, 1, 0),
    "vicreg": ({"method": "vicreg"}, 2, 0),
    "barlow_twins": ({"method": "barlow_twins"}, 2, 0),
}


def best(step: Callable[[], None], seconds: float) -> float:
    """Seconds of the quickest step."""
    step()
    quickest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        step()
        quickest = min(quickest, time.perf_counter() - start)
    return quickest


def passes(network: Any, view: torch.Tensor, queries: int, keys: int) -> Callable[[], None]:
    """The passes of a step through the whole network (backbone and heads) and nothing else."""

    def step() -> None:
        network.zero_grad(set_to_none=True)
        for _ in range(queries):
            network(view).prediction.sum().backward()
        with torch.no_grad():
            for _ in range(keys):
                network(view)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--backbone", default="resnet_mini")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each measurement")
    parser.add_argument("--only", nargs="+", choices=list(FRAMEWORKS), default=list(FRAMEWORKS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{given.data}, {given.backbone}, batch {given.batch}, one thread")
    print(f"{'framework':<12}{'images/s':>10}{'passes alone':>14}{'share':>8}{'four passes':>13}{'ratio':>8}")
    for name in given.only:
        values, queries, keys = FRAMEWORKS[name]
        chosen = settings({"data": given.data, "backbone": given.backbone, "batch": given.batch, **values})
        splits = open_source(given.data)
        chosen = complete(chosen, image_size(splits))
        data = training_data(chosen, opened(chosen))
        train_step = TrainStep(chosen, build_framework(chosen, data.images.channels, data.classes), data, CPU)
        loader = Loader(data.images, data.views, chosen.batch, count=chosen.framework.views)
        batches = loader.batches(0)

        def whole(batches=batches, train_step=train_step) -> None:
            train_step(next(batches), 0, factor=0.01)

        view = next(batches).views[0].contiguous(memory_format=torch.channels_last)
        step = best(whole, given.seconds)
        alone = best(passes(train_step.network, view, queries, keys), given.seconds)
        four = best(passes(train_step.network, view, 2, 2), given.seconds)
        print(
            f"{name:<12}{given.batch / step:>10.0f}{given.batch / alone:>14.0f}{alone / step:>8.2f}"
            f"{given.batch / four:>13.0f}{four / step:>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
