"""MoCo v2: keys from a momentum encoder, negatives from a dictionary; vector and scalar may use different keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import AnchorWeight, Context, Framework, Passes
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import (
    KEPT_PER_IMAGE,
    READ_AS,
    AnchorSettings,
    InBatchVersions,
    Temperature,
    TwoTemperatures,
    key_momentum,
    predictor,
    projector_batch_norm,
    symmetric,
    tau_beta,
)
from dualtemp.losses.temperature_schedule import AdaptiveTemperature

if TYPE_CHECKING:
    from torch import Tensor, nn

Sampling = Literal["newest", "random", "earliest"]
PROJECTION = 128
OF_DICTIONARY = ("dictionary_size", "vector_size", "scalar_size", "vector_sampling", "scalar_sampling")


@dataclass(frozen=True)
class KeyChoice:
    """The keys of the dictionary that vector or scalar use: all or `size` of them, "newest", "random" or "earliest"."""

    size: int | None = None
    sampling: str = "newest"

    def of(self, dictionary: parts.KeyDictionary, seed: int) -> Tensor:
        """The keys, (size, D). A random draw is a function of the seed."""
        if self.size is None or self.size == len(dictionary):
            return dictionary.keys
        if self.sampling == "random":
            return dictionary.random(self.size, seed)
        return getattr(dictionary, self.sampling)(self.size)


@framework("moco", place=1)
class MoCo(InBatchVersions, Framework):
    """One query pass and one gradient-free key pass a step; two of each, and two dictionaries, in the "+" variant.

    If vector and scalar use the same keys at the same temperature, the loss is InfoNCE (eq:infonce), otherwise its
    decomposition (eq:infonce_nss_equiva). With the current step's keys alone it is SimMoCo's.
    """

    class Settings(AnchorSettings, TwoTemperatures):
        """Two temperatures, how anchors are weighed, the key encoder, and which keys vector and scalar see."""

        tau_beta: Temperature = tau_beta("tied")
        key_momentum: float = key_momentum()
        symmetric: bool = symmetric()
        predictor: bool = predictor()
        projector_batch_norm: bool = projector_batch_norm()
        added_later = AnchorSettings.added_later | {"predictor", "projector_batch_norm"}
        keys: Literal["dictionary", "last", "current"] = Field(
            "dictionary",
            description="MoCo's negatives: the dictionary, the last step's keys alone, or the current step's.",
        )
        dictionary_size: int = Field(65536, ge=1, le=10**9, description="Keys in MoCo's dictionary.")
        vector_size: int | None = Field(None, ge=1, description="Keys of it that the vector sees; all by default.")
        vector_sampling: Sampling = Field("newest", description="Which keys these are.")
        scalar_size: int | None = Field(None, ge=1, description="Keys of it that the scalar sees; all by default.")
        scalar_sampling: Sampling = Field("newest", description="Which keys these are.")

        def contradiction(self) -> str:
            """A part cannot be larger than the whole; some weights and temperatures need in-batch negatives."""
            for name in ("vector_size", "scalar_size"):
                part = getattr(self, name)
                if part is not None and part > self.dictionary_size:
                    return f"{name} {part} is larger than dictionary_size {self.dictionary_size}"
            if self.keys != "current":
                advice = "give --keys current, or --method simmoco"
                if self.weight in KEPT_PER_IMAGE:
                    return f"weight {self.weight!r} is for in-batch negatives, not for MoCo's dictionary: {advice}"
                if self.temperature_schedule == "adaptive":
                    return f"temperature_schedule 'adaptive' is for in-batch negatives, not for a dictionary: {advice}"
            return super().contradiction()

        def without_effect(self) -> dict[str, str]:
            """Sizes and parts need a dictionary, and a part for the scalar needs a weight that depends on keys."""
            idle = super().without_effect()
            if self.keys != "dictionary":
                reason = f"does not apply to keys {self.keys!r}: it needs keys 'dictionary'"
                return {**dict.fromkeys(OF_DICTIONARY, reason), **idle}
            if self.weight == "equal":
                reason = "does not apply to weight 'equal': it needs weight 'sigmoid'"
                return {**dict.fromkeys(("scalar_size", "scalar_sampling"), reason), **idle}
            return idle

    takes_index = True

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.settings, self.seed = network, settings, context.seed
        self.anchors = parts.Anchors(settings, context, directions=1, pairs=1 + settings.symmetric)
        self.vector = KeyChoice(settings.vector_size, settings.vector_sampling)
        self.scalar = KeyChoice(settings.scalar_size, settings.scalar_sampling)
        self.key_network = parts.MomentumCopy(network.key_part())
        size = {"dictionary": settings.dictionary_size, "last": context.batch, "current": 0}[settings.keys]
        count = (1 + settings.symmetric) if size else 0
        self.dictionaries = parts.dictionaries(count, size, PROJECTION, context.seed)
        self.new_keys: list[Tensor] = []

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear: 512-128-128 for ResNet-18; wider with batch norm."""
        # The projector first, so that its initial weights are the same with and without a predictor.
        projector = parts.contrastive_projector(features, out=PROJECTION, batch_norm=settings.projector_batch_norm)
        return projector, parts.contrastive_predictor(PROJECTION) if settings.predictor else None

    @staticmethod
    def passes(settings: Settings) -> Passes:
        """One query and one key; twice that in the "+" variant."""
        return Passes(2, 2) if settings.symmetric else Passes(1, 1)

    @staticmethod
    def suggest(settings: Settings, images: int, batch: int) -> dict[str, Any]:
        """A dictionary that one epoch fills."""
        if settings.keys != "dictionary":
            return {}
        largest = MoCo.Settings.model_fields["dictionary_size"].default
        return {"dictionary_size": min(largest, max(batch, 1 << max(0, images.bit_length() - 1)))}

    @property
    def dictionary(self) -> parts.KeyDictionary | None:
        """The keys that the first view's queries are compared with, if there is a dictionary."""
        return self.dictionaries[0] if len(self.dictionaries) else None  # pyright: ignore[reportReturnType]

    @staticmethod
    def anchor_weight(settings: Settings) -> AnchorWeight:
        """Depends on the chosen weight."""
        return READ_AS[settings.weight]

    def forward(
        self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int, index: Tensor | None = None
    ) -> parts.Step:
        """Contrast queries of one view (N, C, H, W) with the other's keys and with the dictionary's."""
        stats: dict[str, Tensor] = {}
        self.new_keys, losses, features = [], [], None
        for direction in range(1 + self.settings.symmetric):
            q, k = self.network(views[direction]), self.key_network(views[1 - direction]).projection
            features = q.features.detach() if features is None else features
            noted = stats if direction == 0 else None
            if len(self.dictionaries):
                losses.append(self._loss(q.prediction, k, direction, step, noted))
            else:
                how = self.anchors.arguments(step, index, pair=direction)
                losses.append(
                    parts.dual_temperature(q.prediction, k, both_directions=False, gather=True, stats=noted, **how)
                )
            self.new_keys.append(k)
        assert features is not None
        loss = losses[0] if len(losses) == 1 else (losses[0] + losses[1]) / 2
        return parts.Step(loss, features, stats)

    def after_step(self) -> None:
        """Let the key encoder follow, and put this step's keys of all processes into the dictionaries."""
        self.key_network.follow(self.network.key_part(), self.settings.key_momentum)
        for dictionary, keys in zip(self.dictionaries, self.new_keys, strict=False):
            dictionary.enqueue(keys, gather=True)  # pyright: ignore[reportCallIssue]
        self.new_keys = []

    def _loss(self, q: Tensor, k: Tensor, direction: int, step: int, stats: dict[str, Tensor] | None) -> Tensor:
        tau_alpha, tau_beta = self.anchors.temperatures(step)
        assert isinstance(tau_alpha, float)  # `contradiction` refuses others
        assert not isinstance(tau_beta, AdaptiveTemperature)
        dictionary: Any = self.dictionaries[direction]
        q, k = parts.unit(q, k)  # the dictionary's keys are unit vectors already
        seed = ((self.seed << 32) + 2 * step) % (1 << 63)  # within the range of a generator's seed
        vector_keys = self.vector.of(dictionary, seed)
        weight = self.settings.weight
        if tau_beta is None or (self.scalar == self.vector and tau_beta == tau_alpha):
            loss = parts.info_nce(q, k, vector_keys, tau_alpha, weight=weight, normalize=False, stats=stats)
            return parts.global_mean(loss)
        scalar_keys = vector_keys if self.scalar == self.vector else self.scalar.of(dictionary, seed + 1)
        return parts.global_mean(
            parts.decomposed(q, k, vector_keys, scalar_keys, tau_alpha, tau_beta, normalize=False, stats=stats)
        )
