"""What a training step costs with frozen stages, by `--freeze`: processor time, and what autograd keeps.

    python -m benchmarks.frozen

SimCo on EfficientNet-Lite0, one thread, forward and backward of one batch of random views; contestants alternate, the
best of each counts. What is left to repeat from epoch to epoch is the forward pass of the frozen stages.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from dualtemp.config import complete, settings
from dualtemp.frameworks import build_framework
from dualtemp.models.stages import stage_names
from dualtemp.training.adaptation import Adaptation


def built_step(freeze: int, backbone: str, size: int, batch: int) -> Callable[[], tuple[float, float, float]]:
    """A step: seconds of forward and backward an image, and bytes an image that autograd keeps between them."""
    values: dict[str, Any] = {"data": "none", "backbone": backbone, "image_size": size, "batch": batch}
    chosen = complete(settings({**values, "freeze": freeze, "freeze_batch_norm": True}), size)
    method = build_framework(chosen, 3, batch).to(memory_format=torch.channels_last)  # pyright: ignore
    Adaptation(chosen, method, 1)
    weights = {p.untyped_storage().data_ptr() for p in method.parameters()}
    views = torch.randn(2, batch, 3, size, size).unbind()
    views = tuple(view.contiguous(memory_format=torch.channels_last) for view in views)

    def step() -> tuple[float, float, float]:
        kept: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        began = time.process_time()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = method(views, None, 0, torch.arange(batch)).loss
        between = time.process_time()
        loss.backward()
        method.zero_grad(set_to_none=True)
        held = sum(count for place, count in kept.items() if place not in weights)
        return (between - began) / batch, (time.process_time() - between) / batch, held / batch

    return step


def main() -> None:
    """Print a line for no frozen stage, for half of them and for all but the last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    given = vars(parser.parse_args())
    rounds = given.pop("rounds")
    torch.set_num_threads(1)
    from dualtemp.models.backbones import build_backbone

    stages = len(stage_names(build_backbone(given["backbone"], given["size"], 3, seed=0)))
    steps = {freeze: built_step(freeze, **given) for freeze in (0, stages // 2, stages - 1)}
    found = {freeze: [step()] for freeze, step in steps.items()}
    for _ in range(rounds - 1):
        for freeze, step in steps.items():
            found[freeze].append(step())
    best = {freeze: [min(values) for values in zip(*some, strict=True)] for freeze, some in found.items()}
    whole = sum(best[0][:2])
    print("frozen stages | forward, ms an image | backward | step, of all learning | kept for backward, MB an image")
    for freeze, (forward, backward, held) in best.items():
        share = (forward + backward) / whole
        print(f"{freeze} of {stages} | {1e3 * forward:.1f} | {1e3 * backward:.1f} | {share:.0%} | {held / 1e6:.1f}")


if __name__ == "__main__":
    main()
