"""Log a run's metrics for TensorBoard, in RUN/logs/tensorboard: `tensorboard --logdir RUN/logs`."""

from pathlib import Path
from typing import Any

from dualtemp.config import Settings
from dualtemp.runs.folder import RunFolder
from dualtemp.training.observers.observer import scalars


class TensorBoardLog:
    """Writes the scalars of metrics.jsonl, epoch by epoch."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.writer: Any = None

    def __str__(self) -> str:
        """Its name in notes."""
        return "the log for TensorBoard"

    def begin(self, path: Path, settings: Settings) -> None:
        """Store the folder; nothing is written before the first epoch."""
        self.folder = RunFolder(path).logs / "tensorboard"

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Steps are not logged."""

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Log an epoch; entries of an earlier process from this epoch on, after its last checkpoint, are discarded."""
        if self.writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self.writer = SummaryWriter(self.folder, purge_step=metrics["epoch"])
        for name, value in scalars(metrics).items():
            self.writer.add_scalar(name, value, metrics["epoch"])
        self.writer.flush()

    def note(self, text: str) -> None:
        """Notes are not logged."""

    def close(self) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()
