"""`dualtemp data`: list the named sets; check a source, draw its images as the network sees them, or pack it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import add_json, check_ending
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json
from dualtemp.errors import UserError
from dualtemp.quantities import counted

if TYPE_CHECKING:
    from dualtemp.data.check import SourceFacts
    from dualtemp.data.images import ImageSet
    from dualtemp.data.sources.catalogue import NamedSet

MANY = 12  # entries of a list that are shown
SMALLEST_SHARD = 10_000  # bytes; a smaller number probably lacks its unit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "source", nargs="?", default="", metavar="SET | FOLDER | FILE.npz | SHARDS", help="what to check"
    )
    parser.add_argument("--show", action="store_true", help="write a contact sheet of some images with their two views")
    parser.add_argument("--out", type=Path, metavar="FILE.png", help="the contact sheet (default: NAME-views.png)")
    parser.add_argument("--recipe", help="the augmentation of the views (default: paper)")
    parser.add_argument("--no-labels", action="store_true", help="ignore labels and class folders")
    parser.add_argument("--to", type=Path, metavar="SHARDS", help="pack a folder of images into shards in a new folder")
    parser.add_argument("--shard-size", metavar="SIZE", help="approximate size of a shard (default: 256MB)")
    text = "pack in the order of a hash of the names, for --order shards (default: the folder's, class by class)"
    parser.add_argument("--shuffle", action="store_true", help=text)
    add_json(parser)


def run(given: dict[str, Any]) -> int:
    """List, check or show; returns 1 if some files cannot be read."""
    source, labels = given["source"], not given["no_labels"]
    if not source:
        if given["show"]:
            raise UserError("--show needs a set, a folder or a file: dualtemp data cifar10 --show")
        if given["to"] is not None:
            raise UserError("--to needs a folder of images to pack: dualtemp data FOLDER --to SHARDS")
        _list_sets(given["json"])
        return 0
    for name in ("out", "recipe"):
        if given[name] is not None and not given["show"]:
            raise UserError(f"--{name} is about the contact sheet: give --show too, or leave it out")
    if given["shard_size"] is not None and given["to"] is None:
        raise UserError("--shard-size is about packing: give --to SHARDS too, or leave it out")
    if given["shuffle"] and given["to"] is None:
        raise UserError("--shuffle is about packing: give --to SHARDS too, or leave it out")
    if given["to"] is not None:
        if given["show"]:
            raise UserError("--to packs and --show draws: give one of them")
        _pack(source, given["to"], given["shard_size"], labels, given["shuffle"], given["json"])
        return 0
    if given["show"]:
        _show(source, given["out"], given["recipe"] or "paper", labels)
        return 0
    from dataclasses import asdict

    from dualtemp.data.check import check_source

    facts = check_source(source, labels)
    if given["json"]:
        print_json(asdict(facts) | {"grey_in_colour": facts.gray_in_color}, indent=2)  # its former name
    else:
        _print_facts(source, facts)
    return 1 if facts.unreadable else 0


def _list_sets(as_json: bool) -> None:
    """Print every named set: its size, and whether it is cached or how to get it."""
    from dataclasses import asdict

    from dualtemp.data.sources.cache import cache_folder
    from dualtemp.data.sources.catalogue import CATALOGUE

    if as_json:
        rows = [
            asdict(entry) | {"unlabelled": entry.unlabeled, "cached": _is_here(entry), "how": _how(entry)}
            for entry in CATALOGUE.values()
        ]
        print_json({"cache": str(cache_folder()), "sets": rows}, indent=2)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("set", "classes", "train", "test", "size", "here?"):
        table.add_column(column, justify="left" if column in ("set", "here?") else "right")
    for entry in CATALOGUE.values():
        train = f"{entry.train:,}" + (f" + {entry.unlabeled:,}" if entry.unlabeled else "")
        size = "photos" if entry.size is None else f"{entry.size} px" + (" gray" if entry.channels == 1 else "")
        table.add_row(entry.name, str(entry.classes), train, f"{entry.test:,}", size, escape(_how(entry)))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"\nCache: {escape(str(cache_folder()))} (DUALTEMP_DATA moves it). `dualtemp data NAME` fetches and checks a "
        "set; imagenet100 needs ImageNet's folder there as `imagenet`. A folder of images or an .npz file works too.",
        soft_wrap=True,
    )


def _print_facts(source: str, facts: "SourceFacts") -> None:
    """Print what is in a source."""
    from rich.console import Console
    from rich.markup import escape

    from dualtemp.data.deep_gray import NARROW_HINT

    console = Console(highlight=False, soft_wrap=True)
    color = {1: "gray", 3: "color"}.get(facts.channels, f"{facts.channels} channels")
    color = "gray, stored in three channels" if facts.gray_in_color else color
    console.print(f"[bold]{escape(source)}[/bold]: {color}, kept as {facts.kept}; split: {facts.split}")
    if facts.narrow is not None:
        console.print(escape(NARROW_HINT.format(percent=100 * facts.narrow)))
    for name, part in facts.parts.items():
        console.print(f"\n[bold]{name}[/bold]: {counted(part.images, 'image')}, fingerprint {part.fingerprint}")
        console.print(f"  classes  {escape(_classes(part.classes))}")
        console.print(f"  sizes    {escape(_counts(part.sizes))}")
        console.print(f"  modes    {escape(_counts(part.modes))}")
    for line in facts.twins.lines():
        console.print(f"\n[bold]copies[/bold]: {escape(line)}")
    if facts.unreadable:
        console.print(f"\n[bold]unreadable[/bold]: {counted(len(facts.unreadable), 'file')}")
        for name, reason in facts.unreadable.items():
            console.print(f"  {escape(name)}: {escape(reason)}")


def _show(source: str, out: Path | None, recipe: str, labels: bool) -> None:
    """Write the contact sheet of a source's training images and print its path."""
    from dualtemp.data.augment.recipes import recipe_named
    from dualtemp.data.contact_sheet import write_contact_sheet
    from dualtemp.data.sources.opening import absolute_source, is_named_set, open_source
    from dualtemp.progress_bar import status_line

    recipe_named(recipe)  # a mistyped recipe is answered before anything is opened
    own = not is_named_set(source)
    check_ending(out, ".png")
    if out is not None and own and out.exists() and out.resolve().is_relative_to(absolute_source(source)):
        raise UserError(
            f"--out {out} is an image of the set, and would be overwritten: give a file outside of the folder"
        )
    if out is None and own and Path.cwd().resolve().is_relative_to(absolute_source(source)):
        raise UserError("the sheet would become an image of the set: give --out FILE.png, outside of the folder")
    with status_line(f"opening {source}"):
        images = open_source(source, labels=labels).train
    out = out or Path(f"{images.name}-views.png")
    write_contact_sheet(images, out, recipe=recipe, size=_view_size(source, images) if own else None)
    print(out)


def _pack(source: str, to: Path, shard_size: str | None, labels: bool, shuffle: bool, as_json: bool) -> None:
    """Pack a folder into shards, and say what was written."""
    from dataclasses import asdict

    from dualtemp.data.shards.packing import SHARD_SIZE, pack_folder
    from dualtemp.data.sources.opening import image_folder
    from dualtemp.progress_bar import image_progress
    from dualtemp.quantities import bytes_of

    size = SHARD_SIZE if shard_size is None else bytes_of(shard_size)
    if size < SMALLEST_SHARD:
        raise UserError(f"--shard-size {shard_size}: smaller than most image files; give its unit too, such as 256MB")
    folder = image_folder(source)
    if folder is None:
        raise UserError(f"{source}: not a folder of image files, which is what --to packs")
    with image_progress() as progress:
        packed = pack_folder(folder, to, shard_size=size, labels=labels, shuffle=shuffle, progress=progress)
    if as_json:
        print_json(asdict(packed), indent=2)
        return
    classes = f", {packed.classes} classes" if packed.classes else ""
    what = f"{counted(packed.images, 'image')} in {counted(packed.shards, 'shard')}"
    print(f"{to}: {what}, {packed.bytes / 1e6:,.1f} MB{classes}")


def _view_size(source: str, images: "ImageSet") -> int | None:
    """The view size that `train` would choose for a user's own images on this machine."""
    from dualtemp.config import settings
    from dualtemp.data.images import Splits
    from dualtemp.device import open_device
    from dualtemp.training.default_start import default_start
    from dualtemp.training.own_images import with_sensible_settings

    given, splits = settings({"data": source}), Splits(images)
    start, _ = default_start(given, splits)
    return with_sensible_settings(given, splits, open_device("auto"), start)[0].image_size


def _is_here(entry: "NamedSet") -> bool:
    from dualtemp.data.sources.cache import cache_folder, cached_set

    if entry.name == "imagenet100":
        return any((cache_folder() / name / "train").is_dir() for name in ("imagenet100", "imagenet"))
    return entry.name == "digits" or cached_set(entry.name) is not None


def _how(entry: "NamedSet") -> str:
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
    each = f"{counted(least, 'image')} each" if least == most else f"{least} to {most} images each"
    return f"{len(classes)}, {each}: {_shortened(list(classes))}"


def _counts(counts: dict[str, int]) -> str:
    if len(counts) < 2:
        return next(iter(counts), "none can be read")
    return f"{len(counts)} different: " + _shortened([f"{what} ({count:,})" for what, count in counts.items()])


def _shortened(words: list[str]) -> str:
    return ", ".join(words[:MANY]) + (f", and {len(words) - MANY} more" if len(words) > MANY else "")


COMMAND = Command(
    name="data",
    about="List the sets and what is cached; check a source, show it as the network sees it, or pack it.",
    place=(Group.TRAIN, 3),
    add_arguments=add_arguments,
    run=run,
)
