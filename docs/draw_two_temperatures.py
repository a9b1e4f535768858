"""Draw docs/two-temperatures.svg: what either temperature does to 64 images in the batch of a trained run.

python docs/draw_two_temperatures.py runs/demo
"""

import sys
from pathlib import Path
from typing import Any

import torch

from dualtemp.data.loading.loader import Loader
from dualtemp.frameworks import build_framework
from dualtemp.losses import hardness
from dualtemp.runs.checkpoint import checkpoints, load
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import open_data, training_data

TAUS = {0.1: "#d1495b", 1.0: "#2e86ab"}
WIDTH, HEIGHT, LEFT, TOP = 330, 170, 50, 56


def curve(values: list[float], top: float, x: int, colour: str) -> str:
    step = WIDTH / (len(values) - 1)
    points = " ".join(f"{x + i * step:.1f},{TOP + HEIGHT * (1 - v / top):.1f}" for i, v in enumerate(values))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>'


def panel(x: int, title: str, below: str, curves: dict[float, list[float]], name: str) -> list[str]:
    top = max(max(values) for values in curves.values()) * 1.05
    parts = [
        f'<text x="{x}" y="{TOP - 32}" font-size="14" font-weight="600">{title}</text>',
        f'<text x="{x}" y="{TOP + HEIGHT + 22}" font-size="12" fill="#888">{below}</text>',
        f'<path d="M{x} {TOP}V{TOP + HEIGHT}H{x + WIDTH}" fill="none" stroke="#999"/>',
        f'<text x="{x - 8}" y="{TOP + 8}" font-size="11" fill="#888" text-anchor="end">{top / 1.05:.2g}</text>',
        f'<text x="{x - 8}" y="{TOP + HEIGHT}" font-size="11" fill="#888" text-anchor="end">0</text>',
    ]
    for i, (tau, values) in enumerate(curves.items()):
        parts.append(curve(values, top, x, TAUS[tau]))
        label = f"{name} = {tau:g}"
        parts.append(f'<text x="{x + 10 + 130 * i}" y="{TOP - 12}" font-size="13" fill="{TAUS[tau]}">{label}</text>')
    return parts


def main() -> None:
    run = RunFolder.open(Path(sys.argv[1]))
    chosen = run.settings()
    data = training_data(chosen, open_data(chosen))
    method: Any = build_framework(chosen, data.images.channels, data.classes)
    method.load_state_dict(load(checkpoints(run.checkpoints)[-1]).method)
    batch = next(Loader(data.images, data.views, 64).batches(epoch=chosen.epochs))
    with torch.no_grad():
        q, k = (method.eval().network(view).projection for view in batch.views)
    s = hardness.similarities(q, k)
    intra = {tau: hardness.intra_anchor_weights(s.negatives[0], tau).sort(descending=True)[0] for tau in TAUS}
    d = {tau: hardness.log_odds(*s, tau) for tau in TAUS}
    inter = {tau: hardness.relative_penalty(d[tau]).sort(descending=True)[0] for tau in TAUS}
    right = LEFT + WIDTH + 90
    parts = [
        *panel(
            LEFT,
            "within an anchor: weights of its negatives",
            "63 negatives, hardest first; tau_alpha: hard ones count",
            {tau: values.tolist() for tau, values in intra.items()},
            "tau_alpha",
        ),
        *panel(
            right,
            "between anchors: shares of the gradient",
            "64 anchors, hardest first; tau_beta: all of them count",
            {tau: values.tolist() for tau, values in inter.items()},
            "tau_beta",
        ),
    ]
    width, height = right + WIDTH + 20, TOP + HEIGHT + 40
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" fill="#777">'
        + "".join(parts)
        + "</svg>\n"
    )
    (Path(__file__).parent / "two-temperatures.svg").write_text(svg)


if __name__ == "__main__":
    main()
