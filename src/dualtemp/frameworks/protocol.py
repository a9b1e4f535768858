"""The interface of a framework. Needs no torch, so that `--help` and settings stay cheap.

A framework is one file: its settings with help and defaults, its heads, how many views and encoder passes a step needs,
whether its anchors are weighed, and its step. All other code asks the framework, and never compares names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dualtemp.frameworks.network import Network, Step


class FrameworkSettings(BaseModel):
    """Settings of one framework, each with a default and a description: its flags, its YAML keys, its Python names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)
    # Settings added after the first results: the config.yaml of an older run lacks them, which means their defaults.
    added_later: ClassVar[frozenset[str]] = frozenset()

    def contradiction(self) -> str:
        """An error in one line if the settings, all of them known, contradict each other; "" if not."""
        return ""

    def without_effect(self) -> dict[str, str]:
        """Settings without effect because of others, each with the reason ("it needs keys 'dictionary'")."""
        return {}


class Passes(NamedTuple):
    """Encoder passes of one image in a step: with gradient, and without."""

    query: int
    key: int = 0


class Temperatures(NamedTuple):
    """The temperatures of the vector and of the scalar."""

    alpha: float
    beta: float


class AnchorWeight(NamedTuple):
    """How to read the weight W of an anchor that a framework logs.

    evened_by: the setting that makes weights more equal when raised, "" if there is none; is_hardness: whether W is a
    probability, near 0 if the positive is easily found.
    """

    evened_by: str = "tau_beta"
    is_hardness: bool = True


W_OF_TAU_BETA = AnchorWeight()


def temperatures_of(settings: Any) -> Temperatures:
    """tau_alpha and tau_beta of a framework's settings as numbers.

    Both are tau_alpha if tau_beta does not exist, is "tied", or has no effect.
    """
    beta = getattr(settings, "tau_beta", "tied")
    if "tau_beta" in settings.without_effect():
        beta = "tied"
    return Temperatures(settings.tau_alpha, settings.tau_alpha if beta == "tied" else float(beta))


def newest_version(kind: Any, settings: Any) -> int:
    """A framework's `version_of` these settings, or its `version` if it does not define `version_of`."""
    return kind.version_of(settings) if hasattr(kind, "version_of") else kind.version


@dataclass(frozen=True)
class Context:
    """Facts about the run that a framework may need.

    seed: of the run; batch: images per step over all processes; classes: their number, 0 without labels; computation:
    the version of the framework with which the run began; images: number of training images, 0 if unknown; epochs: of
    the run.
    """

    seed: int
    batch: int
    classes: int = 0
    computation: int = 1
    images: int = 0
    epochs: int = 1

    @property
    def epoch_steps(self) -> int:
        """Steps per epoch, at least 1."""
        return max(1, self.images // self.batch)


class Framework(Protocol):
    """The interface of a framework. Subclass it for the defaults below, or define the same names.

    Attributes:
        network: the trained encoder with its heads; the trainer may replace it by a chunked one.
        Settings: the framework's own settings; `FrameworkSettings` has none.
        version: of the computation of a step. Raise it whenever results change: it is part of a result's key. If
            results change for some settings only, `version_of` keeps the keys of all others.
        views: views of an image per step.
        takes_index: whether `forward` also takes index=, int64 (N,) on the device: the images' numbers in the set.
        learns_from_teacher: whether it has settings teacher and teacher_content, and an attribute `teacher` whose
            `load` takes the teacher's features (images, F) before the first step.
        learns_from_labels: whether a step needs labels; a projector that is one linear layer with an output per class
            is then the classifier, and replaces the online probe.
        compares_views: whether there are anchors and keys to inspect (`analyze`, `explore`, pictures).
        advice_on_collapse: what the run page suggests if the features collapse.
    """

    network: Any
    Settings: ClassVar[type[FrameworkSettings]] = FrameworkSettings
    version: ClassVar[int] = 1
    views: ClassVar[int] = 2
    takes_index: ClassVar[bool] = False
    learns_from_teacher: ClassVar[bool] = False
    learns_from_labels: ClassVar[bool] = False
    compares_views: ClassVar[bool] = True
    advice_on_collapse: ClassVar[str] = ""

    def __init__(self, settings: Any, network: Network, context: Context) -> None:
        """Store the network and whatever else a step needs. Attributes that are modules or parameters are saved."""
        ...

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """The projector, and the predictor or None, for a backbone with `features` features."""
        ...

    @staticmethod
    def passes(settings: Any) -> Passes:
        """The encoder passes of a step, from which the cost of a run is computed."""
        return Passes(query=2)

    @classmethod
    def version_of(cls, settings: Any) -> int:
        """The version of a new run with these settings: the last one that changed their results."""
        return cls.version

    @staticmethod
    def weighs_anchors(settings: Any) -> bool:
        """Whether the weight W of an anchor enters the loss, or is only measured."""
        return True

    @staticmethod
    def anchor_weight(settings: Any) -> AnchorWeight:
        """How the run page is to read W; by default as W(tau_beta)."""
        return W_OF_TAU_BETA

    @staticmethod
    def temperatures(settings: Any) -> Temperatures | None:
        """The loss's temperatures as numbers, None if it has none; by default tau_alpha and tau_beta."""
        return temperatures_of(settings) if hasattr(settings, "tau_alpha") else None

    @staticmethod
    def suggest(settings: Any, images: int, batch: int) -> dict[str, Any]:
        """Settings that suit a user's own set of `images` images; applied unless the user has chosen them."""
        return {}

    def forward(self, views: Any, labels: Tensor | None, step: int) -> Step:
        """Compute one step: `views` are tensors (N, C, H, W), labels (N,); returns loss, features and statistics."""
        ...

    def after_step(self) -> None:
        """Do what follows the optimizer's step, such as moving a momentum encoder."""
