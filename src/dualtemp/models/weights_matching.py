"""Which tensor of a weights file is which of a network: by name, else by order and shape; never guessed.

Frameworks name the same network differently, but list its tensors in the order in which it is written down. Order and
shape decide only if they agree from the first tensor to the last, and so do the kinds (weight, bias, running_mean,
running_var), without which neighbors of the same shape could be exchanged. A file that lists its names alphabetically,
as safetensors does, has lost the order: there each shape must occur once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import Tensor

# Prefixes of the layers after the features, in files of timm and torchvision.
CLASSIFIERS = ("fc.", "head.", "classifier.", "head_dist.", "last_linear.")
COUNTER = "num_batches_tracked"  # of batch norm; nothing here needs it, and older files lack it
KINDS = {
    **{kind: kind for kind in ("weight", "bias", "running_mean", "running_var")},
    **{"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"},
    **{"kernel": "weight", "scale": "weight"},
}
TOLD = 3  # differences


class Fit(NamedTuple):
    """Weights by the network's names; by_order: its tensors were matched by order and shape, not by name."""

    tensors: dict[str, Tensor]
    by_order: bool = False


class Misfit(ValueError):
    """Weights of another network. fitting, of: tensors that fit, and that there are; differences: the first three."""

    def __init__(self, fitting: int, of: int, differences: list[str]) -> None:
        self.fitting, self.of, self.differences = fitting, of, differences[:TOLD]
        super().__init__(f"{fitting} of {of} tensors fit; {'; '.join(self.differences)}")


def match_weights(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> Fit:
    """Find each tensor of a network among those of a file, or raise `Misfit`.

    A classifier in the file is ignored, and so is everything besides the network if its names have a prefix such as
    "module.", "backbone." or "encoder." (if several fit, the first in the file is taken: in MoCo's, the query encoder).

    Args:
        weights: of the file, in its order.
        own: the network's state dict.
    """
    found = _without_prefix(weights, own)
    named = list(_differences_by_name(found, own))
    if not named:
        return Fit({name: found[name] for name in own if name in found})
    fitting = sum(name in found and found[name].shape == own[name].shape for name in own)
    theirs, ours = _with_order(weights), _with_order(own)
    ordered = list(_differences_by_order(theirs, ours))
    if not ordered:
        names = _pairs(theirs, ours)
        return Fit({name: weights[other] for other, name in names}, by_order=True)
    # Where nothing is called alike, positions tell more than names, unless the file is no network at all.
    raise Misfit(fitting, len(own), ordered if not fitting and 2 * len(theirs) > len(ours) else named)


def _without_prefix(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under the prefix that makes most names fit; with none, all of them."""
    first = next(iter(own))
    prefixes = ["", *(name.removesuffix(first) for name in weights if name.endswith("." + first))]
    best = max(prefixes, key=lambda prefix: sum(prefix + name in weights for name in own))
    return {name[len(best) :]: value for name, value in weights.items() if name.startswith(best)}


def _differences_by_name(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> Iterator[str]:
    yield from (f"it lacks {name}" for name in own if name not in found and not name.endswith(COUNTER))
    yield from (f"it has {name}" for name in found if name not in own and not name.startswith(CLASSIFIERS))
    for name in own:
        if name in found and found[name].shape != own[name].shape:
            yield f"{name} is {tuple(found[name].shape)} in the file, {tuple(own[name].shape)} here"


class _Listed(NamedTuple):
    """A tensor in the order of its file. kind: None if its name does not tell."""

    name: str
    shape: tuple[int, ...]
    kind: str | None


def _with_order(tensors: Mapping[str, Tensor]) -> list[_Listed]:
    return [
        _Listed(name, tuple(value.shape), KINDS.get(name.rpartition(".")[2]))
        for name, value in tensors.items()
        if not name.endswith(COUNTER) and value.is_floating_point()
    ]


def _is_alphabetical(listed: list[_Listed]) -> bool:
    names = [each.name for each in listed]
    return names == sorted(names)


def _pairs(theirs: list[_Listed], ours: list[_Listed]) -> list[tuple[str, str]]:
    """(name in the file, name here) of lists that do not differ."""
    if not _is_alphabetical(theirs):
        return [(a.name, b.name) for a, b in zip(theirs, ours, strict=False)]
    names = {each[1:]: each.name for each in theirs}
    return [(names[each[1:]], each.name) for each in ours]


def _differences_by_order(theirs: list[_Listed], ours: list[_Listed]) -> Iterator[str]:
    if _is_alphabetical(theirs):
        yield from _differences_without_order(theirs, ours)
        return
    for i, (a, b) in enumerate(zip(theirs, ours, strict=False)):
        if a.shape != b.shape or (a.kind or b.kind) != b.kind:
            yield f"{a.name} is {a.shape} in the file, {b.name} {b.shape} here"
        elif a.kind is None and any(ours[j].shape == b.shape for j in (i - 1, i + 1) if 0 <= j < len(ours)):
            yield f"{a.name} {a.shape} may be {b.name} or its neighbor"
    yield from (f"it lacks {each.name}" for each in ours[len(theirs) :])
    rest = theirs[len(ours) :]
    if not _is_classifier([each.shape for each in rest]):
        yield from (f"it has {each.name}" for each in rest)


def _differences_without_order(theirs: list[_Listed], ours: list[_Listed]) -> Iterator[str]:
    there, here = (Counter(each[1:] for each in listed) for listed in (theirs, ours))
    for each in ours:
        if there[each[1:]] == 0:
            yield f"it has none like {each.name} {each.shape}"
        elif there[each[1:]] > 1 or here[each[1:]] > 1:
            yield f"{there[each[1:]]} of its tensors, in alphabetical order, may be {each.name} {each.shape}"
    yield from (f"it has {each.name}" for each in theirs if here[each[1:]] == 0)


def _is_classifier(shapes: list[tuple[int, ...]]) -> bool:
    """Whether these are nothing, or the weight and bias of a linear layer."""
    if not shapes:
        return True
    weight, *bias = shapes
    return len(weight) == 2 and bias in ([], [weight[:1]])
