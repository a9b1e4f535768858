"""Run one analysis of a trained run and record everything that determines its result."""

import math
from pathlib import Path
from typing import Any

from dualtemp.analysis.analyses import check_asked
from dualtemp.analysis.dictionary import compare_dictionary_sizes, default_sizes
from dualtemp.analysis.neighbors import IMAGES, measure_neighbors
from dualtemp.analysis.penalty import measure_entropy, measure_similarity
from dualtemp.analysis.trained_run import open_trained_run
from dualtemp.device import open_device
from dualtemp.errors import UserError

TAUS = {"entropy": [0.05, 0.1, 0.2, 0.5, 1.0], "similarity": [0.1, 1.0]}  # for dictionary: the run's own


def analyze(
    run: Path | str,
    what: str,
    *,
    data: str | None = None,
    taus: list[float] | None = None,
    sizes: list[int] | None = None,
    images: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Analyze a run, as `dualtemp analyze` does. Returns what `--json` prints.

    Args:
        run: the run's folder.
        what: "entropy", "similarity", "dictionary" or "neighbours".
        data: a set, a folder or an .npz file to use instead of the run's own images.
        taus: temperatures, possibly math.inf. Not for "neighbours".
        sizes: numbers of keys. Not for "neighbours".
        images: number of images for "neighbours". Default 2000.
        device: "auto" picks the best available device.
    """
    check_asked(what, taus, sizes, images)
    opened = open_trained_run(Path(run), open_device(device), data)
    about = {
        "analysis": what,
        "run": str(run),
        "method": opened.chosen.method,
        "data": opened.chosen.data if data is None else data,
        "step": opened.step,
    }
    if what == "neighbours":
        return {**about, **measure_neighbors(opened, images or IMAGES)}
    taus = taus or TAUS.get(what) or sorted(set(opened.temperatures))
    draws = 2 if what == "similarity" else 1
    sizes = sizes or default_sizes(opened, draws)
    _check_sizes(sizes, draws, opened.max_keys)
    keys = "the run's dictionary" if opened.has_own_keys else "made of the images"
    about |= {"keys_are": keys, "taus": [_for_json(tau) for tau in taus], "sizes": sizes}
    if what == "dictionary":
        found = compare_dictionary_sizes(opened, taus, sizes)
    else:
        found = (measure_entropy if what == "entropy" else measure_similarity)(opened, taus, sizes)._asdict()
    _check_sizes(sizes, draws, found["keys"])  # unreadable files have no keys
    return {**about, **found}


def _check_sizes(sizes: list[int], draws: int, keys: int) -> None:
    if draws * min(sizes) > keys:
        twice = " and similarity needs two disjoint draws" if draws == 2 else ""
        raise UserError(
            f"--sizes {min(sizes)}: the dictionary has {keys:,} keys{twice}; give at most {keys // draws:,}, or omit "
            "--sizes"
        )


def _for_json(tau: float) -> float | str:
    """JSON has no infinity."""
    return tau if math.isfinite(tau) else "inf"
