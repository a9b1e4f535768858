"""One analysis of a trained run, with everything that determines it."""

import math
from pathlib import Path
from typing import Any

from dualtemp.analysis.dictionary import by_dictionary_size, usual_sizes
from dualtemp.analysis.neighbours import IMAGES, neighbours
from dualtemp.analysis.penalty import measured_entropy, measured_similarity
from dualtemp.analysis.trained_run import trained_run
from dualtemp.device import open_device
from dualtemp.errors import UserError
from dualtemp.text import suggest

ANALYSES = ("entropy", "similarity", "dictionary", "neighbours")
TAUS = {"entropy": [0.05, 0.1, 0.2, 0.5, 1.0], "similarity": [0.1, 1.0]}  # dictionary: those of the run


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
    """Look into a run: what `dualtemp analyze` does; returns what its --json prints.

    Args:
        run: the run's folder.
        what: "entropy", "similarity", "dictionary" or "neighbours".
        data: other images than the run's own: a set, a folder or an .npz file.
        taus: temperatures, also math.inf; not for neighbours.
        sizes: numbers of keys; not for neighbours.
        images: how many, for neighbours; default 2000.
        device: "auto" takes the best there is.
    """
    if what not in ANALYSES:
        raise UserError(f"no analysis is called {what!r}: {suggest(what, ANALYSES)}")
    opened = trained_run(Path(run), open_device(device), data)
    about = {
        "analysis": what,
        "run": str(run),
        "method": opened.chosen.method,
        "data": opened.chosen.data if data is None else data,
        "step": opened.step,
    }
    if what == "neighbours":
        return {**about, **neighbours(opened, images or IMAGES)}
    taus = taus or TAUS.get(what) or sorted(set(opened.temperatures))
    draws = 2 if what == "similarity" else 1
    sizes = sizes or usual_sizes(opened, draws)
    _check_sizes(sizes, draws, opened.most_keys)
    keys = "the run's dictionary" if opened.holds_keys else "made of the images"
    about |= {"keys_are": keys, "taus": [_for_json(tau) for tau in taus], "sizes": sizes}
    if what == "dictionary":
        found = by_dictionary_size(opened, taus, sizes)
    else:
        found = (measured_entropy if what == "entropy" else measured_similarity)(opened, taus, sizes)._asdict()
    _check_sizes(sizes, draws, found["keys"])  # unreadable files have no keys
    return {**about, **found}


def _check_sizes(sizes: list[int], draws: int, keys: int) -> None:
    if draws * min(sizes) > keys:
        twice = " and similarity needs two disjoint draws" if draws == 2 else ""
        raise UserError(
            f"--sizes {min(sizes)}: the dictionary has {keys:,} keys{twice}; give at most {keys // draws:,}, or leave "
            "--sizes out"
        )


def _for_json(tau: float) -> float | str:
    """JSON has no infinity."""
    return tau if math.isfinite(tau) else "inf"
