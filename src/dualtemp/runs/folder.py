"""A run folder: its files, and the lock that keeps others from writing to it."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import whole_file
from dualtemp.config import Settings, from_yaml, of_run, settings, to_yaml
from dualtemp.errors import UserError, writing
from dualtemp.file_lock import CLAIM, locked
from dualtemp.runs.environment_file import read_environment

# Measures in metrics.jsonl from which more than a chart is made: the status of a run, its advice, what may be freed.
COMPUTED_WITH = {"step": int, "held_out_gained": int, "held_out_lost": int, "judged_past": int | float}


class RunFolder:
    """config.yaml, environment.json, metrics.jsonl, checkpoints/, backbone.safetensors; trouble.txt if it failed.

    start.safetensors if it has a start: the backbone before the first step. teacher.features if it learns from a
    teacher: the teacher's features of the training images.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.environment = path / "config.yaml", path / "environment.json"
        self.metrics, self.checkpoints = path / "metrics.jsonl", path / "checkpoints"
        self.backbone, self.lock = path / "backbone.safetensors", path / ".lock"
        self.start, self.teacher = path / "start.safetensors", path / "teacher.features"
        self.trouble, self.logs = path / "trouble.txt", path / "logs"

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """Open the folder of an existing run."""
        folder = RunFolder(path)
        if not os.path.isfile(folder.config):  # False even where Path.is_file raises: a name too long, a loop of links
            raise UserError(f"{path} is not a run: it has no config.yaml; give the folder that --out named")
        return folder

    @staticmethod
    def refuse_existing(path: Path) -> None:
        """Raise UserError if the path exists, unless a process was killed there before its run began."""
        folder = RunFolder(path)
        if os.path.exists(folder.config):
            raise UserError(f"{path} holds a run already: `dualtemp resume {path}` continues it; or give another --out")
        above = next(folder for folder in (*path.parents, Path("/")) if os.path.exists(folder))
        if not above.is_dir():
            raise UserError(f"{above} is a file, so {path} cannot be made: give another --out")
        for name in path.relative_to(above).parts if above in path.parents else ():
            with writing(path, "give another --out", "made"), contextlib.suppress(FileNotFoundError):
                os.lstat(above / name)  # raises for a name that is too long, before anything is computed
        if os.path.lexists(path) and (not path.is_dir() or not folder._never_begun()):
            raise UserError(f"{path} exists and is not a run: give another --out")

    @contextlib.contextmanager
    def create(
        self, settings: Settings, environment: dict[str, Any], save_start: Callable[[Path], None] | None = None
    ) -> Iterator[None]:
        """Create the folder and hold its lock. The config is written last: a folder with a config is a run.

        save_start: writes the weights of the run's start to a path.

        If the folder cannot be created, nothing is left of it. Another process may be creating the same folder, so only
        the holder of the lock touches its files.
        """
        missing = [folder for folder in (self.path, *self.path.parents) if not os.path.exists(folder)]
        with contextlib.ExitStack() as held:
            try:
                with writing(self.path, "give another --out", "made"):
                    self._make_and_lock(held)
                    try:
                        self.refuse_existing(self.path)  # again: another process may have created it meanwhile
                        self._clear_parts()
                        self.checkpoints.mkdir(exist_ok=True)
                        _write(self.environment, json.dumps(environment, indent=2) + "\n")
                        if save_start is not None:
                            save_start(self.start)
                        _write(self.config, to_yaml(settings))
                    except OSError:
                        self._remove_unbegun()
                        raise
            except UserError:
                for folder in missing:
                    with contextlib.suppress(OSError):  # another process may use it by now
                        folder.rmdir()
                raise
            yield

    @contextlib.contextmanager
    def reopen(self) -> Iterator[None]:
        """Hold the lock of an existing run, and remove half-written files of a killed process."""
        with contextlib.ExitStack() as held:
            with writing(self.path, "make it writable"):
                held.enter_context(locked(self.lock))
                self._clear_parts()
            yield

    def settings(self) -> Settings:
        """Read the run's settings."""
        values = of_run(from_yaml(self.config))
        try:
            return settings(values)
        except UserError as error:
            raise UserError(f"{self.config}: {error}") from None

    def set_settings(self, settings: Settings) -> None:
        """Replace the config."""
        _write(self.config, to_yaml(settings))

    def read_environment(self) -> dict[str, Any]:
        """Read environment.json; empty if it is missing or damaged, UserError if an entry is of the wrong kind."""
        return read_environment(self.environment)

    def threads(self) -> int | None:
        """CPU threads that the run started with; None if unknown."""
        return self.read_environment().get("threads")

    def processes(self) -> int | None:
        """Processes that the run started with; None if unknown."""
        return self.read_environment().get("processes")

    def set_trouble(self, why: str) -> None:
        """Record in one line why the run failed; ignored if even that cannot be written."""
        with contextlib.suppress(OSError), whole_file(self.trouble) as file:
            file.write((" ".join(why.split()) + "\n").encode(errors="backslashreplace"))  # may hold file names

    def clear_trouble(self) -> None:
        """Remove the record of a failure, because the run continues."""
        with contextlib.suppress(OSError):
            self.trouble.unlink(missing_ok=True)

    def append(self, metrics: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with open(self.metrics, "ab") as file:
            file.write((json.dumps(metrics) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def length(self) -> int:
        """Bytes of metrics.jsonl."""
        return self.metrics.stat().st_size if self.metrics.exists() else 0

    def cut_back(self, length: int) -> None:
        """Discard metrics that were written after a checkpoint."""
        if self.length() > length:
            with open(self.metrics, "r+b") as file:
                file.truncate(length)

    def history(self) -> list[dict[str, Any]]:
        """Read the lines of metrics.jsonl, without an incomplete last line."""
        if not self.metrics.exists():
            return []
        try:
            found = [json.loads(line) for line in self.metrics.read_text().split("\n")[:-1]]
            if not all(isinstance(line, dict) and isinstance(line.get("epoch"), int) for line in found):
                raise ValueError("no epoch")
            for key, kind in COMPUTED_WITH.items():
                given = [line.get(key, 0) for line in found]
                if any(not isinstance(value, kind) or (kind is int and value < 0) for value in given):
                    raise ValueError(f"{key} that is no {'whole number of at least 0' if kind is int else 'number'}")
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(
                f"{self.metrics} is damaged ({error}): a JSON object with its epoch per line expected"
            ) from None
        return found

    def _make_and_lock(self, held: contextlib.ExitStack) -> None:
        for tries_left in reversed(range(100)):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(locked(self.lock))
                return
            except FileNotFoundError:  # another process that failed to create the run has just removed the folder
                if not tries_left:
                    raise

    def _remove_unbegun(self) -> None:
        """Remove the files of a run that cannot begin; the lock last, since another process may wait for it."""
        with contextlib.suppress(OSError):
            self.config.unlink(missing_ok=True)  # it may have been written before the failure
            self._clear_parts()
            self.environment.unlink(missing_ok=True)
            self.start.unlink(missing_ok=True)
            self.checkpoints.rmdir()
        with contextlib.suppress(OSError):
            self.lock.unlink()
            self.path.rmdir()

    def _clear_parts(self) -> None:
        for part in (*self.path.glob(".*.part"), *self.checkpoints.glob(".*.part")):
            part.unlink(missing_ok=True)

    def _never_begun(self) -> bool:
        left = {self.lock, self.environment, self.start, self.checkpoints}
        claim = self.lock.name + CLAIM
        return all(
            item in left or item.suffix == ".part" or item.name.startswith(claim) for item in self.path.iterdir()
        ) and not (self.checkpoints.exists() and any(self.checkpoints.iterdir()))


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode())
