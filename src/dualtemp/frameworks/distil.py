"""Distil: a small student learns which images its teacher finds similar; each of the two has a temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings, Passes
from dualtemp.frameworks.registry import framework

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("distil", place=10)
class Distil(Framework):
    """One pass of the student a step; the teacher's features were computed before, and are looked up."""

    class Settings(FrameworkSettings):
        """The teacher, and the temperatures of the teacher's and of the student's similarities."""

        teacher: str | None = Field(
            None, description="Of distil: imagenet, timm:NAME, a folder of timm, a run or FILE.onnx."
        )
        teacher_content: str | None = Field(
            None, description="Hash of the teacher, written down by itself; another one is refused."
        )
        tau_teacher: float = Field(0.05, gt=0, description="Temperature of the teacher's similarities.")
        tau_student: float = Field(0.1, gt=0, description="Temperature of the student's similarities.")

    views = 1
    takes_index = True
    learns_from_teacher = True
    compares_views = False  # anchors have neither positives nor weights
    advice_on_collapse = "Try a lower --tau-teacher, which tells more images apart, or a lower --lr."

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.settings = network, settings
        self.teacher = parts.TeacherFeatures(context.images)

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear."""
        return parts.contrastive_projector(features), None

    @staticmethod
    def passes(settings: Any) -> Passes:
        """One view is enough: an image is compared with others, not with itself."""
        return Passes(query=1)

    @staticmethod
    def suggest(settings: Any, images: int, batch: int) -> dict[str, Any]:
        """Mild crops: the teacher sees the whole image, and so should the student; docs/distil.md has measurements."""
        return {"recipe": "weak"}

    @staticmethod
    def weighs_anchors(settings: Any) -> bool:
        """There is no weight W."""
        return False

    def forward(
        self, views: tuple[Tensor, ...], labels: Tensor | None, step: int, index: Tensor | None = None
    ) -> parts.Step:
        """Compare similarities within a view (N, C, H, W) with the teacher's; index (N,): the images' numbers."""
        if index is None:
            raise ValueError("distil: index= is needed, the numbers of the images in their set")
        student, chosen = self.network(views[0]), self.settings
        z, t = student.projection, self.teacher(index)
        loss = parts.similarity_distillation(z, z, t, chosen.tau_teacher, chosen.tau_student, gather=True)
        return parts.Step(loss, student.features.detach(), {})
