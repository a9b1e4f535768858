"""Expected cost of a run: encoder passes plus a fixed part, both timed once on this machine."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from dualtemp.atomic_write import whole_file
from dualtemp.config import Settings
from dualtemp.data.sources.cache import cache_folder
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE, named_set

WITH_GRADIENT = 3  # a backward pass costs twice a forward pass


def count_passes(chosen: Settings, images: int) -> float:
    """Return the cost of a run in forward passes of single images."""
    with_gradient, without = chosen.framework.passes(chosen.options)
    seen = subset_size(chosen.subset, images) // chosen.batch * chosen.batch
    return chosen.epochs * seen * (WITH_GRADIENT * with_gradient + without)


def subset_size(subset: int | float | None, images: int) -> int:
    """Return the number of images in a subset."""
    if subset is None:
        return images
    return min(images, subset) if isinstance(subset, int) else round(subset * images)


def expected_seconds(chosen: Settings) -> float | None:
    """Estimate the seconds that a run takes on one core of this machine; None if its data is not a named set."""
    entry = named_set(chosen.data)
    if entry is None:
        return None
    size = chosen.image_size or entry.size or DEFAULT_VIEW_SIZE
    steps = count_passes(chosen, entry.train + entry.unlabeled) * seconds_of_pass(chosen.backbone, size, entry.channels)
    return seconds_of_small_run() + steps


def seconds_of_pass(backbone: str, image_size: int, channels: int) -> float:
    """Return the seconds of one image's forward pass within a real training step on one core."""
    name = f"{backbone} {image_size} px {channels}"
    return _remembered(name, lambda timed: timed.measure_step(backbone, image_size, channels))


def seconds_of_small_run() -> float:
    """Return the seconds of a five-step run on one core: the fixed cost of network, probe, kNN and files."""
    return _remembered("a small run", lambda timed: timed.measure_small_run())


def _remembered(name: str, measure: Callable[[ModuleType], float]) -> float:
    """Return a cached timing of this machine, or measure it now with a module that needs torch."""
    path = cache_folder() / "steps.json"
    known = _read(path)
    if name not in known:
        from dualtemp.grids import measured_step

        known[name] = measure(measured_step)
        with contextlib.suppress(OSError):  # if the cache cannot be written, it is measured again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write(json.dumps(known, indent=1).encode())
    return known[name]


def _read(path: Path) -> dict[str, float]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
