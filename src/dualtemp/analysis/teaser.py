"""Three anchors of a real batch with their weights (fig:teaser)."""

import base64
import io
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.losses.hardness import (
    inter_anchor_weight,
    intra_anchor_weights,
    log_odds,
    relative_penalty,
    similarities,
)

NEGATIVES = 5  # shown for each anchor


def three_anchors(run: TrainedRun, taus: list[float]) -> list[dict[str, Any]]:
    """Describe the easiest, the median and the hardest anchor of a batch, ranked by W at the first tau.

    Each entry holds pictures of the anchor, its positive and its hardest negatives (the batch's other keys) as
    base64-encoded PNG, the similarities, W and r_+ at every tau, and the negatives' intra-anchor weights at every tau.
    """
    batch = next(iter(run.anchors(1)))
    s = similarities(batch.q, batch.k_pos)  # (N,), (N, N - 1)
    odds = {tau: log_odds(s.positive, s.negatives, tau) for tau in taus}
    order = odds[taus[0]].argsort()
    pictures = [run.data.views.unnormalize(view) for view in batch.views]
    found = []
    for name, place in (("easy", 0), ("median", len(order) // 2), ("hard", len(order) - 1)):
        i = int(order[place])
        hardest = s.negatives[i].argsort(descending=True)[:NEGATIVES]
        found.append(
            {
                "name": name,
                "anchor": encode_png(pictures[0][i]),
                "positive": encode_png(pictures[1][i]),
                "s_positive": s.positive[i].item(),
                "W": {f"{tau:g}": inter_anchor_weight(d)[i].item() for tau, d in odds.items()},
                "r": {f"{tau:g}": relative_penalty(d)[i].item() for tau, d in odds.items()},
                "anchors": len(order),
                "negatives": [
                    {
                        "picture": encode_png(
                            pictures[1][j + (j >= i)]
                        ),  # the anchor's own key is not among its negatives
                        "s": s.negatives[i, j].item(),
                        "p": {
                            f"{tau:g}": intra_anchor_weights(s.negatives[i : i + 1], tau)[0, j].item() for tau in taus
                        },
                    }
                    for j in hardest.tolist()
                ],
            }
        )
    return found


def encode_png(picture: Tensor) -> str:
    """Encode a picture (C, H, W) in [0, 1] as base64 PNG."""
    pixels = (picture * 255).round().to("cpu", torch.uint8)
    image = Image.fromarray(pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
