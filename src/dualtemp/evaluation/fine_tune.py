"""Fine-tuning: all weights of an encoder and a linear classifier on it learn from labels, by one plain recipe."""

import copy
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# AdamW, because one rate then fits convolutions and transformers alike. Of 3e-4, 1e-3 and 3e-3 this one was best or
# within a point of it, from a trained and from an untrained encoder.
LR, WEIGHT_DECAY, WARMUP = 1e-3, 0.05, 0.1
BATCH, SEEN = 64, 200_000


def default_epochs(images: int) -> int:
    """Epochs that show some 200,000 images: from 50 of a small set to 4 of a large one."""
    return min(50, max(4, round(SEEN / images)))


def default_batch(images: int) -> int:
    """64, or so few that a small set makes eight steps an epoch; at least 2."""
    return min(BATCH, max(2, images // 8))


def fine_tuned(
    encoder: nn.Module,
    num_features: int,
    classes: int,
    batches: Callable[[int], Iterable[tuple[Tensor, Tensor]]],
    steps: int,
    epochs: int,
    *,
    lr: float = LR,
    weight_decay: float = WEIGHT_DECAY,
    seed: int = 0,
    after_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> nn.Module:
    """Train a copy of the encoder with a linear classifier on it; gives images (N, C, H, W) -> logits (N, classes).

    AdamW, mean cross entropy; the rate rises over the first tenth of the steps and falls to 0 along a cosine. The
    classifier starts at zero. What is drawn inside (dropout) depends on `seed` alone: on a CPU the same calls give the
    same bits. The encoder that was given stays as it is.

    Args:
        encoder: images (N, C, H, W) -> features (N, num_features), in any mode, frozen or not.
        num_features: F.
        classes: C.
        batches: epoch from 0 -> `steps` batches of images and labels (N,), on the encoder's device.
        steps: batches of an epoch.
        epochs: passes over the images.
        lr: highest learning rate, default 1e-3.
        weight_decay: of matrices and kernels, default .05; biases and scales have none.
        seed: of dropout.
        after_epoch: is told the epoch, from 1, and its mean loss.
    """
    head = nn.Linear(num_features, classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    home = next(encoder.parameters()).device
    model = nn.Sequential(copy.deepcopy(encoder), head.to(home)).requires_grad_(True).train()
    optimiser = torch.optim.AdamW(_groups(model, weight_decay), lr=lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, lr, total_steps=max(steps * epochs, 2), pct_start=WARMUP, cycle_momentum=False
    )
    with torch.random.fork_rng(devices=[home] if home.type == "cuda" else []):
        torch.manual_seed(seed)
        for epoch in range(epochs):
            losses: list[Tensor] = []
            for images, labels in batches(epoch):
                loss = F.cross_entropy(model(images), labels)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
                losses.append(loss.detach())
            after_epoch(epoch + 1, float(torch.stack(losses).mean()))
    return model.eval()


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
