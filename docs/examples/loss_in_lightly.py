"""The loss inside lightly: its SimCLR example with another criterion. Needs lightly (pip install lightly).

    python docs/examples/loss_in_lightly.py        STEPS=3 makes it short

`lightly.loss.NTXentLoss` and `dualtemp.DualTemperatureLoss` are called alike: two batches of projections in, a number
out. So one line changes.
"""

import os

import torch
from torch import nn

from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()  # only where torchvision was built for CUDA and torch was not; harmless elsewhere

import torchvision  # noqa: E402
from lightly.models.modules import SimCLRProjectionHead  # noqa: E402
from lightly.transforms.simclr_transform import SimCLRTransform  # noqa: E402
from PIL import Image  # noqa: E402

from dualtemp import DualTemperatureLoss  # noqa: E402
from dualtemp.data import open_source  # noqa: E402

torch.manual_seed(0)


class SimCo(nn.Module):
    """Encoder and projection head, as lightly's examples have them."""

    def __init__(self) -> None:
        super().__init__()
        resnet = torchvision.models.resnet18()
        self.backbone = nn.Sequential(*list(resnet.children())[:-1])
        self.projection_head = SimCLRProjectionHead(512, 512, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, H, W) -> projections (N, 128)."""
        return self.projection_head(self.backbone(x).flatten(start_dim=1))


class Digits(torch.utils.data.Dataset):
    """Handwritten digits as images of Pillow, two views each by lightly's transform."""

    def __init__(self, transform: SimCLRTransform) -> None:
        self.pixels, self.transform = open_source("digits").train.pixels, transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> list[torch.Tensor]:
        return self.transform(Image.fromarray(self.pixels[i, 0].numpy()).convert("RGB"))  # pyright: ignore


model = SimCo()
loader = torch.utils.data.DataLoader(
    Digits(SimCLRTransform(input_size=32, gaussian_blur=0.0)), batch_size=64, shuffle=True, drop_last=True
)
criterion = DualTemperatureLoss(tau_alpha=0.1, tau_beta=1.0)  # was: lightly.loss.NTXentLoss(temperature=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.06)

steps = int(os.environ.get("STEPS", "20"))
for step, (x0, x1) in zip(range(steps), loader, strict=False):
    loss = criterion(model(x0), model(x1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}", flush=True)
