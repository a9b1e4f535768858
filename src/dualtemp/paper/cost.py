"""What a run costs: passes through the encoder, and what any run takes; both measured once on this machine."""

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


def passes(chosen: Settings, images: int) -> float:
    """Forward passes of single images that a run is worth."""
    with_gradient, without = chosen.framework.passes(chosen.options)
    seen = subset_size(chosen.subset, images) // chosen.batch * chosen.batch
    return chosen.epochs * seen * (WITH_GRADIENT * with_gradient + without)


def subset_size(subset: int | float | None, images: int) -> int:
    """How many images a subset has."""
    if subset is None:
        return images
    return min(images, subset) if isinstance(subset, int) else round(subset * images)


def expected_seconds(chosen: Settings) -> float | None:
    """Seconds of a run on one core of this machine; None if the set is not a named one."""
    entry = named_set(chosen.data)
    if entry is None:
        return None
    size = chosen.image_size or entry.size or DEFAULT_VIEW_SIZE
    steps = passes(chosen, entry.train + entry.unlabeled) * seconds_of_pass(chosen.backbone, size, entry.channels)
    return seconds_of_small_run() + steps


def seconds_of_pass(backbone: str, image_size: int, channels: int) -> float:
    """Seconds of one image's forward pass within a real training step on one core."""
    name = f"{backbone} {image_size} px {channels}"
    return _remembered(name, lambda timed: timed.measured_step(backbone, image_size, channels))


def seconds_of_small_run() -> float:
    """Seconds of a run of five steps on one core: what any run takes for network, probe, kNN and files."""
    return _remembered("a small run", lambda timed: timed.measured_small_run())


def _remembered(name: str, measure: Callable[[ModuleType], float]) -> float:
    """What was measured on this machine once, or is measured now, by a module that needs torch."""
    path = cache_folder() / "steps.json"
    known = _read(path)
    if name not in known:
        from dualtemp.paper import measured_step

        known[name] = measure(measured_step)
        with contextlib.suppress(OSError):  # a cache that cannot be written: it is measured again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write(json.dumps(known, indent=1).encode())
    return known[name]


def _read(path: Path) -> dict[str, float]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
