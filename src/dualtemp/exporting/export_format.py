"""What an export format is: any file of `formats/` that holds `FORMAT = ExportFormat(...)`. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from dualtemp.exporting.exported_encoder import ExportedEncoder


class LoadingText(NamedTuple):
    """A way to load an export, for the model card: title, a sentence, and a program from `images` to `features`."""

    title: str
    text: str
    program: str


@dataclass(frozen=True)
class ExportFormat:
    """A format that an encoder can be exported in.

    Its module is imported for `--help` too: heavy imports belong inside its functions.

    Attributes:
        name: as `--format` takes it.
        files: the names of its files.
        write: writes them into a folder.
        read: loads them from a folder, as a function from uint8 pixels (N, C, H, W) to features (N, F).
        how_to_load: the ways to load them without dualtemp, given the format's entry in export.json, the backbone's
            recipe (`models.describe_backbone`) and the content of preprocessing.json.
        refusal: why an encoder cannot be exported in it; "" if it can.
        packages: what has to be installed.
        extra: the extra of dualtemp that installs them.
        is_approximate: whether its features are not the encoder's: they are compared by cosines and neighbors on real
            images, which also calibrate it.
        in_all: whether "all" means it too.
        is_graph: whether it holds a graph, which can normalize its input itself.
        classifies: whether its graph carries the classifier, if one is asked for; then `read` gives probabilities
            (N, classes) too, to the right of the features.
        library: what loads it, in the words of the Hugging Face hub.
        facts: more for its entry in export.json.
        hint: what to know about it when it is proposed in place of another.
    """

    name: str
    files: tuple[str, ...]
    write: Callable[[ExportedEncoder, Path], None]
    read: Callable[[ExportedEncoder, Path], Callable[[Tensor], Tensor]]
    how_to_load: Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], list[LoadingText]]
    refusal: Callable[[ExportedEncoder], str] = lambda encoder: ""
    packages: tuple[str, ...] = ()
    extra: str = ""
    is_graph: bool = False
    is_approximate: bool = False
    in_all: bool = True
    classifies: bool = False
    library: str = "pytorch"
    facts: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""
