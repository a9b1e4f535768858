"""Choose settings for the user's own images that suit the images and the device.

The rules are in docs/own-images.md. Settings that the user gave are never changed, and the same images on the same kind
of device get the same settings. Needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualtemp.config import Settings
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE
from dualtemp.frameworks import framework_named
from dualtemp.training.schedule import quoted_lr

LARGEST_VIEW_ON_CPU = 128
SMALLEST_VIEW = 8
BATCH_ON_CPU = 64  # on accelerators, the default
STEP_SIZE = 0.06  # highest learning rate of SGD as applied in a step; `lr` is quoted at batch 256
EVALUATIONS = 20  # about this many in a run
PHOTOGRAPH = 96  # px; images with at least this typical shorter side profit from a start of ImageNet

# A pretrained start is adapted with care: docs/results/starts has the measurements behind these.
ADAPTED: dict[str, Any] = {
    "freeze": -1,
    "freeze_batch_norm": True,
    "layer_decay": 0.03,
    "anchor": 20.0,
    "stop_below_start": True,
}
ADAPTED_EPOCHS = 3
HELD_OUT_OF = 10  # one of this many images per class is held out to decide when to stop; smaller classes rule it out

# Epochs for small folders and for large ones.
MOST_EPOCHS, FEWEST_EPOCHS = 400, 10
SECONDS_ON_CPU = 1800  # on one core, between these limits
IMAGES_ON_ACCELERATOR = 20_000_000  # images seen in all: 200 passes over 100,000
ROUND = (10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400)


@dataclass(frozen=True)
class Facts:
    """The facts about images on which settings depend.

    images: number to learn from; classes: 0 without labels; side: in pixels, the typical shorter side of images in
    files, the larger side of images in memory; in_files: whether they are read from files; labeled: how many of them
    have a label; 0 if unknown, which counts as all.
    """

    images: int
    classes: int
    side: int
    in_files: bool
    labeled: int = 0


@dataclass(frozen=True)
class Adapted:
    """A pretrained start that a run begins from: its network, and the side of the images that it was trained with."""

    network: str
    size: int


def sensible(facts: Facts, device: str, given: Mapping[str, Any], start: Adapted | None = None) -> dict[str, Any]:
    """Choose settings that are not among the given ones, by name.

    device: "cpu", or the type of an accelerator ("cuda", "mps"); given: the user's settings by name; start: what the
    run begins from, if that is a pretrained network.
    """
    on_cpu = device == "cpu"
    chosen: dict[str, Any] = {
        "backbone": start.network if start else "resnet_mini" if on_cpu else "resnet18",
        "image_size": start.size if start else view_size(facts, on_cpu),
        "batch": batch_size(facts.images, BATCH_ON_CPU if on_cpu else default("batch")),
    }
    both = {**chosen, **given}
    chosen["epochs"] = ADAPTED_EPOCHS if start else passes(facts, both, on_cpu)
    if start:
        chosen |= ADAPTED
        if facts.classes < 2 or (facts.labeled or facts.images) < HELD_OUT_OF * facts.classes:
            del chosen["stop_below_start"]
    if both.get("optimizer", "sgd") == "sgd":
        chosen["lr"] = quoted_lr(STEP_SIZE, both["batch"])
    chosen["evaluate_every"] = max(1, {**chosen, **given}["epochs"] // EVALUATIONS)
    if facts.classes:
        chosen["knn"] = "auto"
    kind = framework_named(both.get("method", default("method")))
    options = kind.Settings(**{name: both[name] for name in kind.Settings.model_fields if name in both})
    chosen |= kind.suggest(options, facts.images, both["batch"])
    return {name: value for name, value in chosen.items() if name not in given}


def default(name: str) -> Any:
    """The default of a setting."""
    return Settings.model_fields[name].default


def view_size(facts: Facts, on_cpu: bool) -> int:
    """Side of a view: small images keep their size, large ones are limited by the device."""
    largest = LARGEST_VIEW_ON_CPU if on_cpu else DEFAULT_VIEW_SIZE
    if not facts.in_files:
        return min(largest, facts.side)
    return max(SMALLEST_VIEW, min(largest, facts.side // 8 * 8))


def batch_size(images: int, largest: int) -> int:
    """A power of two, small enough for four steps an epoch if there are enough images."""
    return max(2, min(largest, power_of_two(images // 4)))


def passes(facts: Facts, both: Mapping[str, Any], on_cpu: bool) -> int:
    """A round number of epochs: many for a small folder, few for a large one, within the limits above."""
    if on_cpu:
        wanted = SECONDS_ON_CPU / (
            facts.images * seconds_an_image(both["backbone"], both["image_size"], facts.in_files)
        )
    else:
        wanted = IMAGES_ON_ACCELERATOR / facts.images
    return max((number for number in ROUND if FEWEST_EPOCHS <= number <= min(wanted, MOST_EPOCHS)), default=ROUND[0])


def seconds_an_image(backbone: str, image_size: int, in_files: bool) -> float:
    """Seconds per image in an epoch of SimCo on one core, fitted to measured steps; see docs/own-images.md."""
    encoder = 0.001 + (image_size / 47) ** 2 * 0.001
    if backbone != "resnet_mini":
        encoder *= 20
    return encoder + (0.002 if in_files else 0.0)


def power_of_two(most: int) -> int:
    """The largest power of two that is not above `most`; 1 at least."""
    return 1 << max(0, most.bit_length() - 1) if most > 0 else 1
