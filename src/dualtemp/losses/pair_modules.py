"""The losses of any pairs as modules: settings when they are made, embeddings when they are called."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.losses.arguments import Reduction, require_temperatures
from dualtemp.losses.full_precision import at_least_float32, without_half
from dualtemp.losses.labeled_pairs import supervised_contrastive
from dualtemp.losses.modules import _Loss
from dualtemp.losses.scalar_times_vector import Stats
from dualtemp.losses.temperature import Temperature, require_temperature
from dualtemp.losses.tower_pairs import TAU_TWO_TOWERS, require_weight, two_towers
from dualtemp.temperatures import TAU_ALPHA


class _LearnedTemperature(_Loss):
    """Holds a temperature `tau` that is read and set as a number, and learns as the parameter `logit_scale`."""

    logit_scale: nn.Parameter | None

    def __init__(self, tau: float, learn_tau: bool, tau_min: float, **settings: Any) -> None:
        require_temperatures(tau, name="tau")
        require_weight(settings["weight"], settings["tau_beta"])
        require_temperatures(tau_min, name="tau_min")
        if learn_tau:
            _require_learnable(tau, tau_min)
        super().__init__(**settings)
        self.__dict__.update(_fixed_tau=tau, _tau_min=tau_min)
        scale = nn.Parameter(torch.tensor(-math.log(tau), dtype=at_least_float32())) if learn_tau else None
        self.register_parameter("logit_scale", scale)

    def temperature(self) -> Temperature:
        if self.logit_scale is None:
            return self._fixed_tau
        if torch.is_grad_enabled():
            # By way of `data`: a change of the parameter itself, even by nothing, would invalidate graphs that used it.
            # Where a graph is traced it may change, and `data` cannot be followed.
            with torch.no_grad():
                scale = self.logit_scale if torch.compiler.is_compiling() else self.logit_scale.data
                scale.clamp_(max=-math.log(self._tau_min))
        return self.logit_scale.neg().exp()

    def __getattr__(self, name: str) -> Any:
        if name == "tau":
            return self._fixed_tau if self.logit_scale is None else _exp(-self.logit_scale.item())
        if name == "tau_min":
            return self._tau_min
        if name == "learn_tau":
            return self.logit_scale is not None
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tau":
            require_temperatures(value, name="tau")
            if self.logit_scale is not None:
                _require_learnable(value, self._tau_min)
            self.__dict__["_fixed_tau"] = value
            if self.logit_scale is not None:
                with torch.no_grad():
                    self.logit_scale.fill_(-math.log(value))
        elif name == "tau_min":
            require_temperatures(value, name="tau_min")
            if self.logit_scale is not None:
                _require_learnable(self.tau, value)
            self.__dict__["_tau_min"] = value
        elif name == "learn_tau":
            raise AttributeError("learn_tau is chosen when the module is made: make another one")
        elif name == "tau_beta" and value is not None:
            require_weight(self.settings["weight"], value)
            self.settings["tau_beta"] = value
        else:
            super().__setattr__(name, value)

    def extra_repr(self) -> str:
        bound = f", tau_min={self.tau_min:.4g}" if self.learn_tau else ""
        return f"tau={self.tau:.4g}, learn_tau={self.learn_tau}{bound}, {super().extra_repr()}"

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to another device or to float64, but never to half precision: small steps of tau would be lost."""
        return super()._apply(without_half(fn), recurse)


def _require_learnable(tau: float, tau_min: float) -> None:
    if tau < tau_min * (1 - 1e-6):  # a tau that learns is read from its rounded logarithm
        raise ValueError(f"tau must be at least tau_min, below which it does not learn; got {tau} and {tau_min}")


def _exp(x: float) -> float:
    """e^x; inf where Python would raise an OverflowError."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


class TwoTowersLoss(_LearnedTemperature):
    """`two_towers` as a module whose temperature learns.

    What learns is `logit_scale`, log(1 / tau), as in CLIP: give the module's parameters to the optimizer. Whenever a
    gradient is recorded it is clamped first, so that tau stays at or above `tau_min`. With several processes, make it a
    part of the module that DistributedDataParallel wraps: each process sees the gradient of its own anchors.

    Args:
        tau: temperature of the vector, or its start, default 0.07; `criterion.tau` reads it as a number.
        tau_beta: temperature of the scalar; default None: tied to tau, the loss of CLIP.
        weight: of an anchor, "sigmoid" (default) or "equal".
        learn_tau: False keeps tau as it is; there is no parameter then.
        tau_min: lower bound of tau while it learns, default 0.01.

    Half precision (`model.half()`) leaves the parameter in float32: steps of its size would be lost in bfloat16.

    Example:
        >>> criterion = TwoTowersLoss(tau=0.07)
        >>> optimizer = torch.optim.AdamW([*model.parameters(), *criterion.parameters()])  # doctest: +SKIP
        >>> loss = criterion(image_encoder(images), text_encoder(texts))  # doctest: +SKIP
    """

    def __init__(
        self,
        tau: float = TAU_TWO_TOWERS,
        tau_beta: float | None = None,
        *,
        weight: str = "sigmoid",
        learn_tau: bool = True,
        tau_min: float = 0.01,
        both_directions: bool = True,
        both_views: bool = False,
        normalize: bool = True,
        gather: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            tau,
            learn_tau,
            tau_min,
            tau_beta=tau_beta,
            weight=weight,
            both_directions=both_directions,
            both_views=both_views,
            normalize=normalize,
            gather=gather,
            reduction=reduction,
        )

    def forward(
        self,
        a: Tensor,
        b: Tensor,
        *,
        ids: Tensor | None = None,
        labels: Tensor | None = None,
        padding_mask: Tensor | None = None,
        mask: Tensor | None = None,
        pair_weight: Tensor | None = None,
        stats: Stats | None = None,
    ) -> Tensor:
        """Loss of pairs (N, D), some of them no negatives of each other; see `two_towers`."""
        return two_towers(
            a,
            b,
            self.temperature(),
            **self.settings,
            ids=ids,
            labels=labels,
            padding_mask=padding_mask,
            mask=mask,
            pair_weight=pair_weight,
            stats=stats,
        )


class SupervisedContrastiveLoss(_Loss):
    """`supervised_contrastive` as a module.

    Example:
        >>> criterion = SupervisedContrastiveLoss(tau_alpha=0.1)
        >>> loss = criterion(projector(f(view1)), projector(f(view2)), labels)  # doctest: +SKIP
    """

    has_ring = False

    def __init__(
        self,
        tau_alpha: float = TAU_ALPHA,
        tau_beta: float | None = None,
        *,
        both_directions: bool = True,
        both_views: bool = True,
        normalize: bool = True,
        gather: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        require_temperature(tau_alpha, "tau_alpha")
        super().__init__(
            tau_alpha=tau_alpha,
            tau_beta=tau_beta,
            both_directions=both_directions,
            both_views=both_views,
            normalize=normalize,
            gather=gather,
            reduction=reduction,
        )

    def forward(
        self,
        q: Tensor,
        k: Tensor | None,
        labels: Tensor,
        *,
        padding_mask: Tensor | None = None,
        pair_weight: Tensor | None = None,
    ) -> Tensor:
        """Loss of examples (N, D) in one view or two, and their labels (N,)."""
        return supervised_contrastive(q, k, labels, **self.settings, padding_mask=padding_mask, pair_weight=pair_weight)
