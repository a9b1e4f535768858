"""One results folder, one JSON file per cell and seed, keyed by settings and by the data's content. Needs no torch.

`results/KEY-sSEED.json`; while a cell is being run, its run folder is in `results/runs/`.
"""

import contextlib
import hashlib
import json
import math
import os
import re
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
from dualtemp.grids.plan import PlannedRun, canonical

ITSELF = "itself"  # normalized by their own mean and deviation: a user's own color images
NOT_IN_KEY = {"data", "seed", "init", "teacher"}  # the fingerprint stands for the data; the seed is in the file name
FILES = ("init", "teacher", "labels_from", "recipe")  # settings that may be paths: results hold only their last part
CONTENT_OF = {"init": "init_content", "teacher": "teacher_content"}  # hashes, known once a run has begun
NO_START = "none"  # the value of `init` for no start; NONE of models/starts.py, which needs torch
NAME = re.compile(r"[0-9a-f]{16}-s(\d+)")  # of a result file, without .json; the folder may hold other files too
_COUNTS = object()  # differs from every value of a setting, so that the setting counts


@dataclass(frozen=True)
class DataFacts:
    """What a key needs to know about data.

    fingerprint: of the content of all parts; image_size: default side of a view; images: number of training images;
    normalised_as: the set whose mean and deviation are used, "itself" for a user's own color images, "" for the
    constants that all others use. (The name is a key in result files.)
    """

    fingerprint: str
    image_size: int
    images: int
    normalised_as: str = ""


@dataclass(frozen=True)
class KnownData:
    """Data of existing results, under the name in them: of a set, or of a folder (which does not identify data)."""

    name: str
    facts: DataFacts
    runs: int


@dataclass(frozen=True)
class Job:
    """One run to execute: its name in the results folder, its complete settings, and what to measure when it ends."""

    name: str
    settings: Settings
    facts: DataFacts
    measured: tuple[tuple[str, str], ...]


def make_job(run: PlannedRun, seed: int, facts: DataFacts) -> Job:
    """Make the job of a planned run with this seed on this data."""
    chosen = complete(run.with_seed(seed), facts.image_size)
    if isinstance(chosen.subset, int) and chosen.subset >= facts.images:
        chosen = chosen.model_copy(update={"subset": None})  # the set is smaller than the scale asks for
    return Job(f"{key(chosen, facts)}-s{seed}", chosen, facts, run.measured)


def job_key(job: Job) -> str:
    """Return the key of a job's result, shared by all seeds and by planned runs that are the same on this data."""
    return job.name.rpartition("-s")[0]


def key(chosen: Settings, facts: DataFacts) -> str:
    """Hash complete settings and the data's content to 16 hexadecimal digits: no path, output, device or seed.

    Settings that were added later count only if they change a run, so that older keys stay valid. A start or a teacher
    counts by its content, or by its word if nothing has read it yet, as in a grid. A label file always counts by its
    content.
    """
    values = canonical(chosen, exclude=NOT_IN_KEY)
    values = {name: value for name, value in values.items() if value != ADDED_LATER.get(name, _COUNTS)}
    values |= {name: chosen.get(name) for name, content in CONTENT_OF.items() if _is_unread(chosen, name, content)}
    if chosen.labels_from is not None:
        values["labels_from"] = label_file_digest(chosen.labels_from)
    text = json.dumps(
        ["dualtemp cell 1", to_plain_json(values), facts.fingerprint, facts.normalised_as], sort_keys=True
    )
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def label_file_digest(word: str) -> str:
    """Hash a file of labels to 32 hexadecimal digits; one that cannot be read is a UserError."""
    try:
        return hashlib.blake2b(Path(os.path.expanduser(word)).read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise UserError(f"{word}: cannot be read ({error.strerror}); give a CSV file of labels") from None


def takes_backbone_of_start(chosen: Settings) -> bool:
    """Whether the run takes its start's backbone, because none was given."""
    return chosen.init not in (None, NO_START) and "backbone" not in chosen.model_fields_set


class Results:
    """A results folder.

    Args:
        path: the folder; created when the first result is written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.runs = path, path / "runs"

    def read(self, job: Job) -> dict[str, Any] | None:
        """Read the result of a job; None if there is none yet, or if it lacks a measurement that is now needed."""
        found = self._read(self.path / f"{job.name}.json")
        if found is None or found["status"] == "failed":
            return found
        return found if all(_has(found, name, asked) for name, asked in job.measured) else None

    def write(self, job: Job, result: dict[str, Any]) -> None:
        """Write a result atomically."""
        self.make_folders()
        values = {name: value for name, value in job.settings.model_dump().items() if value is not None}
        values["data"] = data_name(job.settings.data)
        values |= {name: Path(values[name]).name for name in FILES if os.path.isabs(values.get(name) or "")}
        if takes_backbone_of_start(job.settings):
            del values["backbone"]  # the default, not the backbone that was trained
        whole = {"settings": values, "data": job.facts.__dict__, **result}
        text = json.dumps(to_plain_json(whole), indent=1, allow_nan=False) + "\n"
        with self._writing(), whole_file(self.path / f"{job.name}.json") as file:
            file.write(text.encode())

    def make_folders(self) -> None:
        """Create the folder, and check that it is writable."""
        with self._writing():
            self.runs.mkdir(parents=True, exist_ok=True)
            if not os.access(self.runs, os.W_OK):
                raise PermissionError(0, "no permission")

    def refuse_impossible(self) -> None:
        """Raise UserError for a path that cannot be a folder (too long, below a file); creates nothing."""
        with self._writing(), contextlib.suppress(FileNotFoundError):
            os.stat(self.runs)

    def run_folder(self, job: Job) -> Path:
        """Return the run folder of a job while it is being executed."""
        return self.runs / job.name

    def lock_file(self, job: Job) -> Path:
        """Return the file whose lock the process that executes a job holds."""
        return self.runs / f".{job.name}.lock"

    def progress_file(self, job: Job) -> Path:
        """Return the file in which the process that executes a job says how far it is."""
        return self.runs / f".{job.name}.progress"

    def progress(self, job: Job) -> float | None:
        """Return how far a job is, from 0 to 1; None if no process executes it."""
        try:
            return float(self.progress_file(job).read_text())
        except (OSError, ValueError):
            return None

    @cached_property
    def known_data(self) -> list[KnownData]:
        """Data of the results in this folder; no images are opened."""
        files = [path for path in sorted(self.path.glob("*-s*.json")) if NAME.fullmatch(path.stem)]
        results = filter(None, map(self._read, files))
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
            raise UserError(f"{path} is not a valid result: remove it, and it will be computed again") from None
        return found


def read_data_facts(word: str) -> DataFacts:
    """Open data and return what a key needs to know about it; downloads it if necessary."""
    from dualtemp.data import open_source
    from dualtemp.data.normalization import OF_SETS
    from dualtemp.data.sources.opening import is_named_set
    from dualtemp.training.run_data import image_size

    splits = open_source(word)
    parts = (splits.train, splits.test, splits.unlabeled)
    text = " ".join("-" if part is None else part.fingerprint for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    own = not is_named_set(word) and splits.train.channels == 3
    named = word if word in OF_SETS else ITSELF if own else ""
    return DataFacts(digest, image_size(splits), len(splits.train), named)


def data_name(word: str) -> str:
    """Return the name of data in a result: the set's name, or the last part of a path (which identifies nothing)."""
    entry = named_set(word)
    return Path(word).name if entry is None else entry.name


def to_plain_json(value: Any) -> Any:
    """Convert to strict JSON: infinities and nan become strings."""
    if isinstance(value, dict):
        return {str(name): to_plain_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _is_unread(chosen: Settings, name: str, content: str) -> bool:
    """Whether the setting names a start or a teacher whose content is not known yet."""
    return chosen.get(name) not in (None, NO_START) and chosen.get(content) is None


def _has(found: dict[str, Any], name: str, asked: str) -> bool:
    return found.get("measured", {}).get(name, {}).get("asked") == json.loads(asked)
