"""The encoder that is exported, and the same with its normalization inside."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.data.augment.views import Views
from dualtemp.evaluation.classifier import NEIGHBORS, Classifier

ANSWERS = ("features", "probabilities", "novelty")  # what a graph that classifies gives


@dataclass(frozen=True)
class ExportedEncoder:
    """A backbone on the CPU in eval mode, how to build it (`models.describe_backbone`), and its views.

    normalizes: whether graphs take uint8 pixels and normalize them themselves; sample: gives real images, uint8 pixels
    (N, C, size, size), None if there are none. Every second one calibrates, the others are for comparing; classifier:
    goes into the graphs of formats that carry one.
    """

    backbone: nn.Module
    recipe: dict[str, Any]
    views: Views
    normalizes: bool = False
    sample: Callable[[], Tensor] | None = None
    classifier: Classifier | None = None

    @property
    def channels(self) -> int:
        """Channels of the images."""
        return len(self.views.mean)

    def graph(self) -> nn.Module:
        """The module that graphs are made of."""
        return NormalizingEncoder(self.backbone, self.views).eval() if self.normalizes else self.backbone

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what `answering` graphs give."""
        return ANSWERS if self.classifier is not None else ANSWERS[:1]

    def answering(self, graph: nn.Module) -> nn.Module:
        """The graph with the classifier behind it, if there is one."""
        return graph if self.classifier is None else ClassifyingEncoder(graph, self.classifier).eval()

    def pixels(self, count: int) -> Tensor:
        """Random uint8 pixels (count, C, size, size), always the same."""
        shape = (count, self.channels, self.views.size, self.views.size)
        return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    def calibration(self) -> Tensor:
        """Real images whose features a format may look at."""
        assert self.sample is not None
        return self.sample()[::2]

    def comparison(self) -> Tensor:
        """Real images to compare features on."""
        assert self.sample is not None
        return self.sample()[1::2]

    def canvas_graph(self) -> nn.Module:
        """The module of a graph that takes a canvas's pixels."""
        return CanvasEncoder(self.backbone, self.views).eval()

    def graph_input(self, pixels: Tensor) -> Tensor:
        """What the graph takes for these pixels: themselves, or normalized."""
        return pixels if self.normalizes else self.views.normalize(pixels)


class NormalizingEncoder(nn.Module):
    """Normalizes uint8 pixels (N, C, H, W) and encodes them."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, views: Views) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", torch.tensor(views.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(views.std).view(-1, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (N, F)."""
        return self.backbone((pixels.to(torch.float32) / 255.0 - self.mean) / self.std)


class CanvasEncoder(nn.Module):
    """Encodes a canvas's pixels, uint8 RGBA (N, H, W, 4), whose opacity is passed over; gray as Pillow makes it."""

    gray: Tensor

    def __init__(self, backbone: nn.Module, views: Views) -> None:
        super().__init__()
        self.encoder, self.is_gray = NormalizingEncoder(backbone, views), len(views.mean) == 1
        self.register_buffer("gray", torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (N, F)."""
        color = pixels[..., :3].permute(0, 3, 1, 2).to(torch.float32)
        return self.encoder((color * self.gray).sum(1, keepdim=True) if self.is_gray else color)


class ClassifyingEncoder(nn.Module):
    """Features (N, F) of an encoder, calibrated probabilities (N, C) and novelty (N,): as `Classifier.predict` does.

    Standardization is part of the weights here.
    """

    weight: Tensor
    bias: Tensor
    bank: Tensor
    spread: Tensor

    def __init__(self, encoder: nn.Module, classifier: Classifier) -> None:
        super().__init__()
        self.encoder, self.temperature = encoder, classifier.temperature
        weight = classifier.weight.double() / classifier.scale.double()
        self.register_buffer("weight", weight.float())
        self.register_buffer("bias", (classifier.bias.double() - weight @ classifier.mean.double()).float())
        self.register_buffer("bank", classifier.bank)
        self.register_buffer("spread", classifier.spread)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, probabilities and novelty."""
        features = self.encoder(images)
        logits = nn.functional.linear(features, self.weight, self.bias)
        near = (nn.functional.normalize(features) @ self.bank.T).topk(min(NEIGHBORS, len(self.bank))).values
        scores = torch.stack((-logits.logsumexp(1), 1 - near.mean(1)), 1)
        novelty = ((scores - self.spread[0]) / self.spread[1]).sum(1)
        return features, (logits / self.temperature).softmax(1), novelty
