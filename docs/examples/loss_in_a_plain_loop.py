"""The loss alone in a plain torch loop: SimCo by hand, on the handwritten digits that come with the package.

    python docs/examples/loss_in_a_plain_loop.py        STEPS=20 makes it short

Nothing but the loss is dualtemp's: encoder, views and loop are yours.
"""

import os

import torch
from torch import Tensor, nn

from dualtemp import DualTemperatureLoss
from dualtemp.data import open_source  # any uint8 images (N, C, H, W) would do

torch.manual_seed(0)
pixels = open_source("digits").train.pixels  # (1438, 1, 8, 8)
assert isinstance(pixels, Tensor)


def view(images: Tensor) -> Tensor:
    """Shift each image by up to a pixel either way, and make it brighter or darker, noisier."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    top, left = torch.randint(3, (2,)).tolist()
    shifted = padded[:, :, top : top + 8, left : left + 8]
    return shifted * torch.empty(len(images), 1, 1, 1).uniform_(0.6, 1.4) + 0.1 * torch.randn_like(shifted)


encoder = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten()),
)
projector = nn.Sequential(nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64))
criterion = DualTemperatureLoss(tau_alpha=0.1, tau_beta=1.0)  # the negatives are the batch: no dictionary
optimizer = torch.optim.SGD([*encoder.parameters(), *projector.parameters()], lr=0.1, momentum=0.9)

losses = []
for step in range(int(os.environ.get("STEPS", "200"))):
    images = pixels[torch.randint(len(pixels), (128,))].float() / 255
    loss = criterion(projector(encoder(view(images))), projector(encoder(view(images))))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
print(f"from {sum(losses[:5]) / 5:.3f} to {sum(losses[-5:]) / 5:.3f}")
