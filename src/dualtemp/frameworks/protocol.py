"""What a framework declares, and where it is found. Needs no torch, so that `--help` and settings stay cheap.

A framework is one file: its settings with help and defaults, its heads, how many views and encoder passes a step
needs, whether its anchors are weighed, and its step. Everyone else asks it; nobody compares names.
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
    # Settings that came after the first results: config.yaml of an older run, which lacks them, means their defaults.
    added_later: ClassVar[frozenset[str]] = frozenset()

    def contradiction(self) -> str:
        """What cannot be, in one line, once all settings are known; "" if all is well."""
        return ""

    def without_effect(self) -> dict[str, str]:
        """Settings that do nothing because of the others, each with the reason ("it needs keys 'dictionary'")."""
        return {}


class Passes(NamedTuple):
    """Encoder passes of one image in a step: with gradient, and without."""

    query: int
    key: int = 0


class Temperatures(NamedTuple):
    """Of the vector and of the scalar."""

    alpha: float
    beta: float


class AnchorWeight(NamedTuple):
    """How to read the weight W of an anchor that a framework logs.

    evened_by: the setting that lets anchors weigh more alike if it is raised, "" if there is none; is_hardness: whether
    W is a probability, near 0 where the positive is found easily.
    """

    evened_by: str = "tau_beta"
    is_hardness: bool = True


W_OF_TAU_BETA = AnchorWeight()


def temperatures_of(settings: Any) -> Temperatures:
    """tau_alpha and tau_beta of a framework's settings as numbers; where it has one alone, or "tied", both are that."""
    beta = getattr(settings, "tau_beta", "tied")
    if "tau_beta" in settings.without_effect():
        beta = "tied"
    return Temperatures(settings.tau_alpha, settings.tau_alpha if beta == "tied" else float(beta))


def newest_version(kind: Any, settings: Any) -> int:
    """`version_of` a framework; of one that brings its own names and not this one, its `version`."""
    return kind.version_of(settings) if hasattr(kind, "version_of") else kind.version


@dataclass(frozen=True)
class Context:
    """What a framework may need to know of its run.

    seed: of the run; batch: images in a step, over all processes; classes: of the labels, 0 without; computation: the
    version of the framework that the run began with; images: that it learns from, 0 if unknown; epochs: of the run.
    """

    seed: int
    batch: int
    classes: int = 0
    computation: int = 1
    images: int = 0
    epochs: int = 1

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch, at least 1."""
        return max(1, self.images // self.batch)


class Framework(Protocol):
    """The interface of a framework. Subclass it for the defaults below, or bring the same names.

    Attributes:
        network: the trained encoder with its heads; the trainer may put a chunked one in its place.
        Settings: the framework's own settings; `FrameworkSettings` has none.
        version: of what a step computes. Raise it with every change of results: it is part of a result's key. If only
            some settings give other results, `version_of` keeps the key of all others.
        views: views of an image in a step.
        takes_index: whether `forward` also takes index=, int64 (N,) on the device: which images of the set these are.
        learns_from_teacher: whether it has settings teacher and teacher_content, and an attribute `teacher` whose
            `load` takes the teacher's features (images, F) before the first step.
        learns_from_labels: whether a step wants labels; a projector that is one linear layer with an output for each
            class is then the classifier, in place of the online probe.
        compares_views: whether there are anchors and keys to look at (`analyze`, `explore`, pictures).
        advice_on_collapse: what the run page suggests if all features become one.
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
        """Hold the network and whatever else a step needs. Attributes that are modules or parameters are saved."""
        ...

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Projector, and predictor if there is one, for a backbone of so many features."""
        ...

    @staticmethod
    def passes(settings: Any) -> Passes:
        """Encoder passes of a step: what a run costs is told from it."""
        return Passes(query=2)

    @classmethod
    def version_of(cls, settings: Any) -> int:
        """The version that a new run of these settings computes: the last that changed its results."""
        return cls.version

    @staticmethod
    def weighs_anchors(settings: Any) -> bool:
        """Whether the weight W of an anchor enters the loss, or is only measured."""
        return True

    @staticmethod
    def anchor_weight(settings: Any) -> AnchorWeight:
        """What W is and which setting evens it out, for the run page; by default W(tau_beta)."""
        return W_OF_TAU_BETA

    @staticmethod
    def temperatures(settings: Any) -> Temperatures | None:
        """The loss's temperatures as numbers, None if it has none; by default those called tau_alpha and tau_beta."""
        return temperatures_of(settings) if hasattr(settings, "tau_alpha") else None

    @staticmethod
    def suggest(settings: Any, images: int, batch: int) -> dict[str, Any]:
        """Settings that suit so many images of one's own; only those that nobody has chosen are taken."""
        return {}

    def forward(self, views: Any, labels: Tensor | None, step: int) -> Step:
        """Compute one step: `views` are tensors (N, C, H, W), labels (N,); returns loss, features and statistics."""
        ...

    def after_step(self) -> None:
        """Do what follows the optimizer's step, such as moving a momentum encoder."""
