"""The losses as modules: settings when they are made, embeddings when they are called. See `functional` for both."""

from typing import Any

from torch import Tensor, nn

from dualtemp.losses import functional as functions
from dualtemp.losses.arguments import (
    Gather,
    Reduction,
    require_gather,
    require_gather_without_ring,
    require_reduction,
    require_temperatures,
    require_weights,
)
from dualtemp.losses.functional import Stats
from dualtemp.losses.odds import Weight
from dualtemp.losses.temperature_schedule import AdaptiveTemperature, number_or_tied
from dualtemp.losses.weights import dictionary_weight_named, make_weight, tau_beta_of
from dualtemp.temperatures import TAU_ALPHA, TAU_BETA

TERMS = ("invariance", "variance", "covariance", "redundancy")  # weights of the terms of a loss


class _Loss(nn.Module):
    """Holds the settings of a loss, which are read and set as attributes and checked whenever they change."""

    settings: dict[str, Any]
    has_ring = True  # whether gather may be "ring"

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._require(settings)
        self.settings = settings

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("settings", {})
        return settings[name] if name in settings else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        settings = self.__dict__.get("settings", {})
        if name == "weight" and name in settings:
            raise AttributeError("weight is chosen when the module is made: make another one")
        if name in settings:
            self._require(settings | {name: value})
            settings[name] = value
        elif name.startswith("tau"):  # as a plain attribute it would silently change nothing
            raise AttributeError(f"{type(self).__name__} has no {name}: its settings are {', '.join(settings)}")
        else:
            super().__setattr__(name, value)

    def extra_repr(self) -> str:
        plain = ((name, value) for name, value in self.settings.items() if not isinstance(value, nn.Module))
        return ", ".join(f"{name}={value}" for name, value in plain)

    def _require(self, settings: dict[str, Any]) -> None:
        gather = settings.get("gather", False)
        require_gather(gather) if self.has_ring else require_gather_without_ring(gather)
        _require(settings)


class _WeighedLoss(_Loss):
    """Also holds the weight of its anchors as `weigh`: a module, saved with this one, if numbers are kept per image."""

    def __init__(self, weight: str | Weight, images: int | None, directions: int, **settings: Any) -> None:
        super().__init__(**settings, weight=weight)
        self.weigh = make_weight(weight, images, directions)

    def _arguments(self) -> dict[str, Any]:
        return {**self.settings, "weight": self.weigh}


class InfoNCELoss(_Loss):
    """`info_nce` as a module.

    Example:
        >>> criterion = InfoNCELoss(tau=0.1)
        >>> loss = criterion(q, k_pos, dictionary.keys)  # doctest: +SKIP
    """

    def __init__(
        self,
        tau: float = TAU_ALPHA,
        *,
        weight: str | Weight = "sigmoid",
        normalize: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        dictionary_weight_named(weight)
        super().__init__(tau=tau, weight=weight, normalize=normalize, reduction=reduction)

    def forward(self, q: Tensor, k_pos: Tensor, negatives: Tensor, stats: Stats | None = None) -> Tensor:
        """Loss of anchors and positives (N, D) against negatives (K, D)."""
        return functions.info_nce(q, k_pos, negatives, **self.settings, stats=stats)


class NTXentLoss(_WeighedLoss):
    """`nt_xent` as a module; `weight` and `images` as in `DualTemperatureLoss`.

    Example:
        >>> criterion = NTXentLoss(tau=0.1)
        >>> loss = criterion(projector(encoder(view1)), projector(encoder(view2)))  # doctest: +SKIP
    """

    def __init__(
        self,
        tau: float | AdaptiveTemperature = TAU_ALPHA,
        *,
        weight: str | Weight = "sigmoid",
        images: int | None = None,
        normalize: bool = True,
        gather: Gather = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, images, 2, tau=tau, normalize=normalize, gather=gather, reduction=reduction)

    def forward(self, q: Tensor, k: Tensor, stats: Stats | None = None, *, index: Tensor | None = None) -> Tensor:
        """Loss of pairs (N, D); index (N,): which images they are, for weights that are kept per image."""
        return functions.nt_xent(q, k, **self._arguments(), index=index, stats=stats)


class DualTemperatureLoss(_WeighedLoss):
    """`dual_temperature` as a module.

    `weight` is "sigmoid", "equal", "memory" or "per_image". The last two keep numbers of each of `images` images of the
    data set, are called with the images' numbers, and are saved with the module; an `ImageMemory` or
    `ImageTemperatures` in place of the name has settings of its own.

    Example:
        >>> criterion = DualTemperatureLoss(tau_alpha=0.1, tau_beta=1.0)
        >>> loss = criterion(projector(encoder(view1)), projector(encoder(view2)))  # doctest: +SKIP
        >>> criterion = DualTemperatureLoss(tau_alpha=0.1, weight="memory", images=50000)
        >>> loss = criterion(q, k, index=index)  # doctest: +SKIP
    """

    def __init__(
        self,
        tau_alpha: float | AdaptiveTemperature = TAU_ALPHA,
        tau_beta: float | AdaptiveTemperature | None = None,
        *,
        weight: str | Weight = "sigmoid",
        images: int | None = None,
        both_directions: bool = True,
        both_views: bool = False,
        normalize: bool = True,
        gather: Gather = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            weight,
            images,
            1 + both_directions,
            tau_alpha=tau_alpha,
            tau_beta=tau_beta_of(weight, tau_beta, TAU_BETA),
            both_directions=both_directions,
            both_views=both_views,
            normalize=normalize,
            gather=gather,
            reduction=reduction,
        )

    def forward(self, q: Tensor, k: Tensor, stats: Stats | None = None, *, index: Tensor | None = None) -> Tensor:
        """Loss of pairs (N, D); index (N,): which images they are, for weights that are kept per image."""
        return functions.dual_temperature(q, k, **self._arguments(), index=index, stats=stats)


class DecomposedLoss(_Loss):
    """`decomposed` as a module.

    Example:
        >>> criterion = DecomposedLoss(tau_alpha=0.1)
        >>> loss = criterion(q, k_pos, dictionary.newest(256), dictionary.keys)  # doctest: +SKIP
    """

    def __init__(
        self,
        tau_alpha: float = TAU_ALPHA,
        tau_beta: float | None = None,
        *,
        weight: str | Weight = "sigmoid",
        normalize: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        dictionary_weight_named(weight)
        super().__init__(
            tau_alpha=tau_alpha, tau_beta=tau_beta, weight=weight, normalize=normalize, reduction=reduction
        )

    def forward(
        self, q: Tensor, k_pos: Tensor, vector_keys: Tensor, scalar_keys: Tensor, stats: Stats | None = None
    ) -> Tensor:
        """Loss of anchors and positives (N, D) against two dictionaries (K_vector, D) and (K_scalar, D)."""
        return functions.decomposed(q, k_pos, vector_keys, scalar_keys, **self.settings, stats=stats)


class EqualAnchorsLoss(_Loss):
    """`equal_anchors` as a module."""

    def __init__(self, tau_alpha: float = TAU_ALPHA, *, normalize: bool = True, reduction: Reduction = "mean") -> None:
        super().__init__(tau_alpha=tau_alpha, normalize=normalize, reduction=reduction)

    def forward(self, q: Tensor, k_pos: Tensor, negatives: Tensor, stats: Stats | None = None) -> Tensor:
        """Loss of anchors and positives (N, D) against negatives (K, D)."""
        return functions.equal_anchors(q, k_pos, negatives, **self.settings, stats=stats)


class SimpleLoss(_Loss):
    """`simple` as a module."""

    def __init__(self, *, normalize: bool = True, reduction: Reduction = "mean") -> None:
        super().__init__(normalize=normalize, reduction=reduction)

    def forward(self, q: Tensor, k_pos: Tensor, negatives: Tensor) -> Tensor:
        """Loss of anchors and positives (N, D) against negatives (K, D)."""
        return functions.simple(q, k_pos, negatives, **self.settings)


class NegativeCosineLoss(_Loss):
    """`negative_cosine` as a module."""

    def __init__(self, *, normalize: bool = True, reduction: Reduction = "mean") -> None:
        super().__init__(normalize=normalize, reduction=reduction)

    def forward(self, p: Tensor, k: Tensor, weight: Tensor | None = None) -> Tensor:
        """Loss of predictions and targets (N, D), with a weight (N,) per anchor or none."""
        return functions.negative_cosine(p, k, weight, **self.settings)


class CrossEntropyLoss(_Loss):
    """`cross_entropy` as a module: CE as it is made, CE(DT) with `tau_beta=math.inf`."""

    def __init__(
        self,
        tau_alpha: float = 1.0,
        tau_beta: float | None = None,
        *,
        weight: str | Weight = "sigmoid",
        reduction: Reduction = "mean",
    ) -> None:
        dictionary_weight_named(weight)
        tau_beta = tau_beta_of(weight, tau_beta, 1.0)
        super().__init__(tau_alpha=tau_alpha, tau_beta=tau_beta, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor, stats: Stats | None = None) -> Tensor:
        """Loss of logits (N, C) and class numbers (N,)."""
        return functions.cross_entropy(logits, target, **self.settings, stats=stats)


def _require(settings: dict[str, Any]) -> None:
    require_reduction(settings.get("reduction", "mean"))
    require_weights(**{name: settings[name] for name in TERMS if name in settings})
    name = "tau" if "tau" in settings else "tau_alpha"
    if name not in settings:
        return
    tau, tau_beta = settings[name], settings.get("tau_beta")
    tau_beta = number_or_tied(tau, tau_beta_of(settings.get("weight", "sigmoid"), tau_beta, None))
    require_temperatures(tau.lowest if isinstance(tau, AdaptiveTemperature) else tau, tau_beta, name)
