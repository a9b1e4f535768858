"""The training loop: read `Trainer.train` from top to bottom, then follow the names.

The loop knows nothing of pages or the terminal: its caller passes an `Observer`, which follows steps and epochs.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.images import ImagesGone
from dualtemp.data.loading.loader import Batch, Loader
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.evaluation.online import NonfiniteFeatures, clean_features, evaluate
from dualtemp.models.weights import save_backbone
from dualtemp.runs import checkpoint
from dualtemp.runs.checkpoint import Checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.kept_encoder import fell_below, replaces_encoder, went_past
from dualtemp.runs.thresholds import COLLAPSED
from dualtemp.training.epoch_statistics import EpochStatistics
from dualtemp.training.failures import (
    Interrupted,
    all_finite,
    describe_last_checkpoint,
    explain_disk_errors,
    nonfinite_features,
    nonfinite_loss,
    nonfinite_weights,
)
from dualtemp.training.judged_stop import describe_past, judged
from dualtemp.training.observers.observer import Observer, Snapshot, notify
from dualtemp.training.schedule import highest_lr, lr_factor
from dualtemp.training.start_comparison import StartComparison, describe_fall
from dualtemp.training.train_step import TrainStep
from dualtemp.training.unreadable_files import read_unreadable, short_list, write_unreadable

LOSS_EVERY = 16  # steps on an accelerator: reading the loss waits for the device


class Trainer:
    """Trains a framework to the end of its run, from its first step or from a checkpoint.

    Every process creates one with the same arguments; rank 0 alone writes files and tells the observer.

    Args:
        settings: complete settings.
        method: the result of `build_framework`.
        data: images to learn from and to evaluate on.
        run: the run's folder, which this process has locked.
        device: where to compute.
        observer: gets steps, epochs and notes.
        workers: processes that read image files; default: by the number of cores.
        checkpoint_minutes: save at least this often within an epoch; each epoch ends with a checkpoint.
        stop_requested: called between steps; once it returns True, the run saves a checkpoint and raises Interrupted.
    """

    def __init__(
        self,
        settings: Settings,
        method: Any,
        data: TrainingData,
        run: RunFolder,
        device: torch.device,
        observer: Observer,
        *,
        workers: int | None = None,
        checkpoint_minutes: float = 5.0,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings, self.data, self.run, self.device, self.observer = settings, data, run, device, observer
        self.workers, self.checkpoint_minutes, self.stop_requested = workers, checkpoint_minutes, stop_requested
        self.step = TrainStep(settings, method, data, device)
        self.loader = Loader(
            data.images,
            data.views,
            settings.batch,
            device=device,
            rank=distributed.rank(),
            world=distributed.world_size(),
            workers=workers,
            count=settings.framework.views,
            order=settings.order,
        )
        self.statistics = EpochStatistics()
        self.start = StartComparison()
        self.done = 0  # steps of the whole run
        self.seconds_before = 0.0  # of training in earlier processes of the run
        self.unreadable_before: dict[str, str] = {}  # listed by earlier processes of the run
        self.metrics_length = 0  # bytes of metrics.jsonl that belong to `done` steps
        self.started = self.last_saved = time.monotonic()

    def train(self) -> dict[str, Any]:
        """Train the remaining epochs; returns the last epoch's metrics. Raises Interrupted if asked to stop."""
        if distributed.rank() == 0:
            self.run.cut_back(self.metrics_length)
            if self.done > 0:
                self.unreadable_before = read_unreadable(self.run.path, self.data.images.source.names)
        self.started = self.last_saved = time.monotonic()
        metrics: dict[str, Any] = {}
        if (order := self.loader.describe_order()) and distributed.rank() == 0:
            self.observer.note(order)
        if self.done == 0 and self.settings.init is not None:
            distributed.run_on_rank0(self.measure_start)
        with self.loader, self.checkpoint_if_dataset_disappears():
            for epoch in range(self.done // self.loader.steps, self.settings.epochs):
                self.run_epoch(epoch)
                metrics = self.finish_epoch(epoch)
                if metrics.get("stopped"):
                    break
                (stop,) = distributed.agree(self.stop_requested())
                if stop and not self.is_last(epoch):
                    raise Interrupted
        if distributed.rank() == 0 and (unreadable := self.all_unreadable()):
            self.observer.note(short_list(self.run.path, unreadable))
        return metrics

    def run_epoch(self, epoch: int) -> None:
        """Train on the remaining batches of an epoch (from 0); `check_in` after every step or every few steps."""
        for batch in self.loader.batches(epoch, start_step=self.done % self.loader.steps):
            self.train_step(batch)
            if self.device.type == "cpu" or self.done % LOSS_EVERY == 0:
                self.check_in(epoch)

    def train_step(self, batch: Batch) -> None:
        """Learn from one batch."""
        result = self.step(batch, self.done, self.lr_factor(self.done))
        self.done += 1
        self.statistics.add(result.loss, result.stats.get("W"))

    def check_in(self, epoch: int) -> None:
        """Check the newest losses, tell the observer, and save a checkpoint if one is due or a stop was requested."""
        losses = self.statistics.settle()
        self.require_finite(losses)
        if distributed.rank() == 0:
            step = (self.done - 1) % self.loader.steps + 1
            self.observer.step(epoch, step, self.loader.steps, losses.mean().item())
        due = time.monotonic() - self.last_saved > 60 * self.checkpoint_minutes
        stop, due = distributed.agree(self.stop_requested(), due)
        if (due or stop) and self.done % self.loader.steps:  # after an epoch's last step, `finish_epoch` saves
            self.require_finite_state()
            self.save_checkpoint()
            self.list_unreadable()
            if stop:
                raise Interrupted

    def finish_epoch(self, epoch: int) -> dict[str, Any]:
        """Measure a finished epoch, record it and save a checkpoint; returns its metrics."""
        self.require_finite_state()
        metrics = distributed.run_on_rank0(partial(self.record_epoch, epoch))
        self.statistics = EpochStatistics()
        self.save_checkpoint()
        self.list_unreadable()
        if distributed.rank() == 0 and not self.is_last(epoch):
            notify(self.observer, "snapshot", self.snapshot())
        return metrics

    def list_unreadable(self) -> None:
        """List the unreadable files of all processes, and those from before a resume; every process must call it."""
        self.data.unreadable.update(distributed.union(self.loader.problems))
        if distributed.rank() == 0:
            with explain_disk_errors(self.run):
                write_unreadable(self.run.path, self.all_unreadable())

    def all_unreadable(self) -> dict[str, str]:
        """Unreadable files so far, name -> reason."""
        return {**self.unreadable_before, **self.data.unreadable}

    def record_epoch(self, epoch: int) -> dict[str, Any]:
        """Append the epoch's metrics to metrics.jsonl and write the encoder; on rank 0 alone."""
        metrics = self.measure_epoch(epoch)
        below, past = fell_below(metrics, self.settings), went_past(metrics, self.settings)
        if self.settings.stop_below_start or self.settings.stop_by_judge:
            metrics["stopped"] = (below or past) and not self.is_last(epoch)
        with explain_disk_errors(self.run):
            self.run.append(metrics)
            if replaces_encoder(metrics, self.settings, self.run.backbone.exists()):
                self.save_encoder()
        self.observer.epoch(metrics)
        if below or past:
            self.observer.note(describe_fall(metrics) if below else describe_past(metrics))
        return metrics

    def save_encoder(self) -> None:
        """Write the encoder as it is now."""
        save_backbone(self.run.backbone, self.step.network.backbone, {"backbone": self.settings.backbone})

    def measure_start(self) -> None:
        """Measure the start before the first step, if there are labels or `stop_by_judge`; on rank 0."""
        if self.settings.stop_by_judge:
            self.judge_encoder()
            with explain_disk_errors(self.run):
                self.save_encoder()
        if self.data.bank is None or self.data.test is None:
            return
        try:
            self.start.knn_top1 = self.evaluate(0).get("knn_top1")
        except ImagesGone as gone:
            self.observer.note(f"the start is not measured: {gone}")
        if self.settings.stop_below_start:
            with explain_disk_errors(self.run):
                self.save_encoder()

    def measure_epoch(self, epoch: int) -> dict[str, Any]:
        """The epoch's line of metrics.jsonl; `runs/metrics.py` describes every key."""
        lr = highest_lr(self.settings.lr, self.settings.batch) * self.lr_factor(self.done - 1)
        metrics: dict[str, Any] = {"epoch": epoch + 1, "step": self.done, **self.statistics.means(), "lr": lr}
        if (epoch + 1) % self.settings.evaluate_every == 0 or self.is_last(epoch):
            try:
                metrics |= self.evaluate(epoch)
                if self.settings.stop_by_judge:
                    metrics |= self.judge_encoder()
                if self.start.knn_top1 is not None:
                    metrics["start_knn_top1"] = self.start.knn_top1
                metrics["collapsed"] = metrics["spread"] < COLLAPSED
            except ImagesGone as gone:
                self.observer.note(f"epoch {epoch + 1} is not measured: {gone}")
        metrics["seconds"] = round(self.elapsed(), 3)
        metrics["images_per_second"] = round(self.done * self.settings.batch / self.elapsed(), 1)
        return metrics

    def evaluate(self, epoch: int) -> dict[str, float]:
        """Measure the present encoder, after an epoch."""
        try:
            return evaluate(
                self.step.network,
                self.step.probe,
                self.data,
                self.settings,
                self.device,
                self.workers,
                epoch=epoch,
                progress=partial(notify, self.observer, "working", "measuring"),
                note=self.observer.note,
                **({} if self.data.held_out is None else {"look": self.compare_with_start}),
            )
        except NonfiniteFeatures:
            raise nonfinite_features(self.done, self.loader.steps, self.run, self.settings) from None

    def compare_with_start(self, bank: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
        """Measure the images held out to decide when to stop, and compare with the start."""
        if self.data.held_out is None or (self.done > 0 and self.start.right is None):
            return {}  # the start was not measured: the setting is newer than the run
        backbone = self.step.network.backbone
        held_out, lost = self.data.held_out, dict[str, str]()
        found = clean_features(backbone, held_out, self.data.views, self.device, self.workers, lost)
        seen = torch.ones(len(held_out), dtype=torch.bool)
        if lost:
            seen = torch.tensor([name not in lost for name in held_out.source.names])
        return self.start.look(bank, labels, *found, seen)

    def judge_encoder(self) -> dict[str, float]:
        """Let the label-free judge compare the present encoder with earlier ones of the run."""
        return judged(self.step.network.backbone, self.data, self.run.path, self.done, self.device, self.workers)

    def save_checkpoint(self) -> None:
        """Write a checkpoint; call `require_finite_state` first."""
        distributed.run_on_rank0(self._write_checkpoint)
        self.last_saved = time.monotonic()  # on every rank, since all save as soon as one is due

    def state_dict(self) -> Checkpoint:
        """Everything needed to continue from here to the same bits."""
        return Checkpoint(
            settings=self.settings.model_dump(),
            done=self.done,
            seconds=self.elapsed(),
            totals=self.statistics.totals,
            metrics_length=self.run.length(),
            start=self.start.state_dict(),
            **self.step.state_dict(),
        )

    def load_state_dict(self, state: Checkpoint) -> None:
        """Continue from what `state_dict` returned, even in an earlier version."""
        self.done, self.seconds_before, self.metrics_length = state.done, state.seconds, state.metrics_length
        self.statistics = EpochStatistics(state.totals)
        if state.start is not None:
            self.start.load_state_dict(state.start)
        if not self.step.load_state_dict(state) and distributed.rank() == 0:
            self.observer.note(
                "the optimizer starts anew: its kind, layer_decay or freeze is not what the checkpoint was saved with"
            )

    def snapshot(self) -> Snapshot:
        """The present state of the run, for observers."""
        weights = self.step.method.state_dict
        return Snapshot(self.run.path, self.settings, weights, self.data, self.device, self.done)

    def lr_factor(self, step: int) -> float:
        """Factor of the highest learning rate at a step of the run (from 0)."""
        steps, warmup = self.loader.steps, self.settings.warmup_epochs or 0
        return lr_factor(step, self.settings.epochs * steps, round(warmup * steps))

    def elapsed(self) -> float:
        """Seconds of training, including those before a resume."""
        return self.seconds_before + time.monotonic() - self.started

    def is_last(self, epoch: int) -> bool:
        """Whether this epoch (from 0) ends the run."""
        return epoch + 1 == self.settings.epochs

    def require_finite(self, losses: torch.Tensor) -> None:
        """Raise UserError if any of the newest losses is not finite."""
        bad = (~losses.isfinite()).nonzero()
        if len(bad):
            step = self.done - len(losses) + int(bad[0])
            raise nonfinite_loss(step, self.loader.steps, self.run, self.settings)

    def require_finite_state(self) -> None:
        """Raise UserError if a loss, a weight or the optimizer's state is not finite on any rank.

        A step whose loss was finite can still spoil the weights; such weights are never saved.
        """
        self.require_finite(self.statistics.settle())
        (bad,) = distributed.agree(not all_finite(self.step.method, self.step.optimizer, self.step.probe))
        if bad:
            raise nonfinite_weights(self.done - 1, self.loader.steps, self.run, self.settings)

    @contextmanager
    def checkpoint_if_dataset_disappears(self) -> Iterator[None]:
        """If the images disappear, as with an unplugged disk, save a checkpoint and say how to continue."""
        try:
            yield
        except ImagesGone as gone:
            if self.done % self.loader.steps and distributed.world_size() == 1:
                self.require_finite_state()
                self.save_checkpoint()
            raise UserError(
                f"{gone}; {describe_last_checkpoint(self.run)}; `dualtemp resume {self.run.path}` goes on"
            ) from None

    def _write_checkpoint(self) -> None:
        with explain_disk_errors(self.run):
            checkpoint.save(self.run.checkpoints, self.state_dict())
