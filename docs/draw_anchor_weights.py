"""Draw docs/anchor-weights.svg: the weight w of an anchor over its log-odds d, for each member of the family.

python docs/draw_anchor_weights.py

The weights are those of `dualtemp.losses.weights`. An anchor is one with 63 negatives of equal similarity, so that one
number, its log-odds d at tau_alpha = .1, decides all: at tau_beta they are log 63 + (d - log 63) tau_alpha / tau_beta.
The weights that are kept per image depend on earlier steps too: here the image had one, with d = 0.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

from dualtemp.losses.image_memory import ImageMemory, ImageTemperatures
from dualtemp.losses.odds import Odds
from dualtemp.losses.weights import FORMULAS

PICTURE = Path(__file__).parent / "anchor-weights.svg"
NEGATIVES, TAU_ALPHA, TAU_BETA = 63, 0.1, 1.0
LOWEST, HIGHEST, TOP_WEIGHT = -8.0, 8.0, 1.25  # of d and w, as far as the axes go
WIDTH, HEIGHT, LEFT, TOP = 460, 220, 50, 40
COLORS = ("#d1495b", "#2e86ab", "#888888", "#3a8f5c", "#9b5de5")


def log_odds_at(d: Tensor, tau: Tensor | float) -> Tensor:
    """Log-odds at tau of anchors whose log-odds at tau_alpha are d, all negatives being equally similar."""
    log_negatives = math.log(NEGATIVES)
    return log_negatives + (d - log_negatives) * TAU_ALPHA / tau


def weigh_remembered(memory: ImageMemory, d: Tensor) -> Tensor:
    """Return w at an image's second step, after a first one with d = 0; every anchor (N,) is of an image of its own."""
    index = torch.arange(len(d))
    for now in (torch.zeros_like(d), d):
        own = memory.temperatures(index, 1, TAU_ALPHA)
        tau = torch.full_like(d, TAU_ALPHA) if own is None else own.tau[0]
        at_tau = log_odds_at(now, tau)
        slope = at_tau - math.log(NEGATIVES)  # (s - s_+) / tau, the same for every negative
        odds = Odds(at_tau[None], log_negatives=math.log(NEGATIVES), tau=tau[None], slope=slope[None])
        w = memory.weigh(odds, index, TAU_ALPHA).scalar[0]
    return w


def curves(d: Tensor) -> dict[str, Tensor]:
    """Return w (N,) of each member at log-odds d (N,), by what the picture calls it."""
    count = len(d)
    return {
        "tied: InfoNCE": FORMULAS["sigmoid"].weigh(Odds(d)).scalar,
        f"sigmoid, tau_beta = {TAU_BETA:g}": FORMULAS["sigmoid"].weigh(Odds(d, log_odds_at(d, TAU_BETA))).scalar,
        "equal: DCL": FORMULAS["equal"].weigh(Odds(d)).scalar,
        "memory: SogCLR": weigh_remembered(ImageMemory(count, directions=1).double(), d),
        "per image: iSogCLR": weigh_remembered(ImageTemperatures(count, directions=1).double(), d),
    }


def draw() -> str:
    """Return the picture as SVG."""
    d = torch.linspace(LOWEST, HIGHEST, 65, dtype=torch.float64)
    bottom, right = TOP + HEIGHT, LEFT + WIDTH

    def across(value: float) -> float:
        return LEFT + WIDTH * (value - LOWEST) / (HIGHEST - LOWEST)

    def up(value: float) -> float:
        return bottom - HEIGHT * value / TOP_WEIGHT

    parts = [
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">weight w of an anchor over its log-odds d</text>',
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#999"/>',
        f'<text x="{LEFT}" y="{bottom + 40}" font-size="12" fill="#888">'
        f"d at tau_alpha = {TAU_ALPHA:g}, {NEGATIVES} equal negatives: easy anchors on the left, hard ones on the right"
        "</text>",
    ]
    small = 'font-size="11" fill="#888"'
    for tick in (-8, -4, 0, 4, 8):
        parts.append(f'<text x="{across(tick):.1f}" y="{bottom + 18}" {small} text-anchor="middle">{tick}</text>')
    for tick in (0, 0.5, 1):
        parts.append(f'<text x="{LEFT - 8}" y="{up(tick) + 4:.1f}" {small} text-anchor="end">{tick:g}</text>')
    for place, ((name, w), color) in enumerate(zip(curves(d).items(), COLORS, strict=True)):
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in zip(d.tolist(), w.tolist(), strict=True))
        y = TOP + 30 + 26 * place
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2.5"/>',
            f'<path d="M{right + 24} {y - 4}h22" stroke="{color}" stroke-width="2.5"/>',
            f'<text x="{right + 54}" y="{y}" font-size="13" fill="{color}">{name}</text>',
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 230} {bottom + 56}" font-family="sans-serif" '
        f'fill="#777">{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
