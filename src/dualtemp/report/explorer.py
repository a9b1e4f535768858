"""The explorer: a page with sliders for both temperatures and the dictionary, and all weights, over a run's anchors."""

import base64
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.analysis.clean_sample import label_of, name_of
from dualtemp.analysis.thumbnails import sheet_url, tiles
from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.data.images import ImageSet
from dualtemp.errors import UserError
from dualtemp.frameworks.temperature_settings import OF_WEIGHT, AnchorSettings
from dualtemp.losses.hardness import Similarities, similarities
from dualtemp.report.page import render, write_page
from dualtemp.temperatures import TAU_ALPHA, TAU_BETA

ANCHORS, KEYS = 64, 2048  # maximum numbers
SMALL = 16  # keys of a small dictionary
COLUMNS, SHEET_BYTES = 48, 1_800_000  # of the sheet of thumbnails
LOWEST, HIGHEST = 0.02, 5.0
MANTISSAS = (1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)  # about even in log

# How the page calls the weights of the family; "tied" is the sigmoid at one temperature.
MEMBERS = {
    "tied": "tied: sigmoid(d(tau)), InfoNCE",
    "sigmoid": "sigmoid(d(tau_beta)), dual temperature",
    "equal": "equal: 1, DCL",
    "memory": "memory: G / u, SogCLR",
    "per_image": "per image: tau_i / tau_alpha G / u, iSogCLR",
}


class ExplorerData(NamedTuple):
    """Anchors, keys of other images, and their similarities.

    s: similarities (N,) and (N, K), float32 on the CPU, newest key first: a dictionary of size k is the first k;
    anchors (N,) and keys (K,): positions in `images`; pictures: uint8 tiles (2 N + K, C, T, T) of the anchors, their
    positives and the keys.
    """

    s: Similarities
    anchors: Tensor
    keys: Tensor
    pictures: Tensor
    images: ImageSet


class Preset(NamedTuple):
    """The choice behind a button: temperatures (tau_beta as JavaScript reads it), dictionary size, tied, weight."""

    name: str
    about: str
    alpha: float
    beta: str
    keys: int
    tied: bool
    weight: str


def collect_explorer_data(run: TrainedRun, anchors: int = ANCHORS, keys: int = KEYS) -> ExplorerData:
    """Take anchors in views that the run has not seen, and fresh keys of other training images.

    anchors, keys: maximum numbers. If there are few images, half of them are anchors. MoCo's own dictionary is not
    used, because it does not record which images its keys came from.
    """
    images = run.data.images
    anchors = max(1, min(anchors, len(images) // 2))
    parts: list[tuple[Tensor, ...]] = []
    for batch in run.anchors(-(-anchors // min(run.chosen.batch, len(images)))):
        left = anchors - sum(len(part[0]) for part in parts)
        views = [_tiles(run, view[:left]) for view in batch.views]
        parts.append((batch.q[:left], batch.k_pos[:left], batch.index[:left], *views))
    if not parts:
        raise UserError(f"{images.name}: too few images can be read to choose anchors; check it with `dualtemp data`")
    q, k_pos, index, first, second = (torch.cat(column) for column in zip(*parts, strict=True))
    k, of_keys, third = _other_keys(run, index, keys)
    s = similarities(q, k_pos, k)
    s = Similarities(s.positive.float().cpu(), s.negatives.float().cpu())
    if not all(part.isfinite().all() for part in s):
        raise UserError(f"{run.path}: its encoder returns values that are not finite; use another run")
    return ExplorerData(s, index, of_keys, torch.cat([first, second, third]), images)


def _other_keys(run: TrainedRun, anchors: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return keys (K, D), their positions (K,) and tiles, newest first; none is of an anchor's image."""
    made: list[tuple[Tensor, Tensor, Tensor]] = []
    for batch in run.key_batches(most + len(anchors)):
        others = ~torch.isin(batch.index, anchors)
        there = others.to(batch.k.device)
        made.append((batch.k[there], batch.index[others], _tiles(run, batch.view[there])))
    if not sum(len(index) for _, index, _ in made):
        raise UserError(f"{run.data.images.name}: the anchors leave no images for keys; give more images")
    k, index, pictures = (torch.cat(column) for column in zip(*made, strict=True))
    newest = torch.arange(len(k) - 1, max(-1, len(k) - 1 - most), -1)
    return k[newest.to(k.device)], index[newest], pictures[newest]


def _tiles(run: TrainedRun, views: Tensor) -> Tensor:
    return tiles(run.data.views.unnormalize(views))


def write_explorer(run: TrainedRun, path: Path) -> Path:
    """Write the page."""
    return write_page(path, explorer_page(run, collect_explorer_data(run)))


def explorer_page(run: TrainedRun, found: ExplorerData) -> str:
    """Render the page as HTML: one file, no network."""
    count, sizes = len(found.anchors), dictionary_sizes(len(found.keys))
    numbers = list(range(len(found.pictures)))
    alpha, beta = run.temperatures
    data = {
        "taus": slider_taus(alpha, beta),
        "sizes": sizes,
        "start": {"alpha": TAU_ALPHA, "beta": str(TAU_BETA), "keys": SMALL, "tied": 0},
        "positive": _words(found.s.positive),
        "negatives": _words(found.s.negatives),
        "kept": _kept_per_image(run),
        "columns": COLUMNS,
        "anchors": {
            "views": list(zip(numbers[:count], numbers[count : 2 * count], strict=True)),
            **_described(found.images, found.anchors),
        },
        "keys": {"pictures": numbers[2 * count :], **_described(found.images, found.keys)},
    }
    context = {
        "name": run.path.resolve().name,
        "anchors": count,
        "keys": len(found.keys),
        "members": MEMBERS,
        "presets": presets(run, sizes),
        "facts": _facts(run, found),
        "sheet": {
            "columns": COLUMNS,
            "tile": found.pictures.shape[-1],
            "picture": sheet_url(found.pictures, COLUMNS, SHEET_BYTES),
        },
        "data": data,
    }
    return render("explorer.html.j2", context)


def slider_taus(*own: float) -> list[float]:
    """Return a slider's temperatures, ascending and about even on a logarithmic scale, including finite `own` ones."""
    regular = {round(mantissa * 10.0**power, 4) for power in (-2, -1, 0) for mantissa in MANTISSAS}
    return sorted({tau for tau in regular if LOWEST <= tau <= HIGHEST} | {tau for tau in own if math.isfinite(tau)})


def dictionary_sizes(keys: int) -> list[int]:
    """Return the slider's dictionary sizes: powers of two from 2, and the number of keys."""
    return sorted({size for power in range(1, 12) if (size := 2**power) <= keys} | {keys})


def presets(run: TrainedRun, sizes: list[int]) -> list[Preset]:
    """Return presets: InfoNCE with many and with few keys, two temperatures with few, and the run's settings."""
    small, large = max([size for size in sizes if size <= SMALL], default=sizes[0]), sizes[-1]
    alpha, beta = run.temperatures
    held = run.chosen.get("dictionary_size") or run.chosen.batch - 1
    own = min(sizes, key=lambda size: abs(math.log(size / max(1, held))))  # 31 negatives of a batch of 32: 32
    return [
        _preset("InfoNCE, large dictionary", TAU_ALPHA, TAU_ALPHA, large),
        _preset("InfoNCE, small dictionary", TAU_ALPHA, TAU_ALPHA, small),
        _preset("Dual temperature", TAU_ALPHA, TAU_BETA, small),
        _preset("As this run", alpha, beta, own, run.chosen.options.weight if _weighs_by_choice(run) else "sigmoid"),
    ]


def _preset(name: str, alpha: float, beta: float, keys: int, weight: str = "sigmoid") -> Preset:
    tied = alpha == beta and weight == "sigmoid"
    temperatures = f"one temperature {alpha:g}" if tied else f"tau_alpha {alpha:g}, tau_beta {beta:g}"
    if weight != "sigmoid":
        temperatures = f"tau_alpha {alpha:g}, weight {weight}"
    words = "Infinity" if math.isinf(beta) else str(beta)
    return Preset(name, f"{temperatures}, {keys:,} keys", alpha, words, keys, tied, weight)


def _weighs_by_choice(run: TrainedRun) -> bool:
    return isinstance(run.chosen.options, AnchorSettings)


def _kept_per_image(run: TrainedRun) -> dict[str, float]:
    """Return the settings of weights that are kept per image: the run's, or their defaults where it has none."""
    options = run.chosen.options if _weighs_by_choice(run) else AnchorSettings()
    return {name: getattr(options, name) for name in OF_WEIGHT["per_image"]}


def _described(images: ImageSet, index: Tensor) -> dict[str, Any]:
    numbers = index.tolist()
    return {
        "names": [name_of(images, "training", i) for i in numbers],
        "labels": [label_of(images, i) for i in numbers],
    }


def _facts(run: TrainedRun, found: ExplorerData) -> dict[str, str]:
    count = len(found.anchors)
    return {
        "Run": f"{run.path.resolve().name}: {_learned(run)}",
        "Data": found.images.name,
        "Anchors": f"{count:,}, in views that the run was not trained on",
        "Keys": f"{len(found.keys):,} of other training images, computed afresh by the run's key encoder",
    }


def _learned(run: TrainedRun) -> str:
    if run.step == 0 and not run.own_data:
        return f"{run.chosen.backbone}, pretrained, its features in the place of projections"
    return f"{run.chosen.method}, {run.chosen.backbone}, step {run.step:,}"


def _words(values: Tensor) -> str:
    """Encode as little-endian float32 in base64, row by row."""
    return base64.b64encode(values.contiguous().numpy().astype("<f4").tobytes()).decode()
