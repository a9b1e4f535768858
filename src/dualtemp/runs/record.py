"""Read the content of a run folder once, for pages and lists. Needs no torch."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dualtemp.config import Settings
from dualtemp.data.sources.catalogue import named_set
from dualtemp.frameworks.protocol import W_OF_TAU_BETA, AnchorWeight
from dualtemp.runs.evaluated_measures import BASELINES, FROZEN, START
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.kept_encoder import kept_history
from dualtemp.runs.status import Status, status_of

History = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class RunRecord:
    """A run: its folder, settings, environment.json, the lines of metrics.jsonl, status, and time of last change."""

    path: Path
    chosen: Settings
    environment: dict[str, Any]
    history: History
    status: Status
    moved: datetime

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    @property
    def data(self) -> str:
        """Name of the data: of a set, a folder or a file."""
        return Path(self.chosen.data).name or self.chosen.data

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self.history[-1]["epoch"] if self.history else 0

    @property
    def classes(self) -> int:
        """Number of classes; 0 if unknown, or if the run ignores labels."""
        if not self.chosen.labels:
            return 0
        names = part(self.environment, "images").get("classes")
        if isinstance(names, list) and names:
            return len(names)
        named = named_set(self.chosen.data)
        return named.classes if named else 0

    @property
    def test_images(self) -> int:
        """Number of images that accuracies are measured on; 0 if unknown."""
        return int(part(self.environment, "test").get("images") or 0)

    @property
    def chance(self) -> float | None:
        """Accuracy of always predicting the most common class; for older runs, assuming classes of equal size."""
        if self.classes < 2:
            return None
        commonest, images = part(self.environment, "test").get("commonest"), self.test_images
        if isinstance(commonest, int) and 0 < commonest <= images:
            return commonest / images
        return 1 / self.classes

    def last(self, key: str) -> float | None:
        """The newest value of a measure."""
        found = points(self.history, key)
        return found[-1][1] if found else None

    def as_kept(self) -> "RunRecord":
        """The run up to the epoch whose encoder the folder keeps: without history if that is the start."""
        return replace(self, history=kept_history(self.history, self.chosen))


def tested_on(run: RunRecord) -> str:
    """An identifier of the test images: their fingerprint, that of their names, or else where they came from."""
    images = part(run.environment, "test")
    return str(images.get("fingerprint") or images.get("names") or run.chosen.data)


class Beside(NamedTuple):
    """A measure of the trained encoder beside that of another ("untrained", "raw pixels"): top-1 in %, test images.

    pairs: for each draw of labels, the number of images that only the trained encoder got right, and of those that only
    the other did; empty in older files, which lack them.
    """

    name: str
    trained: float
    encoder: str
    other: float
    images: int
    pairs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Facts:
    """What the rules of the verdict need besides the epochs; if unknown, classes and test_images are 0, chance None."""

    epochs: int
    anchors: int
    classes: int = 0
    test_images: int = 0
    weighted: bool = True  # whether W enters the loss, or is only measured
    learns_from_labels: bool = False
    advice_on_collapse: str = ""  # the framework's own, if it has any
    beside: tuple[Beside, ...] = ()  # results of `dualtemp evaluate` for the run's last step
    path: str = "RUN"  # as to be given to commands; so is data
    data: str = "SOURCE"
    commonest: float | None = None  # share of the commonest class among the test images
    weight: AnchorWeight = W_OF_TAU_BETA  # what W means in this run

    @property
    def chance(self) -> float | None:
        """Accuracy of a prediction that ignores the images."""
        if self.commonest is not None:
            return self.commonest
        return 1 / self.classes if self.classes > 1 else None


def facts_of(run: RunRecord) -> Facts:
    """Collect the facts of a run."""
    chosen = run.chosen
    weighted = chosen.framework.weighs_anchors(chosen.options)
    return Facts(
        chosen.epochs,
        chosen.batch,
        run.classes,
        run.test_images,
        weighted,
        chosen.framework.learns_from_labels,
        chosen.framework.advice_on_collapse,
        beside(run),
        shlex.quote(str(run.path)),
        shlex.quote(chosen.data),
        run.chance,
        chosen.framework.anchor_weight(chosen.options),
    )


def evaluated(run: RunRecord) -> tuple[dict[str, Any], list[dict[str, Any]], bool]:
    """Read evaluation.json: its content, its valid rows, and whether the run has continued since."""
    found = read_json(run.path / "evaluation.json") or {}
    rows = found.get("measured")
    last = run.history[-1].get("step") if run.history else None
    old = None not in (found.get("step"), last) and found.get("step") != last
    return found, [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else [], old


def beside(run: RunRecord) -> tuple[Beside, ...]:
    """Compare the trained encoder of the run's last step with each baseline, on validation data."""
    _, rows, old = evaluated(run)
    if old:
        return ()
    return tuple(
        one
        for encoder in (*BASELINES, START)
        for name, row in rows_of(rows, encoder).items()
        if name in FROZEN and (one := beside_trained(rows_of(rows, "trained").get(name), row)) is not None
    )


def rows_of(rows: Sequence[dict[str, Any]], encoder: str, data: str = "validation") -> dict[str, dict[str, Any]]:
    """Select the rows of evaluation.json of one encoder and data, by measure."""
    found = [row for row in rows if row.get("encoder") == encoder and row.get("data") == data]
    return {str(row.get("name")): row for row in found if number(row.get("top1")) is not None}


def beside_trained(trained: dict[str, Any] | None, other: dict[str, Any]) -> Beside | None:
    """Compare a row of evaluation.json with the trained encoder's row of the same measure; None if there is none."""
    if trained is None:
        return None
    images, own = int(number(other.get("images")) or 0), int(number(trained.get("images")) or 0)
    found = Beside(str(other["name"]), trained["top1"], str(other["encoder"]), other["top1"], min(images, own))
    pairs = other.get("pairs")
    if not images or images != own or not isinstance(pairs, list) or not pairs:
        return found
    whole = [pair for pair in pairs if isinstance(pair, list) and [type(each) for each in pair] == [int, int]]
    gain = sum(ahead - behind for ahead, behind in whole) / len(pairs) / images
    # Pairs that were counted against an earlier measurement of the trained encoder do not fit the present one.
    if len(whole) < len(pairs) or abs(100 * gain - (found.trained - found.other)) > 1e-6:
        return found
    return found._replace(pairs=tuple((ahead, behind) for ahead, behind in whole))


def number(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    there = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if there else None


class ReadOnce(RunFolder):
    """A run folder whose config and metrics are read only once: a list may have hundreds of runs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._settings, self._history = super().settings(), super().history()

    def settings(self) -> Settings:
        """The run's settings."""
        return self._settings

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return self._history


def read_run(path: Path) -> RunRecord:
    """Read a run folder; raises UserError if a file is damaged."""
    RunFolder.open(path)
    run = ReadOnce(path)
    newest = run.metrics if run.metrics.exists() else run.config
    moved = _local_time(newest.stat().st_mtime)
    return RunRecord(path, run.settings(), run.read_environment(), run.history(), status_of(run), moved)


def _local_time(seconds: float) -> datetime:
    """Convert a time to the local time zone; to UTC if TZ is invalid."""
    try:
        return datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(min(max(seconds, 0.0), 2.0**37), UTC)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if it is missing or damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def points(history: History, key: str) -> list[tuple[int, float]]:
    """(epoch, value) of each epoch with a finite value of this measure."""
    found = [(line["epoch"], line.get(key)) for line in history]
    return [(epoch, float(value)) for epoch, value in found if isinstance(value, int | float) and math.isfinite(value)]


def part(values: dict[str, Any], name: str) -> dict[str, Any]:
    """A nested object of a JSON object; empty if there is none."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}
