"""Run folders as training leaves them, with the epochs that a test wants; nothing is trained."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dualtemp.config import complete, settings, to_yaml

TEST = {"images": 10_000, "fingerprint": "8462"}


def made_run(path: Path, history: Iterable[dict[str, Any]] = (), **values: Any) -> Path:
    """A run in a new folder; history: lines of metrics.jsonl, whose epochs are counted here."""
    given = {"data": "cifar10", "epochs": 4, "batch": 64, **values}
    environment = {"dualtemp": "0.1.0", "device": "cpu", "train": {"images": 50_000, "fingerprint": "0d"}, "test": TEST}
    (path / "checkpoints").mkdir(parents=True)
    (path / "environment.json").write_text(json.dumps(environment))
    (path / "config.yaml").write_text(to_yaml(complete(settings(given), 32)))
    lines = [json.dumps({"epoch": epoch, "step": 10 * epoch, **line}) for epoch, line in enumerate(history, 1)]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return path


def epochs(**series: list[Any]) -> list[dict[str, Any]]:
    """Lines from columns; None is left out: epochs(loss=[3, 2], probe_top1=[None, 40])."""
    count = max(map(len, series.values()))
    return [
        {key: values[i] for key, values in series.items() if i < len(values) and values[i] is not None}
        for i in range(count)
    ]


FULL = epochs(
    loss=[3.7, 3.4, 3.2, 3.1],
    lr=[0.03, 0.02, 0.01, 1e-6],
    entropy=[4.15, 4.152, 4.155, 4.156],
    W_mean=[0.98, 0.97, 0.96, 0.95],
    W_spread=[2e-6, 3e-6, 4e-6, 5e-6],
    hardest_tenth=[0.12, 0.13, 0.12, 0.12],
    probe_top1=[20.0, 30.0, 36.0, 43.21],
    probe_top5=[70.0, 75.0, 80.0, 85.0],
    knn_top1=[30.0, 35.0, 38.0, 41.5],
    alignment=[0.9, 0.8, 0.7, 0.6],
    uniformity=[-1.5, -1.8, -2.0, -2.1],
    spread=[0.6, 0.62, 0.64, 0.65],
    effective_rank=[30.0, 40.0, 50.0, 55.0],
    collapsed=[False] * 4,
    seconds=[10.0, 20.0, 30.0, 40.0],
    images_per_second=[500.0] * 4,
)
