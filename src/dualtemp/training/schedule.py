"""Learning rate and seed of a step, from its position in the run."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

LR_BATCH = 256  # the batch at which `lr` is quoted


def lr_factor(step: int, steps: int, warmup: int) -> float:
    """Factor of the highest learning rate at a step: linear warm-up, then a cosine to 0.

    step: from 0; steps: of the whole run; warmup: steps of warm-up. The first step has 1 / warmup of the rate, the
    first step after warm-up the full rate.
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def highest_lr(lr: float, batch: int) -> float:
    """The linear scaling rule: `lr` is quoted at batch 256."""
    return lr * batch / LR_BATCH


def schedule_change(done: int, steps: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """A sentence on how another number of epochs changes the learning rate after `done` steps; "" if it is the same.

    steps: of an epoch; before, after: settings of the run so far, and those with which it continues.
    """
    if before["epochs"] == after["epochs"]:
        return ""

    def rate(step: int, chosen: Mapping[str, Any]) -> float:
        warmup = round((chosen["warmup_epochs"] or 0) * steps)
        return highest_lr(chosen["lr"], chosen["batch"]) * lr_factor(step, chosen["epochs"] * steps, warmup)

    return (
        f"the learning rate's cosine now ends at epoch {after['epochs']} instead of {before['epochs']}: its last step "
        f"had {rate(done - 1, before):.3g}, the next has {rate(done, after):.3g}"
    )


def quoted_lr(highest: float, batch: int) -> float:
    """The inverse of `highest_lr`: the `lr` whose highest rate at this batch is `highest`."""
    return highest * LR_BATCH / batch


def step_seed(seed: int, step: int, rank: int) -> int:
    """Seed of a network's own random draws in a step, such as dropout; below 2^63."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
