"""Features of images, without gradients and without augmentation."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn


def image_features(
    encoder: nn.Module, batches: Iterable[Tensor | Sequence[Tensor]], *, device: torch.device | str | None = None
) -> Tensor:
    """Features (N, F), float32, of all images, in order.

    The encoder runs in eval mode; afterwards each of its modules has its former mode.

    Args:
        encoder: images (B, C, H, W) -> features (B, F).
        batches: of images, or of tuples that start with images; read once, one at a time.
        device: where the features are gathered; None leaves them where the encoder is.
    """
    return _stream(encoder, batches, device)[0]


def image_features_and_labels(
    encoder: nn.Module, batches: Iterable[Sequence[Tensor]], *, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """Features (N, F) as `image_features` gives them, and labels (N,), of batches of (images, labels)."""
    rows, labels = _stream(encoder, batches, device)
    if len(labels) != len(rows):
        raise ValueError("image_features_and_labels: batches must be tuples (images, labels)")
    return rows, labels


def _stream(
    encoder: nn.Module, batches: Iterable[Tensor | Sequence[Tensor]], device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    home = next((p.device for p in encoder.parameters()), None)
    rows: list[Tensor] = []
    labels: list[Tensor] = []
    with evaluating(encoder), torch.inference_mode():
        for batch in batches:
            images, *rest = (batch,) if isinstance(batch, Tensor) else batch
            out = encoder(images.to(home, non_blocking=True)).float()
            rows.append(out if device is None else out.to(device))
            if rest and rest[0] is not None:
                labels.append(rest[0].to(rows[-1].device))
    if not rows:
        raise ValueError("image_features: there is not one batch")
    # Concatenated outside of inference mode, so that a probe can be trained on them.
    return torch.cat(rows), torch.cat(labels) if labels else torch.empty(0, dtype=torch.int64)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put the module into eval mode inside the block; afterwards restore each submodule's own mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        # Call `train`, not only set the flag: some modules drop caches of eval mode there. Parents come first.
        for part, mode in modes:
            if part.training != mode:
                part.train(mode)
