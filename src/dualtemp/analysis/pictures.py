"""The pictures on a run's page: hard and easy anchors, nearest neighbors, a map of the features."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dualtemp.analysis.clean_sample import CleanSample, clean_sample, label_of, name_of
from dualtemp.analysis.neighbors import FOUND, agreement, choose_queries, nearest_neighbors
from dualtemp.analysis.principal_components import principal_components
from dualtemp.analysis.thumbnails import COLUMNS, sheet_url, tiles
from dualtemp.analysis.trained_run import Anchors, TrainedRun, open_trained_run
from dualtemp.analysis.tsne import tsne
from dualtemp.atomic_write import write_output
from dualtemp.data.loading.drawn_views import draw_views
from dualtemp.device import open_device
from dualtemp.losses.hardness import inter_anchor_weight, intra_anchor_weights, log_odds, relative_penalty, similarities
from dualtemp.losses.similarity import unit

IMAGES = 600  # on the map; neighbors are searched among them too
ANCHORS = 256
EXTREME = 6  # how many of the hardest and of the easiest anchors to show
NEGATIVES = 6  # how many of each anchor's hardest negatives to show
FEWEST = 8  # images that a neighbor embedding needs
PARTS = 3  # steps that progress counts: images, anchors, map


class Sheet:
    """Collects tiles and numbers them by their position."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []
        self.count = 0

    def add(self, shown: Tensor) -> list[int]:
        """Add tiles (N, C, tile, tile) and return their numbers."""
        self.parts.append(shown)
        self.count += len(shown)
        return list(range(self.count - len(shown), self.count))


Progress = Callable[[int, int], None]  # (parts done, parts in all)


def take_pictures(path: Path, device: str = "auto", progress: Progress = lambda done, total: None) -> None:
    """Take pictures of a run and write RUN/pictures.json atomically.

    Args:
        path: the run's folder.
        device: default "auto", the best available device.
        progress: called with the number of parts done and the number of parts in all.
    """
    progress(0, PARTS)
    write_pictures(path, collect_pictures(open_trained_run(path, open_device(device)), progress=progress))


def write_pictures(path: Path, found: dict[str, Any]) -> None:
    """Write the result of `collect_pictures` to a run's folder."""
    # tau_beta may be infinite, which Python's json can write and read.
    write_output(path / "pictures.json", json.dumps(found) + "\n", "run folder")


def collect_pictures(
    run: TrainedRun, images: int = IMAGES, progress: Progress = lambda done, total: None
) -> dict[str, Any]:
    """Build the content of pictures.json (see docs/analysis.md), with at most `images` images on the map."""
    sheet = Sheet()
    sample = clean_sample(run, images)
    numbers = sheet.add(sample.tiles)
    alpha, beta = run.temperatures if run.has_anchors else (None, None)
    progress(1, PARTS)
    anchors = _anchors(run, sheet)
    progress(2, PARTS)
    found = {
        "step": run.step,
        "tau_alpha": alpha,
        "tau_beta": beta,
        "part": sample.part,
        "anchors": anchors,
        "neighbours": _neighbors(sample, numbers),
        "map": _map(run, sample, numbers),
    }
    shown = torch.cat(sheet.parts)
    progress(PARTS, PARTS)
    return {**found, "tile": shown.shape[-1], "columns": COLUMNS, "sheet": sheet_url(shown)}


def _anchors(run: TrainedRun, sheet: Sheet) -> dict[str, Any] | None:
    if not run.has_anchors or len(run.data.images) < 3:  # with two images each anchor has a single negative
        return None
    batch = next(iter(run.anchors(1, ANCHORS)), None)
    if batch is None or len(batch.q) < 3:
        return None
    alpha, beta = run.temperatures
    s = similarities(batch.q.cpu().double(), batch.k_pos.cpu().double())  # (N,), (N, N - 1)
    d = log_odds(s.positive, s.negatives, beta)
    W, r = inter_anchor_weight(d), relative_penalty(d)
    # At an infinite tau_beta all weights are equal, so tau_alpha decides which anchors are hard.
    order = (d if math.isfinite(beta) else log_odds(s.positive, s.negatives, alpha)).argsort(stable=True).tolist()
    count = min(EXTREME, len(order) // 2)
    hardest, easiest = order[: -count - 1 : -1], order[:count]
    p = intra_anchor_weights(s.negatives, alpha)
    strongest = s.negatives.argsort(dim=1, descending=True, stable=True)[:, :NEGATIVES]
    # An anchor's own key is not among its negatives: key j of the batch is negative j, or j - 1 after its own key.
    keys = {i: [j + (j >= i) for j in strongest[i].tolist()] for i in (*hardest, *easiest)}
    numbers = _view_numbers(run, batch, keys, sheet)

    def anchor(i: int) -> dict[str, Any]:
        negatives = [
            {
                "picture": numbers[1, key],
                **_called(run, batch, key),
                "s": _short(s.negatives[i, j]),
                "p": _short(p[i, j]),
            }
            for j, key in zip(strongest[i].tolist(), keys[i], strict=True)
        ]
        return {
            "views": [numbers[0, i], numbers[1, i]],
            **_called(run, batch, i),
            "s": _short(s.positive[i]),
            "W": _short(W[i]),
            "r": _short(r[i]),
            "negatives": negatives,
        }

    return {
        "count": len(order),
        "told": "negatives are the other keys of the batch",
        "hardest": [anchor(i) for i in hardest],
        "easiest": [anchor(i) for i in easiest],
    }


def _view_numbers(
    run: TrainedRun, batch: Anchors, keys: dict[int, list[int]], sheet: Sheet
) -> dict[tuple[int, int], int]:
    """Add every view that is shown to the sheet once; return its tile number by (view, position in the batch)."""
    wanted = [sorted(keys), sorted({*keys, *(key for found in keys.values() for key in found)})]
    numbers: dict[tuple[int, int], int] = {}
    for view, places in enumerate(wanted):
        shown = tiles(run.data.views.unnormalize(batch.views[view][places]))
        numbers |= {(view, place): number for place, number in zip(places, sheet.add(shown), strict=True)}
    return numbers


def _called(run: TrainedRun, batch: Anchors, place: int) -> dict[str, str | None]:
    i = int(batch.index[place])
    return {"name": name_of(run.data.images, "training", i), "label": label_of(run.data.images, i)}


def _neighbors(sample: CleanSample, numbers: list[int]) -> dict[str, Any] | None:
    if len(numbers) < 2:
        return None
    near, names = nearest_neighbors(sample.features, FOUND), sample.names

    def called(place: int) -> dict[str, Any]:
        label = label_of(sample.images, int(sample.index[place]))
        return {"picture": numbers[place], "name": names[place], "label": label}

    rows = [
        {
            "query": called(i),
            "found": [
                {**called(j), "s": _short(s)} for j, s in zip(near.index[i].tolist(), near.similarity[i], strict=True)
            ],
        }
        for i in choose_queries(sample)
    ]
    return {"agreement": agreement(sample.labels, near.index), "queries": len(numbers), "rows": rows}


def _map(run: TrainedRun, sample: CleanSample, numbers: list[int]) -> dict[str, Any]:
    found = principal_components(sample.features)
    embedded = None
    if len(numbers) >= FEWEST:
        (z,) = unit(sample.features)
        embedded = tsne(z, found.places.float())
    labels = sample.labels
    names = list(sample.images.classes) or [str(label) for label in range(int(labels.max()) + 1)]
    W = sample_weights(run, sample) if run.has_anchors else None
    return {
        "names": sample.names,
        "pictures": numbers,
        "labels": labels.tolist(),
        "classes": names,
        "W": None if W is None else [_short(w) for w in W],
        "pca": [[_short(x) for x in place] for place in found.places],
        "explained": list(found.explained),
        "tsne": None if embedded is None else [[_short(x) for x in place] for place in embedded],
    }


def sample_weights(run: TrainedRun, sample: CleanSample) -> Tensor | None:
    """Compute W (N,) at tau_beta of each image as an anchor: two views of it, against the other images' keys.

    Returns None for fewer than two images. Batches are of equal size and no larger than the run's, so that batch norm
    works as in training.
    """
    count = len(sample.index)
    if count < 2:
        return None
    batches = sample.index.tensor_split(max(1, min(-(-count // run.chosen.batch), count // 2)))
    draws = [(run.chosen.epochs, 0), (run.chosen.epochs, 1)]
    q, k, shown = [], [], []
    for drawn in draw_views(sample.images, run.data.views, batches, draws, run.device):
        if len(drawn.index) > 1:
            q.append(run.query(drawn.views[0]))
            k.append(run.key(drawn.views[1]))
            shown.append(drawn.index)
    if not shown or not torch.equal(torch.cat(shown), sample.index):  # a file has disappeared meanwhile
        return None
    s = similarities(torch.cat(q).cpu().double(), torch.cat(k).cpu().double())
    return inter_anchor_weight(log_odds(s.positive, s.negatives, run.temperatures.beta))


def _short(value: Tensor | float) -> float:
    """Round to six digits, to keep the page small."""
    return float(f"{float(value):.6g}")
