"""What `dualtemp data` prints: the sets and what is cached, or what is in one source."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dualtemp.data.sources.cache import cache_folder, cached_set
from dualtemp.data.sources.catalogue import CATALOGUE, NamedSet
from dualtemp.errors import UserError
from dualtemp.progress_bar import told

if TYPE_CHECKING:
    from dualtemp.data.images import ImageSet

MANY = 12  # lines of a list before it is cut


def list_sets(as_json: bool) -> None:
    """Print every named set: figures, and whether it is here or how to get it."""
    if as_json:
        rows = [asdict(entry) | {"cached": _is_here(entry), "how": _how(entry)} for entry in CATALOGUE.values()]
        print(json.dumps({"cache": str(cache_folder()), "sets": rows}, indent=2))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("set", "classes", "train", "test", "size", "here?"):
        table.add_column(column, justify="left" if column in ("set", "here?") else "right")
    for entry in CATALOGUE.values():
        train = f"{entry.train:,}" + (f" + {entry.unlabelled:,}" if entry.unlabelled else "")
        size = "photos" if entry.size is None else f"{entry.size} px" + (" grey" if entry.channels == 1 else "")
        table.add_row(entry.name, str(entry.classes), train, f"{entry.test:,}", size, escape(_how(entry)))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"\nCache: {escape(str(cache_folder()))} (DUALTEMP_DATA moves it). `dualtemp data NAME` fetches and checks a "
        "set; imagenet100 wants ImageNet's folder there as `imagenet`. A folder of images or an .npz file works too.",
        soft_wrap=True,
    )


def print_check(source: str, as_json: bool, labels: bool) -> int:
    """Check one source and print what is in it; 1 if some files cannot be read, else 0."""
    from dualtemp.data.check import SourceFacts, check_source

    facts: SourceFacts = check_source(source, labels)
    if as_json:
        print(json.dumps(asdict(facts), indent=2))
        return 1 if facts.unreadable else 0
    console = Console(highlight=False, soft_wrap=True)
    colour = {1: "grey", 3: "colour"}.get(facts.channels, f"{facts.channels} channels")
    colour = "grey, stored in three channels" if facts.grey_in_colour else colour
    console.print(f"[bold]{escape(source)}[/bold]: {colour}, kept as {facts.kept}; split: {facts.split}")
    for name, part in facts.parts.items():
        console.print(f"\n[bold]{name}[/bold]: {part.images:,} images, fingerprint {part.fingerprint}")
        console.print(f"  classes  {_classes(part.classes)}")
        console.print(f"  sizes    {_counts(part.sizes)}")
        console.print(f"  modes    {_counts(part.modes)}")
    for line in facts.twins.told():
        console.print(f"\n[bold]copies[/bold]: {escape(line)}")
    if facts.unreadable:
        console.print(f"\n[bold]unreadable[/bold]: {len(facts.unreadable)} files")
        for name, reason in facts.unreadable.items():
            console.print(f"  {escape(name)}: {escape(reason)}")
    return 1 if facts.unreadable else 0


def show(source: str, out: Path | None, recipe: str, labels: bool) -> None:
    """Write the contact sheet of a source's training images and say where it is."""
    from dualtemp.data.augment.recipes import recipe_named
    from dualtemp.data.contact_sheet import write_contact_sheet
    from dualtemp.data.sources.opening import named_path, open_source

    recipe_named(recipe)  # a mistyped recipe is answered before anything is opened
    path = named_path(source)
    if out is None and path is not None and Path.cwd().resolve().is_relative_to(path.resolve()):
        raise UserError("the sheet would become an image of the set: give --out FILE.png, outside of the folder")
    with told(f"opening {source}"):
        images = open_source(source, labels=labels).train
    out = out or Path(f"{images.name}-views.png")
    write_contact_sheet(images, out, recipe=recipe, size=_view_size(images, path))
    print(out)


def _view_size(images: "ImageSet", path: Path | None) -> int | None:
    """The side of a view that `train` would choose for somebody's own images on this machine; None: the usual one."""
    if path is None:
        return None
    from dualtemp.data.images import Splits
    from dualtemp.device import open_device
    from dualtemp.training.own_images import facts_of
    from dualtemp.training.sensible_settings import view_size

    return view_size(facts_of(images, Splits(images))[0], open_device("auto").type == "cpu")


def _is_here(entry: NamedSet) -> bool:
    if entry.name == "imagenet100":
        return any((cache_folder() / name / "train").is_dir() for name in ("imagenet100", "imagenet"))
    return entry.name == "digits" or cached_set(entry.name) is not None


def _how(entry: NamedSet) -> str:
    if entry.name == "digits":
        return "yes, shipped"
    if _is_here(entry):
        return "yes, cached"
    if entry.name == "imagenet100":
        return "no (by hand)"
    return f"no ({entry.download:,} MB)"


def _classes(classes: dict[str, int]) -> str:
    if not classes:
        return "none (no labels)"
    least, most = min(classes.values()), max(classes.values())
    each = f"{least} images each" if least == most else f"{least} to {most} images each"
    return f"{len(classes)}, {each}: {_some([escape(name) for name in classes])}"


def _counts(counts: dict[str, int]) -> str:
    if len(counts) == 1:
        return escape(next(iter(counts)))
    return f"{len(counts)} different: " + _some([f"{escape(what)} ({count:,})" for what, count in counts.items()])


def _some(words: list[str]) -> str:
    return ", ".join(words[:MANY]) + (f", and {len(words) - MANY} more" if len(words) > MANY else "")
