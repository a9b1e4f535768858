"""The public functions, with the same words as the command line; those defined elsewhere load when first used."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.bf16_on_cpu import allow_bf16
from dualtemp.config import from_yaml, overridden, settings
from dualtemp.errors import UserError
from dualtemp.lazy import lazily
from dualtemp.machine import check_threads, check_workers
from dualtemp.renamed import renamed_arguments
from dualtemp.runs.folder import RunFolder

if TYPE_CHECKING:
    from dualtemp.analysis.analyze import analyze
    from dualtemp.encoder.embed import embed
    from dualtemp.encoder.index import index
    from dualtemp.encoder.near_duplicates import near_duplicates
    from dualtemp.encoder.search import search
    from dualtemp.encoder.select import select
    from dualtemp.evaluation.evaluate import evaluate
    from dualtemp.evaluation.judge_encoders import judge
    from dualtemp.evaluation.predict import predict
    from dualtemp.exporting.export import export
    from dualtemp.report.page_observer import RunPage
    from dualtemp.training.observers.observer import Observer

__all__ = [
    "analyze",
    "embed",
    "evaluate",
    "export",
    "index",
    "judge",
    "near_duplicates",
    "predict",
    "resume",
    "search",
    "select",
    "train",
]

_HOME = {
    "analyze": "analysis.analyze",
    "embed": "encoder.embed",
    "evaluate": "evaluation.evaluate",
    "export": "exporting.export",
    "index": "encoder.index",
    "near_duplicates": "encoder.near_duplicates",
    "judge": "evaluation.judge_encoders",
    "predict": "evaluation.predict",
    "search": "encoder.search",
    "select": "encoder.select",
}
__getattr__, _ = lazily("dualtemp", _HOME)

LOGS = ("tensorboard", "wandb")


@renamed_arguments(watch="observer")
def train(
    *,
    out: Path | str,
    config: Path | str | None = None,
    device: str = "auto",
    workers: int | None = None,
    threads: int | None = None,
    checkpoint_minutes: float = 5.0,
    quiet: bool = False,
    log: Sequence[str] = (),
    page: bool = True,
    observer: "Observer | None" = None,
    **values: Any,
) -> dict[str, Any]:
    """Train an encoder, as `dualtemp train` does; returns the last epoch's metrics.

    Args:
        out: the run's folder; must be new.
        config: a YAML file of settings; those given by name override it.
        device: default "auto", the best one.
        workers: processes that read image files.
        threads: CPU threads.
        checkpoint_minutes: save at least this often within an epoch; every epoch ends with a checkpoint.
        quiet: print nothing but problems.
        log: "tensorboard", "wandb": log metrics there too, in OUT/logs.
        page: keep OUT/report.html up to date, with pictures from time to time and at the end.
        observer: gets steps and epochs in place of the terminal (`dualtemp.training.observers.observer.Observer`).
        values: settings by name, see `dualtemp.config.Settings`: data="cifar10", method="simco", tau_beta=1.0 ...

    Example:
        >>> dualtemp.train(data="digits", method="simco", epochs=10, batch=64, out="runs/digits")  # doctest: +SKIP
    """
    settings_ = settings(overridden(from_yaml(Path(config)) if config is not None else {}, values))
    _allow_precision(settings_.amp, device)
    how = _how(device, workers, threads, checkpoint_minutes, quiet)
    from dualtemp.training.start import start

    return _observed(lambda observers: start(settings_, Path(out), how, observers), how, log, page, observer)


@renamed_arguments(watch="observer")
def resume(
    run: Path | str,
    epochs: int | None = None,
    *,
    device: str = "auto",
    workers: int | None = None,
    threads: int | None = None,
    checkpoint_minutes: float = 5.0,
    quiet: bool = False,
    log: Sequence[str] = (),
    page: bool = True,
    observer: "Observer | None" = None,
) -> dict[str, Any]:
    """Resume a run from its newest checkpoint, as `dualtemp resume` does; returns the last epoch's metrics.

    Args:
        run: the run's folder.
        epochs: train up to this many epochs, even if the run is finished; default: the number in its config.yaml.
        device: default "auto", the best one.
        workers: processes that read image files.
        threads: CPU threads; default: as many as the run started with, so that it ends with the same bits.
        checkpoint_minutes: save at least this often within an epoch.
        quiet: print nothing but problems.
        log: "tensorboard", "wandb"; not remembered from the first call.
        page: keep RUN/report.html up to date.
        observer: gets steps and epochs in place of the terminal.
    """
    with suppress(UserError):  # reported below
        _allow_precision(RunFolder.open(Path(run)).settings().amp, device)
    how = _how(device, workers, threads, checkpoint_minutes, quiet)
    from dualtemp.training.resume import resume_run

    return _observed(lambda observers: resume_run(Path(run), epochs, how, observers), how, log, page, observer)


def _observed(
    run: "Callable[[Observer], dict[str, Any]]", how: Any, log: Sequence[str], page: bool, observer: "Observer | None"
) -> dict[str, Any]:
    """Run with observers: the terminal (or `observer`), the page and logs; returns the run's metrics."""
    from dualtemp.report.page_observer import RunPage
    from dualtemp.training.observers.display import Display
    from dualtemp.training.observers.observer import Several, attempt

    first = observer or Display(quiet=how.quiet)
    shown = RunPage(first.note)
    several = Several(first, *([shown] if page else []), *_logs(log))

    try:
        metrics = run(several)
    finally:
        there = shown.path is not None and shown in several.others
        there = there and attempt(shown, shown.write, first.note)  # once more, with the run's final status
    if there:
        _take_last_pictures(shown, how.device, first, observer is None)
        with suppress(OSError):  # standard output may be closed
            if observer is None and not how.quiet:
                print(f"The run's page is {shown.path}/report.html", flush=True)
    return metrics


def _take_last_pictures(shown: "RunPage", device: str, first: "Observer", is_display: bool) -> None:
    """Take a finished run's pictures. Our own display shows the progress; a caller's observer is already closed."""
    from dualtemp.training.observers.observer import attempt, notify

    what = "pictures for the page"

    def taking(done: int, total: int) -> None:
        if is_display:
            notify(first, "working", what, done, total)

    try:
        attempt(what, lambda: shown.take_pictures(device, taking), first.note)
    finally:
        if is_display:
            first.close()


def _logs(names: Sequence[str]) -> "list[Observer]":
    """Create the logs of these names, each once; a missing package is reported before anything is written."""
    logs: list[Any] = []
    for name in dict.fromkeys([names] if isinstance(names, str) else names):
        if name not in LOGS:
            raise UserError(f"no log is called {name!r}: choose among {', '.join(LOGS)}")
        package = find_spec(name)
        if package is None or package.origin is None:  # no origin: a mere folder of that name
            raise UserError(f"--log {name} needs a package that is not installed: pip install 'dualtemp[{name}]'")
        logs.append(_log(name))
    return logs


def _log(name: str) -> "Observer":
    if name == "tensorboard":
        from dualtemp.training.observers.tensorboard import TensorBoardLog

        return TensorBoardLog()
    from dualtemp.training.observers.wandb import WandbLog

    return WandbLog()


def _allow_precision(amp: str, device: str) -> None:
    """Cap the CPU's instruction set if bfloat16 needs it; must run before torch is loaded."""
    if amp == "bf16" and device.partition(":")[0] in ("auto", "cpu"):
        allow_bf16()


def _how(device: str, workers: int | None, threads: int | None, checkpoint_minutes: float, quiet: bool) -> "Any":
    check_threads(threads)
    check_workers(workers)
    if not checkpoint_minutes >= 0:
        raise UserError(f"--checkpoint-minutes must be a number from 0 on, got {checkpoint_minutes}")
    from dualtemp.training.launch import ExecutionOptions

    return ExecutionOptions(device, workers, threads, checkpoint_minutes, quiet)
