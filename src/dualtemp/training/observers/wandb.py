"""Log a run's metrics for Weights & Biases, in RUN/logs/wandb; WANDB_MODE, WANDB_PROJECT and the like apply."""

import os
import uuid
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import whole_file
from dualtemp.config import Settings
from dualtemp.runs.folder import RunFolder
from dualtemp.training.observers.observer import scalars

PROJECT = "dualtemp"  # unless WANDB_PROJECT names another


class WandbLog:
    """Logs the scalars of metrics.jsonl with the epoch as step; a resumed run continues as the same run."""

    def __init__(self) -> None:
        self.run: Any = None

    def __str__(self) -> str:
        """Its name in notes."""
        return "the log for Weights & Biases"

    def begin(self, path: Path, settings: Settings) -> None:
        """Start or resume the run of this folder."""
        import wandb

        folder = RunFolder(path).logs
        folder.mkdir(exist_ok=True)
        self.run = wandb.init(
            dir=folder,
            project=None if "WANDB_PROJECT" in os.environ else PROJECT,
            name=path.resolve().name,
            id=_identity(folder / "wandb-id.txt"),
            resume="allow",
            config=settings.model_dump(exclude_none=True),
            settings=wandb.Settings(console="off", quiet=True),  # the terminal belongs to the display
        )

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Steps are not logged."""

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Log an epoch; Weights & Biases ignores one that was logged before, after the last checkpoint."""
        self.run.log(scalars(metrics), step=metrics["epoch"])

    def note(self, text: str) -> None:
        """Notes are not logged."""

    def close(self) -> None:
        """Send what is left."""
        if self.run is not None:
            self.run.finish()


def _identity(path: Path) -> str:
    """The id by which Weights & Biases recognizes the run."""
    if not path.exists():
        with whole_file(path) as file:
            file.write(uuid.uuid4().hex[:8].encode())
    return path.read_text().strip()
