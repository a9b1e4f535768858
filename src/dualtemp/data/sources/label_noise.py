"""Label noise: make an exact share of the training labels wrong. Test labels are never touched.

Exactly round(rate * n) of the n labels of a class change, whatever the seed; the seed decides which ones, and to what.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.subset import NOISE_WHERE, NOISE_WHICH, random_keys, rank_within
from dualtemp.errors import UserError

Kind = Literal["symmetric", "asymmetric"]

CIFAR10_FLIPS = {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}
CIFAR100_GROUPS = tuple(
    tuple(group.split())
    for group in (
        "beaver dolphin otter seal whale",
        "aquarium_fish flatfish ray shark trout",
        "orchid poppy rose sunflower tulip",
        "bottle bowl can cup plate",
        "apple mushroom orange pear sweet_pepper",
        "clock keyboard lamp telephone television",
        "bed chair couch table wardrobe",
        "bee beetle butterfly caterpillar cockroach",
        "bear leopard lion tiger wolf",
        "bridge castle house road skyscraper",
        "cloud forest mountain plain sea",
        "camel cattle chimpanzee elephant kangaroo",
        "fox porcupine possum raccoon skunk",
        "crab lobster snail spider worm",
        "baby boy girl man woman",
        "crocodile dinosaur lizard snake turtle",
        "hamster mouse rabbit shrew squirrel",
        "maple_tree oak_tree palm_tree pine_tree willow_tree",
        "bicycle bus motorcycle pickup_truck train",
        "lawn_mower rocket streetcar tank tractor",
    )
)


def with_label_noise(splits: Splits, kind: Kind, rate: float, seed: int = 0) -> Splits:
    """Return the splits with noisy training labels, otherwise unchanged."""
    return replace(splits, train=noisy(splits.train, kind, rate, seed))


def noisy(images: ImageSet, kind: Kind, rate: float, seed: int = 0) -> ImageSet:
    """Return a labeled set with noisy labels.

    symmetric: a label changes to one of the other classes, all equally likely.
    asymmetric: a label changes to the class that `asymmetric_target` gives for it; classes without one stay clean.
    rate in [0, 1] is the share of each class (asymmetric: of each class that has a target) that changes.
    """
    if images.labels is None:
        raise UserError(f"label noise on '{images.name}': the set has no labels; take one with labels, or no noise")
    if not 0 <= rate <= 1:
        raise UserError(f"label noise rate {rate}: expected a number from 0 to 1")
    if kind not in ("symmetric", "asymmetric"):
        raise UserError(f"label noise '{kind}': expected 'symmetric' or 'asymmetric'")
    if len(images.classes) < 2:
        raise UserError(f"label noise on '{images.name}': the set has one class; at least two are needed")
    labels = noisy_labels(images.labels, len(images.classes), asymmetric_target(images.classes), kind, rate, seed)
    return replace(images, labels=labels)


def noisy_labels(labels: Tensor, classes: int, target: np.ndarray, kind: Kind, rate: float, seed: int) -> Tensor:
    """The same on tensors: labels int64 (N,), target int64 (classes,) from `asymmetric_target` -> int64 (N,)."""
    old = labels.cpu().numpy()
    counts = np.array([round(rate * int(n)) for n in np.bincount(old[old >= 0], minlength=classes)])
    rank = rank_within(old, random_keys(seed, NOISE_WHICH, len(old)))
    changed = (old >= 0) & (rank < counts[old])
    if kind == "symmetric":
        # The high 32 bits times (classes - 1), shifted: uniform over the other classes to within 2^-32.
        high = random_keys(seed, NOISE_WHERE, len(old)) >> np.uint64(32)
        step = 1 + ((high * np.uint64(classes - 1)) >> np.uint64(32)).astype(np.int64)
        new = (old + step) % classes
    else:
        new = target[old]
    return torch.from_numpy(np.where(changed, new, old)).to(labels.device)


def asymmetric_target(classes: tuple[str, ...]) -> np.ndarray:
    """For each class, the class that it is mistaken for, or itself: int64 (classes,).

    CIFAR-10: truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog, the other five stay clean.
    CIFAR-100: the next of the five classes of its superclass, cyclically. Others: the next class, cyclically.
    """
    number = {name: label for label, name in enumerate(classes)}
    if len(classes) == 10 and set(CIFAR10_FLIPS) | set(CIFAR10_FLIPS.values()) <= set(classes):
        mistaken = {name: CIFAR10_FLIPS.get(name, name) for name in classes}
    elif set(classes) == {name for group in CIFAR100_GROUPS for name in group}:
        circles = [dict(zip(group, (*group[1:], group[0]), strict=True)) for group in CIFAR100_GROUPS]
        mistaken = {name: other for circle in circles for name, other in circle.items()}
    else:
        mistaken = dict(zip(classes, (*classes[1:], classes[0]), strict=True))
    return np.array([number[mistaken[name]] for name in classes], dtype=np.int64)
