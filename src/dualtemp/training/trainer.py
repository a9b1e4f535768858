"""The training loop: read it from top to bottom.

The loop knows no page and no terminal. Whoever starts it passes a `Watch` that is told of steps, epochs and notes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.images import ImagesGone
from dualtemp.data.loading.loader import Loader
from dualtemp.errors import UserError
from dualtemp.evaluation.online import evaluate
from dualtemp.models.weights import save_backbone
from dualtemp.runs import checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.training.epoch_statistics import EpochMeter
from dualtemp.training.failures import (
    Interrupted,
    all_finite,
    disk_trouble_told,
    last_checkpoint,
    loss_not_finite,
    weights_not_finite,
)
from dualtemp.training.observers.observer import Snapshot, Watch, tell_if_heard
from dualtemp.training.schedule import highest_lr, lr_factor
from dualtemp.training.thresholds import COLLAPSED
from dualtemp.training.train_step import TrainStep
from dualtemp.training.training_data import TrainingData
from dualtemp.training.unreadable_files import short_list, write_unreadable


def fit(
    chosen: Settings,
    method: Any,
    data: TrainingData,
    run: RunFolder,
    device: torch.device,
    watch: Watch,
    *,
    saved: dict[str, Any] | None = None,
    workers: int | None = None,
    checkpoint_minutes: float = 5.0,
    stop_requested: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train from a checkpoint, or from the beginning, to the end; returns the last epoch's metrics.

    chosen: complete settings; method: what `build_framework` makes of them; saved: what `checkpoint.load` gives,
    emptied here. Every process calls it with the same; rank 0 alone writes and tells.
    """
    step = TrainStep(chosen, method, data, device)
    loader = Loader(
        data.images,
        data.views,
        chosen.batch,
        device=device,
        rank=distributed.rank(),
        world=distributed.world_size(),
        workers=workers,
        count=chosen.framework.views,
    )
    steps, warmup = chosen.epochs * loader.steps, round((chosen.warmup_epochs or 0) * loader.steps)

    meter, done, seconds = EpochMeter(), 0, 0.0  # done: steps of the whole run
    if saved is not None:
        done, seconds, meter = saved["done"], saved["seconds"], EpochMeter(saved["totals"])
        step.load_state_dict(saved)
    if distributed.rank() == 0:
        run.cut_back(0 if saved is None else saved["metrics_length"])
    if saved is not None:
        saved.clear()  # the caller may hold it, and the memory is wanted

    def state() -> dict[str, Any]:
        return {
            "settings": chosen.model_dump(),
            "done": done,
            "seconds": elapsed(),
            "totals": meter.totals,
            "metrics_length": run.length(),
            **step.state_dict(),
        }

    def elapsed() -> float:
        return seconds + time.monotonic() - started

    def check(losses: torch.Tensor) -> None:
        bad = (~losses.isfinite()).nonzero()
        if len(bad):
            raise loss_not_finite(done - len(losses) + int(bad[0]), loader.steps, run, chosen)

    def check_all() -> None:
        check(meter.settle())
        (bad,) = distributed.agree(not all_finite(step.method, step.optimizer, step.probe))
        if bad:  # a step can spoil the weights with a loss that was finite; such weights are never saved
            raise weights_not_finite(done - 1, loader.steps, run, chosen)

    def write_checkpoint() -> None:
        with disk_trouble_told(run):
            checkpoint.save(run.checkpoints, done, state())

    def save() -> None:
        nonlocal last_saved
        distributed.from_first(write_checkpoint)
        last_saved = time.monotonic()  # on every process: any one that is due makes all of them save

    @contextmanager
    def kept_if_images_go() -> Iterator[None]:
        try:
            yield
        except ImagesGone as gone:
            if done % loader.steps and distributed.world_size() == 1:
                check_all()
                save()
            raise UserError(f"{gone}; {last_checkpoint(run)}; `dualtemp resume {run.path}` goes on") from None

    def measuring(seen: int, images: int) -> None:
        tell_if_heard(watch, "working", "measuring", seen, images)

    def close_epoch(epoch: int) -> dict[str, Any]:
        lr = highest_lr(chosen.lr, chosen.batch) * lr_factor(done - 1, steps, warmup)
        metrics: dict[str, Any] = {"epoch": epoch + 1, "step": done, **meter.means(), "lr": lr}
        if (epoch + 1) % chosen.evaluate_every == 0 or epoch + 1 == chosen.epochs:
            try:
                metrics |= evaluate(
                    step.network, step.probe, data, chosen, device, workers, epoch=epoch, progress=measuring
                )
                metrics["collapsed"] = metrics["spread"] < COLLAPSED
            except ImagesGone as gone:
                watch.note(f"epoch {epoch + 1} is not measured: {gone}")
        metrics["seconds"] = round(elapsed(), 3)
        metrics["images_per_second"] = round(done * chosen.batch / elapsed(), 1)
        with disk_trouble_told(run):
            run.append(metrics)
            save_backbone(run.backbone, step.network.backbone, {"backbone": chosen.backbone})
        watch.epoch(metrics)
        return metrics

    started = last_saved = time.monotonic()
    metrics: dict[str, Any] = {}
    with loader, kept_if_images_go():
        for epoch in range(done // loader.steps, chosen.epochs):
            for batch in loader.batches(epoch, start_step=done % loader.steps):
                made = step(batch, done, lr_factor(done, steps, warmup))
                done += 1
                meter.add(made.loss, made.stats.get("W"))
                # A look at the loss waits for the device: on an accelerator, once in a while.
                if device.type == "cpu" or done % 16 == 0:
                    losses = meter.settle()
                    check(losses)
                    if distributed.rank() == 0:
                        watch.step(epoch, (done - 1) % loader.steps + 1, loader.steps, losses.mean().item())
                    due = time.monotonic() - last_saved > 60 * checkpoint_minutes
                    stop, due = distributed.agree(stop_requested(), due)
                    if (due or stop) and done % loader.steps:
                        check_all()
                        save()
                        if stop:
                            raise Interrupted

            check_all()
            metrics = distributed.from_first(lambda epoch=epoch: close_epoch(epoch))
            meter = EpochMeter()
            save()
            data.unreadable.update(loader.problems)
            if distributed.rank() == 0:
                with disk_trouble_told(run):
                    write_unreadable(run.path, data.unreadable)
                if epoch + 1 < chosen.epochs:
                    now = Snapshot(run.path, chosen, lambda: state()["method"], data, device, done)
                    tell_if_heard(watch, "snapshot", now)
            (stop,) = distributed.agree(stop_requested())
            if stop and epoch + 1 < chosen.epochs:
                raise Interrupted
    if data.unreadable and distributed.rank() == 0:
        watch.note(short_list(run.path, data.unreadable))
    return metrics
