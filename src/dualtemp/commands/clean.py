"""`dualtemp clean`: show how much space caches, checkpoints and temporary files take, and free it. Needs no torch."""

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import add_json
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json, print_table
from dualtemp.errors import UserError

if TYPE_CHECKING:
    from dualtemp.storage.found import Stored

DETAILS = """\
Without --yes, files are only listed, not removed. Images, labels, results, final weights and the newest checkpoint of
an unfinished run are never removed, nor is anything that another process is using."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="where runs are (default: runs)")
    group = parser.add_argument_group("what to free")
    text = "features, indexes and copies of shards; recreated when needed"
    group.add_argument("--caches", action="store_true", help=text)
    group.add_argument("--temporary", action="store_true", help="files that killed processes left half-written")
    group.add_argument(
        "--checkpoints",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUN",
        help="checkpoints of these runs: all of a finished one (resume --epochs, explore and analyze need them), else "
        "all but the newest",
    )
    group.add_argument("--older-than", type=float, metavar="DAYS", help="only files not used for this many days")
    group.add_argument("--yes", action="store_true", help="free it")
    add_json(parser)


def run(given: dict[str, Any]) -> int:
    """Show what takes space; free what the flags name."""
    from dualtemp.storage.found import Kind, in_cache, in_run
    from dualtemp.storage.freeing import free

    _check(given)
    asks = given["caches"] or given["temporary"] or given["checkpoints"]
    checkpoints = [item for path in given["checkpoints"] for item in in_run(path) if item.kind is Kind.CHECKPOINTS]
    found = [*in_cache(), *(item for path in _runs(given["folders"]) for item in in_run(path))]
    if not asks:
        _show(found, given["json"])
        return 0
    caches = (Kind.FEATURES, Kind.INDEXES, Kind.COPIES) if given["caches"] else ()
    kinds = (*caches, *((Kind.TEMPORARY,) if given["temporary"] else ()))
    asked = [item for item in (*found, *checkpoints) if item.kind in kinds or item in checkpoints]
    asked = list({item.path: item for item in asked}.values())
    if given["older_than"] is not None:
        asked = [item for item in asked if time.time() - item.used >= 86_400 * given["older_than"]]
    if given["yes"]:
        freed = free(asked)
        _tell(freed.items, freed.kept, True, given["json"])
    else:
        kept = [(item, item.kept) for item in asked if item.kept]
        _tell([item for item in asked if not item.kept], kept, False, given["json"])
    return 0


def _check(given: dict[str, Any]) -> None:
    days = given["older_than"]
    if days is not None and not (math.isfinite(days) and days >= 0):
        raise UserError(f"--older-than must be a number of days, 0 or more; got {days}")
    if (given["yes"] or days is not None) and not (given["caches"] or given["temporary"] or given["checkpoints"]):
        raise UserError("say what to free: --caches, --temporary or --checkpoints RUN")
    for folder in given["folders"]:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder: give the folder that holds your runs")


def _runs(folders: Sequence[Path]) -> list[Path]:
    from dualtemp.report.runs_list import find_runs

    places = folders or [Path("runs")]
    found = [path for place in places if place.is_dir() for path in find_runs(place)]
    return [path for path in found if (path / "config.yaml").is_file()]


FREED_BY = {
    "features": "--caches",
    "indexes of shards": "--caches",
    "copies of shards": "--caches",
    "data sets": "images: never",
    "checkpoints": "--checkpoints RUN",
    "temporary files": "--temporary",
}


def _show(found: "list[Stored]", as_json: bool) -> None:
    """One line for each kind and folder, the largest first within a kind."""
    from dualtemp.cache_folder import cache_folder
    from dualtemp.quantities import size

    if as_json:
        print_json({"cache": str(cache_folder()), "stored": [_described(item) for item in found]})
        return
    sums: dict[tuple[str, Path], list[Stored]] = {}
    for item in found:
        sums.setdefault((item.kind, item.path.parent), []).append(item)
    ranks = list(FREED_BY)
    rows = sorted(sums.items(), key=lambda each: (ranks.index(each[0][0]), -sum(item.size for item in each[1])))
    table = [
        (
            kind,
            str(folder),
            str(len(items)),
            size(sum(item.size for item in items)),
            size(sum(item.size for item in items if not item.kept)),
            FREED_BY[kind],
        )
        for (kind, folder), items in rows
    ]
    if table:
        print_table("", ("what", "where", "files", "size", "can go", "freed by"), table)
    total, free = (sum(item.size for item in found if all_ or not item.kept) for all_ in (True, False))
    print(f"{size(total)} in all, of which {size(free)} can be freed. Cache: {cache_folder()} (DUALTEMP_DATA moves it)")


def _tell(items: "list[Stored]", kept: "list[tuple[Stored, str]]", done: bool, as_json: bool) -> None:
    from dualtemp.quantities import counted, size

    total = sum(item.size for item in items)
    if as_json:
        key = "freed" if done else "would_free"
        held_back = [_described(item) | {"kept": reason} for item, reason in kept]
        print_json({key: [_described(item) for item in items], "bytes": total, "kept": held_back})
        return
    for item in items:
        print(f"{'freed' if done else 'would free'} {size(item.size):>10}  {item.path}")
    for item, reason in kept:
        print(f"kept {size(item.size):>10}  {item.path}: {reason}")
    if done:
        print(f"{size(total)} freed ({counted(len(items), 'file')})")
    elif items:
        print(f"{size(total)} ({counted(len(items), 'file')}) can be freed: add --yes to do it")
    else:
        print("nothing to free")


def _described(item: "Stored") -> dict[str, Any]:
    return {
        "kind": item.kind,
        "path": str(item.path),
        "bytes": item.size,
        "used": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(item.used)),
        "kept": item.kept,
    }


COMMAND = Command(
    name="clean",
    about="Show how much space caches and checkpoints take, and free it.",
    place=(Group.START, 9),
    add_arguments=add_arguments,
    run=run,
    details=DETAILS,
    takes_threads=False,
)
