"""The state of one studio (images, features, labels, predictions), shared by all its pages."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError
from dualtemp.studio.background import Background, Progress
from dualtemp.studio.collection import Collection
from dualtemp.studio.columns import Column, category_column, coded_column, number_column, read_columns
from dualtemp.studio.events import News
from dualtemp.studio.label_file import Change, LabelFile
from dualtemp.studio.live_probe import LiveProbe
from dualtemp.studio.opening import Opening
from dualtemp.studio.predictions import Predictions, fit_predictions
from dualtemp.studio.space import Space, aligned, fitted
from dualtemp.studio.thumbnail_sheets import ThumbnailSheets

LABEL = "labels given here, else the class of the image's folder"
UNCERTAINTY = "entropy of the predicted classes: 0 sure, 1 no idea"


@dataclass(frozen=True)
class Places:
    """Where a studio reads and writes; a page can never choose these paths.

    labels: the label file; exports: the folder of exports; runs: the folder of runs; columns: a file with further
    columns, or None.
    """

    labels: Path
    exports: Path
    runs: Path
    columns: Path | None = None


class NotReady(Exception):
    """The images are still being opened, or could not be."""


@dataclass
class Shown:
    """What is available once the images are open."""

    images: Collection
    spaces: list[Space]
    labels: LabelFile
    sheets: ThumbnailSheets
    columns: dict[str, Column]


class Workspace:
    """The state of a studio.

    Args:
        opening: what to open.
        places: where to write.
        device: where features are computed.
    """

    def __init__(self, opening: Opening, places: Places, device: str = "auto") -> None:
        self.opening, self.places, self.device = opening, places, device
        self.news = News()
        self.background = Background(self.news)
        self.notes: list[str] = []
        self.problem = ""
        self.current = 0  # number of the space shown
        self.probe = LiveProbe(self._fit, self._tell_predictions)
        self._shown: Shown | None = None
        self._computed: dict[str, Column] = {}  # columns that jobs have computed, by id
        self._labeling = threading.Lock()
        self._telling = threading.Lock()  # so that the list published last is the newest

    def start(self) -> None:
        """Start opening the images in the background."""
        self.background.start("open", f"opening {self.opening.title}", self._open)
        self.probe.start()

    def close(self) -> None:
        """Stop computations, and end the connections."""
        self.probe.close()
        self.background.close()
        self.news.close()

    @property
    def shown(self) -> Shown:
        """The open images; raises NotReady."""
        if self._shown is None:
            raise NotReady(self.problem or "the images are still being opened")
        return self._shown

    @property
    def ready(self) -> bool:
        """Whether the images are open."""
        return self._shown is not None

    @property
    def space(self) -> Space:
        """The space shown."""
        return self.shown.spaces[self.current]

    # ---- columns

    def column(self, name: str) -> Column | None:
        """A column by its name; None if there is none."""
        found = self.probe.predictions
        if name == "label":
            return category_column(name, self.words(), LABEL)
        if found is not None and name == "prediction":
            return coded_column(name, found.codes, found.classes, _about_predictions(found))
        if found is not None and name == "uncertainty":
            return number_column(name, found.uncertainty, UNCERTAINTY)
        return self._computed.get(name) or self.shown.columns.get(name)

    def column_names(self) -> list[dict[str, Any]]:
        """All columns: id, title, kind and a line about each; does not compute columns that change."""
        found = self.probe.predictions
        heads = [("label", "label", "category", LABEL)]
        if found is not None:
            heads.append(("prediction", "prediction", "category", _about_predictions(found)))
            heads.append(("uncertainty", "uncertainty", "number", UNCERTAINTY))
        there = [*self._computed.items(), *self.shown.columns.items()]
        heads += [(name, each.title, each.kind, each.about) for name, each in there]
        return [{"id": name, "title": title, "kind": kind, "about": about} for name, title, kind, about in heads]

    def add_column(self, name: str, column: Column) -> None:
        """Add a column that was computed, or replace it, and tell all pages."""
        with self._telling:
            self._computed = {**self._computed, name: column}
            self.news.publish("columns", columns=self.column_names(), changed=name)

    def words(self) -> list[str | None]:
        """The label of each image: the one given here, else its class."""
        words = list(self.shown.images.given_labels)
        for number, label in self.shown.labels.labels().items():
            words[number] = label
        return words

    # ---- labels

    def change_labels(self, make: Callable[[LabelFile], Change | None]) -> Change | None:
        """Change labels, tell all pages in the order of the changes, and request new predictions."""
        labels = self.shown.labels
        with self._labeling:
            change = make(labels)
            if change is not None and (change.entries or change.reread or change.undoes):
                entries = {str(i): [entry.label, list(entry.tags)] for i, entry in change.entries.items()}
                about = {"version": change.version, "whole": change.reread, "can_undo": labels.can_undo}
                self.news.publish("labels", entries=entries, **about)
                self.probe.ask()
        return change

    def label_words(self) -> list[str]:
        """All labels in use, and the classes."""
        return sorted({*self.shown.images.classes, *self.shown.labels.labels().values()})

    def tag_words(self) -> list[str]:
        """All tags in use."""
        return sorted({tag for entry in list(self.shown.labels.entries.values()) for tag in entry.tags})

    # ---- spaces

    def show_space(self, number: int) -> None:
        """Show another space, on all pages."""
        if not 0 <= number < len(self.shown.spaces):
            raise UserError(f"there is no encoder {number}")
        with self._telling:
            self.current = number
            self._tell_spaces()
        self.probe.ask()

    def add_space(self, space: Space) -> int:
        """Add a space, rotated so that its map resembles the first one's, and show it."""
        first = self.shown.spaces[0]
        for name, places in space.places.items():
            if name in first.places:
                space.add_layout(name, fitted(aligned(places, first.places[name])), space.notes.get(name, ""))
        with self._telling:
            self.shown.spaces.append(space)
            number = len(self.shown.spaces) - 1
        self.show_space(number)
        self.lay_out(number)
        return number

    def described_spaces(self) -> list[dict[str, Any]]:
        """All spaces, for pages."""
        return [
            {
                "title": space.title,
                "layouts": [{"id": name, "note": space.notes.get(name, "")} for name in space.places],
                "encoder": space.encoder is not None,
            }
            for space in self.shown.spaces
        ]

    def lay_out(self, number: int) -> None:
        """Compute the map that keeps neighbors together, in the background."""
        space = self.shown.spaces[number]

        def work(progress: Progress) -> str:
            from dualtemp.analysis.neighbor_layout import neighbor_layout

            places, note = neighbor_layout(space.features, space.places["components"], progress)
            first = self.shown.spaces[0].places.get("neighbors")
            space.add_layout("neighbors", fitted(places if first is None else aligned(places, first)), note)
            with self._telling:
                self._tell_spaces()
            return note

        self.background.start("layout", f"map of neighbors, {space.title}", work)

    def _tell_spaces(self) -> None:
        self.news.publish("space", current=self.current, spaces=self.described_spaces())

    # ---- background work

    def _open(self, progress: Progress) -> str:
        try:
            images, space = self.opening.load(progress, self.notes.append)
            columns = _fixed_columns(images)
            if self.places.columns is not None:
                found = read_columns(self.places.columns, images.names)
                columns |= {f"file{place}": column for place, column in enumerate(found)}
            labels = LabelFile(self.places.labels, images.names)
        except BaseException as error:
            self.problem = " ".join(str(error).split()) or type(error).__name__
            raise
        self._shown = Shown(images, [space], labels, ThumbnailSheets(images), columns)
        self.news.publish("ready")
        self.probe.ask()
        self.lay_out(0)
        return f"{len(images):,} images"

    def _fit(self) -> Predictions | None:
        labels = {number: word for number, word in enumerate(self.words()) if word is not None}
        try:
            return fit_predictions(self.space, labels, self.shown.labels.labels())
        except Exception as error:  # the page continues without predictions
            self.notes.append(f"no predictions: {error}")
            return None

    def _tell_predictions(self) -> None:
        with self._telling:
            self.news.publish("predictions", **self.probe.described(), columns=self.column_names())


def _about_predictions(found: Predictions) -> str:
    return f"by a probe on {found.labeled} labeled images"


def _fixed_columns(images: Collection) -> dict[str, Column]:
    columns = {}
    if images.classes:
        columns["class"] = coded_column("class", images.labels, images.classes, "as the source names it")
    if any(part is not None for part in images.parts):
        columns["part"] = category_column("part", images.parts, "train or test, as training would split the images")
    return columns


def numbers_within(numbers: Iterable[int], count: int) -> list[int]:
    """The numbers as a list; raises UserError if one is not the number of an image."""
    found = list(numbers)
    if any(not 0 <= number < count for number in found):
        raise UserError(f"image numbers are 0 to {count - 1}")
    return found
