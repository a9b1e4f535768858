"""Start a run: open the data, complete the settings, create the folder, train."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dualtemp import distributed
from dualtemp.config import Settings, complete, given_settings
from dualtemp.frameworks import build_framework
from dualtemp.models.starts import NONE
from dualtemp.models.weights import save_backbone
from dualtemp.progress_bar import status_line
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.metrics import measures as load_measures
from dualtemp.training.adaptation import check_adaptation
from dualtemp.training.default_start import default_start
from dualtemp.training.environment import describe_environment
from dualtemp.training.failures import explain_memory_errors
from dualtemp.training.initial_weights import initial_weights
from dualtemp.training.judged_stop import check_judge
from dualtemp.training.launch import (
    ExecutionOptions,
    PreparedRun,
    process_group,
    refuse_unsafe_bf16,
    train_prepared,
)
from dualtemp.training.observers.display import Display
from dualtemp.training.observers.observer import Observer
from dualtemp.training.own_images import introduce, with_sensible_settings
from dualtemp.training.pretrained import start_of, with_start
from dualtemp.training.resume import resume_run
from dualtemp.training.run_data import (
    check_batch,
    image_size,
    open_data,
    refuse_misnamed_folders,
    resolve_data,
    training_data,
)
from dualtemp.training.teacher import find_teacher


def start(
    settings: Settings,
    out: Path,
    options: ExecutionOptions = ExecutionOptions(),  # noqa: B008
    observer: Observer | None = None,
) -> dict[str, Any]:
    """Create a run folder and train; returns the last epoch's metrics. A user's mistake leaves no folder behind."""
    load_measures()  # so that a broken plugin fails before there is a folder
    settings, run, device = resolve_data(settings), RunFolder(out), options.open_device()
    refuse_unsafe_bf16(settings, device)
    with process_group(run, device), ExitStack() as held:
        if distributed.run_on_rank0(lambda: is_restart(run, settings)):
            return resume_run(out, None, options, observer)
        distributed.run_on_rank0(lambda: RunFolder.refuse_existing(out))
        begin, nothing_found = start_of(settings), ""
        settings, teacher = find_teacher(settings, device)
        quiet = options.quiet or distributed.rank() > 0
        with status_line(f"opening {settings.data}", quiet):
            splits = open_data(settings)
            distributed.run_on_rank0(lambda: refuse_misnamed_folders(settings))
        with status_line(f"looking at {len(splits.train):,} images", quiet):
            if begin is None:
                begin, nothing_found = default_start(settings, splits)
            settings, own_images = with_sensible_settings(settings, splits, device, begin)
            settings = with_start(settings, begin) if begin else settings.model_copy(update={"init": None})
            settings = complete(settings, image_size(splits))
            data = training_data(settings, splits, None, begin.input if begin else None)
        check_batch(settings, data)
        check_judge(settings, data)
        if teacher is not None:
            teacher.fitted(data.images)  # refuses images of other channels
        load = initial_weights(settings, data, begin.load_into if begin else None)
        with explain_memory_errors(settings, run):
            method = build_framework(settings, data.images.channels, data.classes, len(data.images), load)
        backbone = method.framework.network.backbone
        check_adaptation(settings, backbone, data.bank is not None)
        if (begin is not None or nothing_found) and not quiet:
            (observer or Display()).note(begin.describe(backbone) if begin else nothing_found)
        if own_images is not None and distributed.run_on_rank0(lambda: not options.quiet):
            with explain_memory_errors(settings, run):
                introduce(own_images, settings, splits, data, method, device, options.workers, teacher)
        environment = describe_environment(device, splits, data, begin)

        def create() -> None:
            held.enter_context(run.create(settings, environment, save_start if begin else None))

        def save_start(path: Path) -> None:
            save_backbone(path, backbone, {"backbone": settings.backbone})

        distributed.run_on_rank0(create)
        return train_prepared(PreparedRun(settings, method, data, run, device, teacher=teacher), options, observer)


def is_restart(run: RunFolder, settings: Settings) -> bool:
    """Whether torchrun restarted this very run's processes after one failed, or Slurm restarted its job."""
    by_torchrun = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    by_slurm = int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0
    if not (by_torchrun or by_slurm) or not run.config.exists():
        return False
    chosen = run.settings()
    recorded = {**chosen.options.model_dump(), **chosen.model_dump()}  # settings added since have their defaults
    same = all(recorded.get(name) == value for name, value in given_settings(settings).items() if value != NONE)
    environment = run.read_environment()
    launched = by_torchrun and environment.get("launch") == os.environ.get("TORCHELASTIC_RUN_ID")
    queued = by_slurm and environment.get("slurm_job") == os.environ.get("SLURM_JOB_ID")
    return same and (launched or queued)
