"""One run, one folder, self-contained: what is in it, and that nobody else writes to it."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from dualtemp.config import Settings, from_yaml, settings, to_yaml
from dualtemp.errors import UserError
from dualtemp.whole_file import whole_file


class RunFolder:
    """config.yaml, environment.json, metrics.jsonl, checkpoints/, backbone.safetensors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.environment = path / "config.yaml", path / "environment.json"
        self.metrics, self.checkpoints = path / "metrics.jsonl", path / "checkpoints"
        self.backbone = path / "backbone.safetensors"
        self._lock: BinaryIO | None = None

    @staticmethod
    def refuse_existing(path: Path) -> None:
        """A run folder is never overwritten."""
        if (path / "config.yaml").exists():
            raise UserError(f"{path} holds a run already: go on with `dualtemp resume {path}`, or give another --out")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists and is not a run: give another --out")

    @staticmethod
    def opened(path: Path) -> "RunFolder":
        """An existing run."""
        folder = RunFolder(path)
        if not folder.config.is_file():
            raise UserError(f"{path} is not a run: it has no config.yaml; give the folder that --out named")
        return folder

    def create(self, chosen: Settings, environment: dict[str, Any]) -> None:
        """Make the folder; the config comes last, so that a folder with a config is a run."""
        try:
            self.checkpoints.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"{self.path} cannot be made ({error.strerror}): give another --out") from None
        self.lock()
        _write(self.environment, json.dumps(environment, indent=2) + "\n")
        _write(self.config, to_yaml(chosen))

    def settings(self) -> Settings:
        """What the run computes."""
        return settings(from_yaml(self.config))

    def set_settings(self, chosen: Settings) -> None:
        """Replace the config."""
        _write(self.config, to_yaml(chosen))

    def lock(self) -> None:
        """Make sure that no other process writes here, as long as this one lives."""
        self._lock = open(self.path / ".lock", "ab")  # noqa: SIM115  held until the process ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UserError(f"{self.path} is being written by another process: wait for it, or end it") from None

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
        """Forget metrics after a checkpoint."""
        if self.length() > length:
            with open(self.metrics, "r+b") as file:
                file.truncate(length)

    def history(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl; a line that a kill cut short is left out."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode())
