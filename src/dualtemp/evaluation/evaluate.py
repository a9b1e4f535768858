"""Measure a run or a start with labelled images: kNN, linear probe, few labels, fine-tuning; baselines beside it."""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualtemp.data.sources.copies import twins
from dualtemp.encoder.encoder import names_start, run_encoder
from dualtemp.errors import UserError
from dualtemp.evaluation.baselines import compared
from dualtemp.evaluation.evaluation_file import EVALUATION_FILE, add_to_evaluation, place, result
from dualtemp.evaluation.frozen_measures import frozen_measures
from dualtemp.evaluation.labeled_data import LabelledData, labelled_data
from dualtemp.evaluation.tuned_measures import tuned_measures
from dualtemp.quantities import duration
from dualtemp.runs.evaluated_measures import EVALUATED, WORDS
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.metrics import measures
from dualtemp.text import suggest


def evaluate(
    run: Path | str,
    data: Path | str | None = None,
    *,
    only: str | Sequence[str] | None = None,
    fine_tune: bool = True,
    fine_tune_epochs: int | None = None,
    seed: int = 0,
    device: str = "auto",
    workers: int | None = None,
    quiet: bool = False,
    told: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Measure a run: what `dualtemp evaluate` does, with the same words; returns what it measured.

    Results go into RUN/evaluation.json, and from there onto the run's page, as soon as they are there.

    Args:
        run: the run's folder; or a pretrained start ("imagenet", "timm:NAME", a folder of timm), which is measured as
            it is, on data that are given, and leaves no file.
        data: labelled images, a folder, a set or an .npz file; default: the run's own, asked on its validation set.
        only: measures to take, of "knn", "probe", "few-shot" and "fine-tune"; default: all.
        fine_tune: False leaves fine-tuning out, which takes longest.
        fine_tune_epochs: default: such that 100,000 images are seen, from 3 to 30.
        seed: of the draws of few labels, of the part that the probe's penalty is chosen on, and of fine-tuning.
        device: "auto" takes the best there is.
        workers: processes that read photographs.
        quiet: say nothing.
        told: is told of how many images there are features, and of how many images they are wanted.

    Returns:
        run, data, part (asked about: test or held-out), step, made, images (asked about), labels (learned from),
        classes, and measured: a list of dictionaries as in evaluation.json.

    Example:
        >>> dualtemp.evaluate("runs/simco", only="knn,probe")["measured"]  # doctest: +SKIP
    """
    wanted = chosen_measures(only, fine_tune)
    if fine_tune_epochs is not None and fine_tune_epochs < 1:
        raise UserError(f"fine_tune_epochs must be at least 1, got {fine_tune_epochs}")
    folder = _folder_of(Path(run), data)
    if folder is None:
        wanted = _without_tuning(run, wanted, only)
    encoder = replace(run_encoder(Path(run), device), told=told)
    found = labelled_data(Path(run), encoder.chosen, data)
    tell = _silent if quiet else _tell
    if found.untested:
        few = ", ".join(found.untested[:3]) + (f" and {len(found.untested) - 3} more" * (len(found.untested) > 3))
        tell(f"no test image of {few}: nothing of it is measured (of a class with one image, that one is learned from)")
    for line in twins(found.train, found.test).told():
        tell(line)
    kept, lost = _Kept(folder), _LeftOut(found.unreadable, tell)
    encoders = compared(encoder)
    try:
        if wanted - {"fine-tune"}:
            for row in frozen_measures(encoders, found, wanted, seed, workers, lost.problems):
                lost.tell_new()
                # Not before files were read: only then it is known how many images there are.
                if folder is not None and data is None and not kept.measured:
                    kept.add(online(folder, found, wanted, lost.problems))
                kept.add([row])
                tell(f"{row['encoder']}: {row['name']} {row['top1']:.2f} %, {duration(row['seconds'])}")
        if "fine-tune" in wanted:
            tuned = {name: encoders[name] for name in ("trained", "untrained")}
            for row in tuned_measures(tuned, found, fine_tune_epochs, seed, workers, tell, lost.problems):
                lost.tell_new()
                kept.add([row])
    except KeyboardInterrupt:
        holds = "nothing was measured"
        if kept.measured:
            holds = f"{folder.path / EVALUATION_FILE} holds what was measured" if folder else "a start keeps nothing"
        raise KeyboardInterrupt(f"interrupted; {holds}") from None
    return {
        "run": str(run),
        "data": found.name,
        "part": "held-out" if data is None and encoder.chosen.validate == "held-out" else "test",
        **kept.content,
        "images": found.test.readable_count(lost.problems),
        "labels": found.train.readable_count(lost.problems),
        "classes": found.classes,
        "measured": sorted(kept.measured, key=place),
    }


def _folder_of(run: Path, data: Path | str | None) -> RunFolder | None:
    """The folder that results are kept in; None for a start, which has none."""
    if names_start(run):
        if data is None:
            raise UserError(f"{run} has no images of its own: give labelled ones, --data FOLDER|SET|FILE.npz")
        return None
    folder = RunFolder.opened(run)
    if not os.access(folder.path, os.W_OK):
        raise UserError(f"{folder.path} cannot be written to, and results are kept there: make it writable")
    return folder


def _without_tuning(run: Path | str, wanted: set[str], only: str | Sequence[str] | None) -> set[str]:
    """What is measured of a start: it stays as it is."""
    if only is not None and "fine-tune" in wanted:
        raise UserError(f"{run} is measured as it is: to train it further, `dualtemp train --init {run}`")
    return wanted - {"fine-tune"}


def chosen_measures(only: str | Sequence[str] | None, fine_tune: bool) -> set[str]:
    """The measures to take; a mistyped one is answered with the nearest."""
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
    run: RunFolder, found: LabelledData, wanted: set[str], problems: Collection[str] = ()
) -> list[dict[str, Any]]:
    """What the run itself measured of the same weights, while it learned; problems: files that cannot be read."""
    images, learned = found.test.readable_count(problems), found.train.readable_count(problems)
    last: dict[str, Any] = next(iter(run.history()[-1:]), {})
    labels = {"probe": learned, "knn": min(run.settings().knn_images, learned)}
    words = {each.name: each.asked_as for each in EVALUATED}
    rows: list[dict[str, Any]] = []
    for each in measures().values():
        word, top1 = words.get(each.evaluated_as), last.get(each.key)
        if word in wanted and top1 is not None:
            row = result(each.evaluated_as, "online", found.name, top1 / 100, None, images, labels[word])
            top5 = last.get(each.top5) if found.classes > 5 else None
            rows.append({**row, "top1": top1, "top5": top5})  # as it stands, unrounded
    return rows


class _Kept:
    """Results so far: in the run's folder, if there is one, and on its page after each of them."""

    def __init__(self, run: RunFolder | None) -> None:
        self.run, self.step = run, next((line.get("step", 0) for line in run.history()[-1:]), 0) if run else 0
        self.measured: list[dict[str, Any]] = []
        self.content: dict[str, Any] = {}

    def add(self, rows: list[dict[str, Any]]) -> None:
        from dualtemp.report.run_page import write_run_page

        self.measured += rows
        if self.run is None:  # a start
            return
        content = add_to_evaluation(self.run.path, self.step, self.measured)
        self.content = {"step": content["step"], "made": content["made"]}
        write_run_page(self.run.path)


class _LeftOut:
    """Files that cannot be read, name -> reason: told when they are found, not once for every encoder."""

    def __init__(self, known: dict[str, str], tell: Callable[[str], None]) -> None:
        self.problems, self._tell, self._told = dict(known), tell, 0

    def tell_new(self) -> None:
        count = len(self.problems)
        if count > self._told:
            name, files = min(self.problems), "1 file" if count == 1 else f"{count:,} files"
            self._tell(f"{files} could not be read and left out, the first {name} ({self.problems[name]})")
            self._told = count


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _silent(text: str) -> None:
    pass
