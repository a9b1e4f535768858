"""The weight of an anchor: the scalar w_i that multiplies the gradient of its log-odds d_i, chosen by name.

    "sigmoid"    w = sigmoid(d(tau_beta))    the paper's; InfoNCE where both temperatures are one
    "equal"      w = 1                       DCL, FlatNCE, MACL at a fixed temperature
    "memory"     w = G_i / u_i               SogCLR: G_i = e^d / M, u_i its moving average for the image (`ImageMemory`)
    "per_image"  w = tau_i / tau_alpha G_i / u_i, and d at tau_i: iSogCLR (`ImageTemperatures`)

M is the number of negatives. Weights are constants: no gradient flows through them.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.losses.constants import constant
from dualtemp.losses.hardness import inter_anchor_weight
from dualtemp.losses.image_memory import ImageMemory, ImageTemperatures
from dualtemp.losses.odds import Odds, Weighed, Weight

LOG_EPS = {dtype: math.log(torch.finfo(dtype).eps) for dtype in (torch.float32, torch.float64)}
WeightName = Literal["sigmoid", "equal", "memory", "per_image"]


class Formula:
    """A weight that is a function of the log-odds alone."""

    images = 0

    def __init__(self, formula: Callable[[Odds], Weighed], has_tau_beta: bool = False) -> None:
        self.formula, self.has_tau_beta = formula, has_tau_beta

    def temperatures(self, index: Tensor, directions: int, tau_alpha: float) -> None:
        """None: tau_alpha for all."""

    def weigh(self, odds: Odds, index: Tensor | None = None, tau_alpha: float = 1.0, gather: bool = False) -> Weighed:
        """Weights and values of the anchors."""
        return self.formula(Odds(odds.d.detach(), odds.beta) if odds.d.requires_grad else odds)


def sigmoid(odds: Odds) -> Weighed:
    """w = W(tau_beta), value W_beta / W_alpha x -log p_+; tied: w = W, value -log p_+."""
    d = odds.d
    if odds.beta is None:
        return Weighed(inter_anchor_weight(d), F.logsigmoid(-d).neg_(), partial(F.logsigmoid, d))
    w = inter_anchor_weight(odds.beta)
    # 1 / sigmoid(d) = 1 + e^-d. Below log(eps) the quotient is 1 to the last digit, and e^-d would overflow.
    minus_d = d.clamp_min(LOG_EPS[d.dtype]).neg_()
    value = F.logsigmoid(minus_d).mul_(w).mul_(constant(-1.0, d) - minus_d.exp_())
    return Weighed(w, value, partial(F.logsigmoid, odds.beta))


def equal(odds: Odds) -> Weighed:
    """w = 1, value d: DCL's loss as it stands."""
    return Weighed(torch.ones_like(odds.d), odds.d, partial(torch.zeros_like, odds.d))


# The one table of weights. Formulas are ready; the others keep numbers per image and are made for a data set.
FORMULAS: dict[str, Weight] = {"sigmoid": Formula(sigmoid, has_tau_beta=True), "equal": Formula(equal)}
KEPT_PER_IMAGE: dict[str, type[ImageMemory]] = {"memory": ImageMemory, "per_image": ImageTemperatures}
_ATTRIBUTES = ("images", "has_tau_beta", "temperatures", "weigh")  # of any weight


def make_weight(weight: str | Weight, images: int | None, directions: int, **options: Any) -> Weight:
    """Make the weight of this name; one that is given as an object is ready.

    Args:
        weight: "sigmoid", "equal", "memory", "per_image", or an object.
        images: of the data set, for "memory" and "per_image".
        directions: 2 where both views are anchors, else 1.
        options: further arguments of `ImageMemory` or `ImageTemperatures`.
    """
    if not isinstance(weight, str) or weight not in KEPT_PER_IMAGE:
        known = _known(weight)
        if images is not None:
            raise ValueError(f"images is for weights 'memory' and 'per_image', got {images} with weight {weight!r}")
        return known
    if images is None:
        raise ValueError(f"weight {weight!r} needs images, the number of images of the data set")
    return KEPT_PER_IMAGE[weight](images, directions=directions, **options)


def in_batch_weight_named(weight: str | Weight) -> Weight:
    """The weight that a function with in-batch negatives was given; ValueError for a name that needs a memory."""
    if isinstance(weight, str) and weight in KEPT_PER_IMAGE:
        raise ValueError(
            f"weight {weight!r} keeps numbers per image, which a function cannot: give it "
            f"weight={KEPT_PER_IMAGE[weight].__name__}(images=...), or make a module with weight={weight!r}, images=..."
        )
    return _known(weight)


def dictionary_weight_named(weight: str | Weight) -> Weight:
    """The weight that a function with a dictionary was given; ValueError for those that are kept per image."""
    if (isinstance(weight, str) and weight in KEPT_PER_IMAGE) or _known(weight).images:
        raise ValueError(
            "weights 'memory' and 'per_image' are for in-batch negatives: without them give 'sigmoid' or 'equal'"
        )
    return _known(weight)


def tau_beta_of(weight: str | Weight, tau_beta: Any, default: float | None) -> Any:
    """tau_beta, or its default if it is None, for a weight that has one; with any other weight it is an error."""
    kept = isinstance(weight, str) and weight in KEPT_PER_IMAGE
    if not kept and _known(weight).has_tau_beta:
        return default if tau_beta is None else tau_beta
    if tau_beta is not None:
        name = weight if isinstance(weight, str) else type(weight).__name__
        raise ValueError(f"tau_beta is of weight 'sigmoid' alone, got {tau_beta} with weight {name!r}: leave it out")
    return None


def require_index(index: Tensor | None, anchors: int, images: int, device: torch.device) -> Tensor:
    """The numbers of the anchors' images as int64 (N,) on the device; refuse all that is not from 0 to images - 1.

    Checking numbers on an accelerator would wait for it in every step: numbers that are there already are not checked,
    and wrong ones fail where the memory is read.
    """
    if index is None:
        raise ValueError(
            f"index is missing: weights that are kept per image need the number of each anchor's image, ({anchors},), "
            f"from 0 to {images - 1}"
        )
    whole = not (index.is_floating_point() or index.is_complex() or index.dtype == torch.bool)
    if index.shape != (anchors,) or not whole:
        raise ValueError(f"index must hold {anchors} whole numbers, got {index.dtype} {tuple(index.shape)}")
    if index.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= images:
            raise ValueError(f"index must hold numbers from 0 to {images - 1}, got {low} to {high}")
    elif index.device != device:
        raise ValueError(f"index must be on {device} or on the CPU, got {index.device}")
    return index.to(device, torch.int64, non_blocking=True)


def _known(weight: str | Weight) -> Weight:
    if isinstance(weight, str) and weight in FORMULAS:
        return FORMULAS[weight]
    if isinstance(weight, str | type) or not all(hasattr(weight, name) for name in _ATTRIBUTES):
        names = ", ".join((*FORMULAS, *KEPT_PER_IMAGE))
        given = repr(weight) if isinstance(weight, str) or weight is None else _type_of(weight)
        raise ValueError(f"weight must be one of {names}, or an ImageMemory or ImageTemperatures object, got {given}")
    return weight


def _type_of(weight: object) -> str:
    return f"the class {weight.__name__}" if isinstance(weight, type) else f"a {type(weight).__name__}"
