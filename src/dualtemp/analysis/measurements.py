"""The measurements that figures of the paper request by name."""

from pathlib import Path
from typing import Any

from dualtemp.analysis.penalty import penalty_entropy, redrawn_similarity
from dualtemp.analysis.teaser import three_anchors
from dualtemp.analysis.trained_run import open_trained_run

MEASUREMENTS = {"entropy": penalty_entropy, "similarity": redrawn_similarity, "teaser": three_anchors}


def measure(path: Path, wanted: dict[str, dict[str, Any]], device: str = "cpu") -> dict[str, Any]:
    """Measure a run: {name: arguments} -> {name: {"asked": arguments, "values": results}}."""
    run = open_trained_run(path, device)
    return {
        name: {"asked": arguments, "values": MEASUREMENTS[name](run, **arguments)} for name, arguments in wanted.items()
    }
