"""The user's own images: a paragraph on what was found, the settings chosen, and how long the run will take."""

import shutil
import textwrap
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from dualtemp import distributed
from dualtemp.config import Settings, given_settings
from dualtemp.data.deep_gray import NARROW_HINT, narrow_range
from dualtemp.data.grayscale import gray_in_color
from dualtemp.data.images import ImageSet, ImageSource, Splits, UnreadableImage
from dualtemp.data.loading.stacks import of_stack
from dualtemp.data.sources.opening import is_named_set
from dualtemp.data.training_data import TrainingData
from dualtemp.machine import cores
from dualtemp.models.starts import NONE, Start
from dualtemp.progress_bar import status_line
from dualtemp.quantities import counted, duration
from dualtemp.training.pretrained import is_pretrained, with_start
from dualtemp.training.run_encoder import RunEncoder
from dualtemp.training.sensible_settings import Adapted, Facts, sensible
from dualtemp.training.timing import expected_seconds

LOOKED_AT = 100  # most headers of image files to read
LONG = 2 * 3600  # seconds; for longer runs, fewer epochs are suggested
WIDEST = 100  # columns of the paragraph


@dataclass(frozen=True)
class Found:
    """What is known about the images before the run.

    facts: the basis for choosing settings; sizes: (height, width) of the images looked at; unreadable: name -> reason,
    so far; chosen: settings by name, without those that the user gave; gray: whether images are gray but stored in
    color; narrow: the share of 16 bits that gray images use, if it is small, else None; start: the run's start and its
    origin, "" if it begins from nothing; asked: whether the user named that start.
    """

    facts: Facts
    sizes: list[tuple[int, int]]
    unreadable: dict[str, str]
    chosen: dict[str, Any]
    gray: bool = False
    start: str = ""
    asked: bool = False
    narrow: float | None = None


def with_sensible_settings(
    given: Settings, splits: Splits, device: torch.device, start: Start | None = None
) -> tuple[Settings, Found | None]:
    """Choose the settings that the user did not give; returns all settings, and what was found.

    Named sets keep their defaults, and None is returned for what was found. start: the run's start; a pretrained one
    that is not the user's own run is adapted with care.
    """
    if is_named_set(given.data):
        return given, None
    images = splits.train if given.framework.learns_from_labels else splits.pretraining
    facts, sizes, broken = facts_of(images, splits)
    unreadable = {each.name: each.reason for each in splits.unreadable} | broken
    wanted = given_settings(given)
    known = start is not None and is_pretrained(start) and start.network is not None and start.input is not None
    adapted = Adapted(start.network, start.input.size) if known else None  # pyright: ignore
    if start is not None and not known:  # a run as start: keep its network and size
        wanted = given_settings(with_start(given, start))
    chosen = sensible(facts, device.type, wanted, adapted)
    chosen = {name: value for name, value in chosen.items() if name not in given_settings(given)}
    origin = "" if start is None else f"{start.network or 'weights'} of {start.origin}"
    asked = given.init not in (None, NONE)
    found = Found(facts, sizes, unreadable, chosen, gray_in_color(images), origin, asked, narrow_range(splits.train))
    return given.model_copy(update=chosen), found


def facts_of(images: ImageSet, splits: Splits) -> tuple[Facts, list[tuple[int, int]], dict[str, str]]:
    """Return the facts on which settings depend, sizes of the images looked at, and unreadable ones, name -> reason."""
    sizes, broken = read_sizes(images.source) if images.size is None else ([images.size], {})
    in_files = not images.in_memory
    side = round(median(min(size) if in_files else max(size) for size in sizes)) if sizes else 1
    if splits.train.labels is None or splits.test is None:
        return Facts(len(images), 0, side, in_files), sizes, broken
    labeled = int((splits.train.labels >= 0).sum())
    return Facts(len(images), len(splits.train.classes), side, in_files, labeled), sizes, broken


def read_sizes(source: ImageSource) -> tuple[list[tuple[int, int]], dict[str, str]]:
    """Read heights and widths of evenly spaced images; also returns unreadable ones, name -> reason."""
    sizes, unreadable = [], {}
    for i in range(0, len(source), max(1, len(source) // LOOKED_AT)):
        try:
            sizes.append(source.header(i)[:2])
        except UnreadableImage as error:
            unreadable[error.name] = error.reason
    return sizes, unreadable


def introduce(
    found: Found,
    chosen: Settings,
    splits: Splits,
    data: TrainingData,
    method: Any,
    device: torch.device,
    workers: int | None,
    teacher: RunEncoder | None = None,
) -> None:
    """Print the paragraph before the run starts, after a few timed steps; the framework is not changed.

    Every process must call it, because a step needs them all; only rank 0 prints.
    """
    with status_line("measuring a few steps", quiet=distributed.rank() > 0):
        seconds = expected_seconds(chosen, data, method, device, workers, teacher)
    if distributed.rank() > 0:
        return
    text = paragraph(found, chosen, splits, device, seconds)
    print(textwrap.fill(text, min(WIDEST, shutil.get_terminal_size().columns)) + "\n", flush=True)


def paragraph(found: Found, chosen: Settings, splits: Splits, device: torch.device, seconds: float) -> str:
    """Say what was found, what was chosen and why, the expected time, and how to change it."""
    return " ".join(
        (
            _found(found, chosen, splits),
            _chosen(found, chosen, device),
            f"Expected time: about {duration(seconds)}.",
            _how_to_change(found, chosen, seconds),
        )
    )


def _found(found: Found, chosen: Settings, splits: Splits) -> str:
    parts = [f"{counted(len(splits.train), 'image')} to learn from"]
    if splits.unlabeled is not None:
        parts.append(f"{len(splits.unlabeled):,} more without labels")
    test = splits.test
    parts.append("none to measure with" if test is None else f"{len(test):,} to measure with, never trained on")
    split = f" ({splits.split})" if splits.split else ""
    count = len(splits.train.classes)
    classes = f"{count or 'no'} class{'es' * (count != 1)}"
    broken = "none unreadable so far"
    if found.unreadable:
        name, reason = next(iter(found.unreadable.items()))
        broken = f"{len(found.unreadable)} unreadable so far, the first {name} ({reason})"
    gray = "; gray, stored in three channels (hue and saturation of the views change nothing)" if found.gray else ""
    depth = _depth(found, splits.train)
    return f"Found in {chosen.data}: {', '.join(parts)}{split}; {classes}; {_sizes(found)}{depth}{gray}; {broken}."


def _depth(found: Found, train: ImageSet) -> str:
    """A clause on stacks, and on gray images of more than 8 bits."""
    levels = train.source.levels
    if levels is not None and of_stack(levels):
        return f"; {train.channels} channels"
    if levels is not None:
        return f"; gray of more than 8 bits, {levels[0][0]:,.6g} black and {levels[0][1]:,.6g} white (measured)"
    return "" if found.narrow is None else f"; {NARROW_HINT.format(percent=100 * found.narrow)}"


def _sizes(found: Found) -> str:
    if not found.sizes:
        return "sizes unknown"
    small, large = min(found.sizes, key=min), max(found.sizes, key=min)
    if len(set(found.sizes)) == 1:
        return f"{small[1]} x {small[0]} px"
    return f"{small[1]} x {small[0]} to {large[1]} x {large[0]} px"


def _chosen(found: Found, chosen: Settings, device: torch.device) -> str:
    on_cpu = device.type == "cpu"
    place = f"a CPU of {counted(cores(), 'core')}" if on_cpu else f"an accelerator ({device})"
    begins = ""
    if found.start and chosen.freeze:
        last = "its last stage" if chosen.freeze == -1 else f"what --freeze {chosen.freeze} leaves"
        begins = f" begins from {found.start}; {last} learns, the rest of it stays as it is"
    elif found.start:
        begins = f" begins from {found.start}"
    if found.start and not found.asked:
        begins += " (--init none begins from nothing)"
    why = {
        "backbone": "" if found.start else f"{chosen.backbone}" + (" (a network small enough for it)" * on_cpu),
        "image_size": f"views of {chosen.image_size} px",
        "batch": f"batches of {chosen.batch}",
        "epochs": f"{counted(chosen.epochs, 'epoch')} (more over small folders, fewer over large ones)",
        "lr": f"lr {chosen.lr:g}",
        "knn": "as many neighbors vote as work best among the training images",
        "stop_below_start": "a tenth held out of training, to stop if kNN falls below the start",
        "dictionary_size": f"a dictionary of {chosen.get('dictionary_size')} keys",
        "evaluate_every": f"measured every {counted(chosen.evaluate_every, 'epoch')}".replace(
            "every 1 epoch", "every epoch"
        ),
    }
    choices = ", ".join(text for name, text in why.items() if name in found.chosen and text)
    said = f"; chosen for it: {choices}" if choices else ", as given"
    return f"{chosen.method} on {place}{begins}{said}."


def _how_to_change(found: Found, chosen: Settings, seconds: float) -> str:
    shorter = max(1, int(chosen.epochs * 3600 / max(seconds, 1)))
    quicker = f" (--epochs {shorter}: about an hour)" if seconds > LONG and shorter < chosen.epochs else ""
    return (
        f"A flag changes each of them: --image-size, --epochs{quicker}, ... Ctrl-C saves, `dualtemp resume` goes on; "
        "docs/own-images.md has the rules."
    )
