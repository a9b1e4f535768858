"""One results folder, one JSON file per cell and seed, keyed by settings and by the data's content. Needs no torch.

`results/KEY-sSEED.json`; while a cell is being run its run folder lies in `results/runs/`.
"""

import contextlib
import hashlib
import json
import math
import os
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import whole_file
from dualtemp.config import ADDED_LATER, Settings, complete
from dualtemp.data.sources.catalogue import named_set
from dualtemp.errors import UserError, writing
from dualtemp.paper.plan import PlannedRun, canonical

ITSELF = "itself"  # what somebody's own images in colour are normalised as
NOT_IN_KEY = {"data", "seed", "init"}  # data: its content stands for it; the seed has a place of its own
_COUNTS = object()  # equal to no value of a setting


@dataclass(frozen=True)
class DataFacts:
    """What a key needs to know of a set.

    fingerprint: of the content of all parts; image_size: side of a view by default; images: to train on;
    normalised_as: the set whose mean and deviation are used, "itself" for somebody's own images in colour, "" for what
    all others use.
    """

    fingerprint: str
    image_size: int
    images: int
    normalised_as: str = ""


@dataclass(frozen=True)
class KnownData:
    """Data that results are of, and what those call it: a set's name, or that of a folder, which means nothing."""

    name: str
    facts: DataFacts
    runs: int


@dataclass(frozen=True)
class Job:
    """One run to make: its complete settings, its name in the results folder, and what to measure when it ends."""

    name: str
    settings: Settings
    facts: DataFacts
    measured: tuple[tuple[str, str], ...]


def job(run: PlannedRun, seed: int, facts: DataFacts) -> Job:
    """The job of a planned run on data that is known."""
    chosen = complete(run.with_seed(seed), facts.image_size)
    if isinstance(chosen.subset, int) and chosen.subset >= facts.images:
        chosen = chosen.model_copy(update={"subset": None})  # the set is smaller than the scale asks for
    return Job(f"{key(chosen, facts)}-s{seed}", chosen, facts, run.measured)


def key(chosen: Settings, facts: DataFacts) -> str:
    """16 hexadecimal digits of complete settings and the data's content: no path, output, device or seed.

    What was added later counts only where it changes a run, so that keys from before stand.
    """
    values = canonical(chosen, exclude=NOT_IN_KEY)
    values = {name: value for name, value in values.items() if value != ADDED_LATER.get(name, _COUNTS)}
    text = json.dumps(["dualtemp cell 1", plain(values), facts.fingerprint, facts.normalised_as], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Results:
    """A results folder.

    Args:
        path: the folder; made when the first result is written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.runs = path, path / "runs"

    def read(self, job: Job) -> dict[str, Any] | None:
        """The result of a job; None if there is none yet, or if it lacks a measurement that is now wanted."""
        found = self._read(self.path / f"{job.name}.json")
        if found is None or found["status"] == "failed":
            return found
        return found if all(_has(found, name, asked) for name, asked in job.measured) else None

    def write(self, job: Job, result: dict[str, Any]) -> None:
        """Write a result, whole."""
        self.make_folders()
        values = {name: value for name, value in job.settings.model_dump().items() if value is not None}
        values["data"] = data_name(job.settings.data)
        whole = {"settings": values, "data": job.facts.__dict__, **result}
        text = json.dumps(plain(whole), indent=1, allow_nan=False) + "\n"
        with self._writing(), whole_file(self.path / f"{job.name}.json") as file:
            file.write(text.encode())

    def make_folders(self) -> None:
        """Make the folder, and see that it can be written."""
        with self._writing():
            self.runs.mkdir(parents=True, exist_ok=True)
            if not os.access(self.runs, os.W_OK):
                raise PermissionError(0, "no permission")

    def refuse_impossible(self) -> None:
        """Refuse a path that can be no folder, such as a name over the limit or one below a file; makes nothing."""
        with self._writing(), contextlib.suppress(FileNotFoundError):
            os.stat(self.runs)

    def run_folder(self, job: Job) -> Path:
        """Where the run of a job lies while it is being made."""
        return self.runs / job.name

    @cached_property
    def known_data(self) -> list[KnownData]:
        """The data of the results that are here: nothing has to be opened."""
        results = filter(None, map(self._read, sorted(self.path.glob("*-s*.json"))))
        counts = Counter((result["settings"]["data"], DataFacts(**result["data"])) for result in results)
        return [KnownData(name, facts, runs) for (name, facts), runs in counts.items()]

    def _writing(self) -> AbstractContextManager[None]:
        remedy = "make room or make it writable, or give another --results"
        return writing(f"the results folder {self.path}", remedy)

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            found = json.loads(path.read_text())
            assert {"settings", "data", "status"} <= set(found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AssertionError, TypeError):
            raise UserError(f"{path} is not a result: take it away, and it is made anew") from None
        return found


def opened_facts(word: str) -> DataFacts:
    """Open a set and tell what a key needs; downloads it if it has to."""
    from dualtemp.data import open_source
    from dualtemp.data.normalization import OF_SETS
    from dualtemp.data.sources.opening import named_path
    from dualtemp.training.run_data import image_size

    splits = open_source(word)
    parts = (splits.train, splits.test, splits.unlabeled)
    text = " ".join("-" if part is None else part.fingerprint for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    own = named_path(word) is not None and splits.train.channels == 3
    named = word if word in OF_SETS else ITSELF if own else ""
    return DataFacts(digest, image_size(splits), len(splits.train), named)


def data_name(word: str) -> str:
    """What a result calls its data: the set's name, or the last part of a path, which means nothing elsewhere."""
    entry = named_set(word)
    return Path(word).name if entry is None else entry.name


def plain(value: Any) -> Any:
    """What strict JSON can hold: infinities and nan as words."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _has(found: dict[str, Any], name: str, asked: str) -> bool:
    return found.get("measured", {}).get(name, {}).get("asked") == json.loads(asked)
