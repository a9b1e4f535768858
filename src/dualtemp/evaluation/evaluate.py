"""Measure a run or a start, and baselines, with labeled images: kNN, linear probe, few labels, fine-tuning."""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualtemp.data.sources.copies import twins
from dualtemp.encoder.encoder import names_start, open_run, run_encoder
from dualtemp.errors import UserError
from dualtemp.evaluation.baselines import with_baselines
from dualtemp.evaluation.evaluation_file import EVALUATION_FILE, VALIDATION, add_to_evaluation, place, result
from dualtemp.evaluation.frozen_measures import Features, frozen_measures
from dualtemp.evaluation.labeled_data import LabeledData, labeled_data
from dualtemp.evaluation.run_classifier import keep_classifier, keep_fine_tuned
from dualtemp.evaluation.tuned_measures import Tuned, tuned_measures
from dualtemp.machine import check_workers
from dualtemp.quantities import counted, duration
from dualtemp.renamed import renamed_arguments
from dualtemp.runs.evaluated_measures import EVALUATED, WORDS, encoder_title
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.kept_encoder import kept_history
from dualtemp.runs.metrics import measures
from dualtemp.text import suggest


@renamed_arguments(told="progress")
def evaluate(
    run: Path | str,
    data: Path | str | None = None,
    *,
    labels: Path | str | None = None,
    only: str | Sequence[str] | None = None,
    fine_tune: bool = True,
    fine_tune_epochs: int | None = None,
    seed: int = 0,
    device: str = "auto",
    workers: int | None = None,
    quiet: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Measure a run's encoder, as `dualtemp evaluate` does; returns the results.

    Each result is written to RUN/evaluation.json, and shown on the run's page, as soon as it is known. Measuring the
    probe on the run's own images also writes RUN/classifier.safetensors, for `predict` and `export`; fine-tuning on
    them writes the tuned network to RUN/fine_tuned.safetensors, and its classifier beside it.

    Args:
        run: the run's folder; or a pretrained start ("imagenet", "timm:NAME", a folder of timm), which is measured
            without training, on `data`, and writes no file.
        data: labeled images: a folder, a set or an .npz file; default: the run's own, measured on its validation set.
        labels: a CSV file with the labels of the images in a folder: file, label.
        only: measures to take, of "knn", "probe", "few-shot" and "fine-tune"; default: all.
        fine_tune: False leaves fine-tuning out, which takes longest.
        fine_tune_epochs: default: enough to see 100,000 images, from 3 to 30.
        seed: of draws of few labels, of the part held out to choose the probe's penalty, and of fine-tuning.
        device: default "auto", the best one.
        workers: processes that read image files.
        quiet: print nothing.
        progress: called with the number of images whose features are computed, and of all.

    Returns:
        run, data, part (test or held-out), step, made, images (tested on), labels (learned from), classes, and
        measured: a list of dictionaries as in evaluation.json.

    Example:
        >>> dualtemp.evaluate("runs/simco", only="knn,probe")["measured"]  # doctest: +SKIP
    """
    wanted = selected_measures(only, fine_tune)
    check_workers(workers)
    if fine_tune_epochs is not None and fine_tune_epochs < 1:
        raise UserError(f"fine_tune_epochs must be at least 1, got {fine_tune_epochs}")
    folder = _folder_of(Path(run), data)
    if folder is None:
        wanted = _without_tuning(run, wanted, only)
    if fine_tune_epochs is not None and "fine-tune" not in wanted:
        raise UserError("fine_tune_epochs: nothing is fine-tuned here; leave it out")
    encoder = replace(run_encoder(Path(run), device), progress=progress)
    found = labeled_data(Path(run), encoder.settings, data, labels)
    tell = _silent if quiet else _tell
    if found.untested:
        few = ", ".join(found.untested[:3]) + (f" and {len(found.untested) - 3} more" * (len(found.untested) > 3))
        tell(f"no test image of {few}, which cannot be measured (the only image of a class is for training)")
    for line in filter(None, (found.changed, *twins(found.train, found.test).lines())):
        tell(line)
    kept, lost = _Kept(folder, found.names), _LeftOut(found.unreadable, tell)
    encoders = with_baselines(encoder)
    own = folder is not None and data is None and labels is None
    try:
        if wanted - {"fine-tune"}:

            def keep(features: Features) -> None:
                if own and folder is not None and "probe" in wanted:
                    keep_classifier(folder.path, encoder, features.train, features.train_labels, found)

            for row in frozen_measures(encoders, found, wanted, seed, workers, lost.problems, keep):
                lost.tell_new()
                # Only now: how many images there are is known once files have been read.
                if own and folder is not None and not kept.measured:
                    kept.add(online(folder, found, wanted, lost.problems))
                kept.add([row])
                tell(f"{encoder_title(row['encoder'])}: {row['name']} {row['top1']:.2f} %, {duration(row['seconds'])}")
        if "fine-tune" in wanted:
            tuned = {name: encoders[name] for name in ("trained", "untrained")}

            def keep_tuned(made: Tuned) -> None:
                if own:
                    keep_fine_tuned(encoder, made, found, workers)

            for row in tuned_measures(tuned, found, fine_tune_epochs, seed, workers, tell, lost.problems, keep_tuned):
                lost.tell_new()
                kept.add([row])
    except KeyboardInterrupt:
        holds = "nothing was measured"
        if kept.measured:
            holds = f"{folder.path / EVALUATION_FILE} holds what was measured" if folder else "a start keeps nothing"
        raise KeyboardInterrupt(f"interrupted; {holds}") from None
    return {
        "run": str(run),
        "data": next((row["data"] for row in kept.measured), found.name),
        "part": "held-out" if found.name == VALIDATION and encoder.settings.validate == "held-out" else "test",
        **kept.content,
        "images": found.test.readable_count(lost.problems),
        "labels": found.train.readable_count(lost.problems),
        "classes": found.classes,
        "measured": sorted(kept.measured, key=place),
    }


def _folder_of(run: Path, data: Path | str | None) -> RunFolder | None:
    """Return the folder that results are kept in; None for a start, which has none."""
    if names_start(run):
        if data is None:
            raise UserError(f"{run} has no images of its own: give labeled ones, --data FOLDER|SET|FILE.npz")
        return None
    folder = open_run(run)
    if not os.access(folder.path, os.W_OK):
        raise UserError(f"{folder.path} cannot be written, where results are kept: make it writable")
    return folder


def _without_tuning(run: Path | str, wanted: set[str], only: str | Sequence[str] | None) -> set[str]:
    """Return the measures to take of a start: all wanted but fine-tuning."""
    if only is not None and "fine-tune" in wanted:
        raise UserError(f"{run} is measured as it is: to train it further, `dualtemp train --init {run}`")
    return wanted - {"fine-tune"}


def selected_measures(only: str | Sequence[str] | None, fine_tune: bool) -> set[str]:
    """Return the measures to take; a mistyped one is a UserError with the nearest."""
    words = WORDS if only is None else only.split(",") if isinstance(only, str) else only
    wanted = {word.strip() for word in words}
    for word in sorted(wanted - set(WORDS)):
        raise UserError(f"no measure is called {word!r}: {suggest(word, WORDS)}")
    if not fine_tune:
        wanted -= {"fine-tune"}
    if not wanted:
        raise UserError("nothing is left to measure: fine-tuning is the only measure asked for, and left out")
    return wanted


def online(
    run: RunFolder, found: LabeledData, wanted: set[str], problems: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Rows of what the run itself measured, during training, with the same weights; problems: unreadable files."""
    images, learned = found.test.readable_count(problems), found.train.readable_count(problems)
    settings = run.settings()
    last: dict[str, Any] = next(iter(kept_history(run.history(), settings)[-1:]), {})
    labels = {"probe": learned, "knn": min(settings.knn_images, learned)}
    words = {each.name: each.asked_as for each in EVALUATED}
    rows: list[dict[str, Any]] = []
    for each in measures().values():
        word, top1 = words.get(each.evaluated_as), last.get(each.key)
        if word in wanted and top1 is not None:
            row = result(each.evaluated_as, "online", found.name, top1 / 100, None, images, labels[word])
            top5 = last.get(each.top5) if found.classes > 5 else None
            rows.append({**row, "top1": top1, "top5": top5})  # the values of metrics.jsonl, not rounded again
    return rows


class _Kept:
    """The results so far; each new one is written to the run's folder, if there is one, and to its page."""

    def __init__(self, run: RunFolder | None, names: Sequence[str]) -> None:
        self.names = names
        self.run, self.step = run, next((line.get("step", 0) for line in run.history()[-1:]), 0) if run else 0
        self.measured: list[dict[str, Any]] = []
        self.content: dict[str, Any] = {}

    def add(self, rows: list[dict[str, Any]]) -> None:
        from dualtemp.report.run_page import write_run_page

        self.measured += rows
        if self.run is None:  # a start
            return
        content = add_to_evaluation(self.run.path, self.step, self.measured, self.names)
        self.content = {"step": content["step"], "made": content["made"]}
        write_run_page(self.run.path)


class _LeftOut:
    """Unreadable files, name -> reason, each reported once instead of once per encoder."""

    def __init__(self, known: dict[str, str], tell: Callable[[str], None]) -> None:
        self.problems, self._tell, self._reported = dict(known), tell, 0

    def tell_new(self) -> None:
        count = len(self.problems)
        if count > self._reported:
            name, were = min(self.problems), "was" if count == 1 else "were"
            told = f"{counted(count, 'file')} could not be read and {were} left out"
            self._tell(f"{told}, the first {name} ({self.problems[name]})")
            self._reported = count


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _silent(text: str) -> None:
    pass
