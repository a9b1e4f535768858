"""`dualtemp select`: choose which images to label. Needs no torch until images are read."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import (
    add_encoding_options,
    add_json,
    add_searched_images,
    check_at_least,
    check_ending,
    check_seed,
    encoding_options,
)
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json, print_note, print_table, print_unreadable
from dualtemp.errors import UserError

MOST_SEEDS = 10_000

SHOWN = 20  # rows of the printed table
PICTURES = 500  # images on the page
WAYS = ("diverse", "typical", "hardest", "uncertain", "random")
DETAILS = """\
diverse    together they represent all images best (facility location)
typical    the middle of each cluster, large clusters first (TypiClust)
hardest    the largest anchor weights W of the encoder
uncertain  those that a classifier fitted to the labels so far is least sure of
random     drawn by the seed

--simulate replays these ways on labeled images, and says how many labels each saves compared with random."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "the run's folder; imagenet, timm:NAME, a folder of timm; or a file of `dualtemp embed`"
    parser.add_argument("run", type=Path, metavar="RUN | EMBEDDINGS", help=text)
    add_searched_images(parser)
    parser.add_argument("-n", type=int, default=None, metavar="N", help="images to select (default: 100)")
    parser.add_argument("--by", choices=WAYS, default=None, help="how (default: diverse)")
    parser.add_argument("--labels", type=Path, metavar="FILE.csv", help="labels given so far: columns name and label")
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="seed of random draws (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="FILE.csv, .json, .txt (names alone) or .html")
    parser.add_argument("--simulate", action="store_true", help="how many labels does each way save? needs labels")
    parser.add_argument("--seeds", type=int, metavar="N", help="repetitions of a simulation (default: 5)")
    parser.add_argument(
        "--budgets", type=int, nargs="+", metavar="N", help="numbers of labels of a simulation (default: by classes)"
    )
    add_json(parser, " instead of a table")
    add_encoding_options(parser)


def run(given: dict[str, Any]) -> int:
    """Print the selected images and write them to a file; or print what a simulation found."""
    from dualtemp.encoder.overwriting import refuse_overwriting

    options = encoding_options(given)
    check_at_least(given, n=1, seeds=1)
    check_seed(given["seed"])
    if (given["seeds"] or 0) > MOST_SEEDS:
        raise UserError(f"--seeds must be at most {MOST_SEEDS:,}, got {given['seeds']}")
    read = (given[name] for name in ("run", "data", "embeddings", "labels"))  # `run` may be a file of features
    refuse_overwriting(given["out"], given["run"], *read)
    if given["simulate"]:
        check_ending(given["out"], ".csv", ".html", ".htm", ".json")
        return _simulate(given, options)
    check_ending(given["out"], ".csv", ".html", ".htm", ".json", ".txt")
    for flag in ("seeds", "budgets"):
        if given[flag] is not None:
            raise UserError(f"--{flag} is of a simulation: give --simulate too")
    from dualtemp.encoder.select import select
    from dualtemp.progress_bar import image_progress
    from dualtemp.quantities import counted
    from dualtemp.report.selection_pages import SCORES, selected_for_json, write_selected

    words = {name: given[name] for name in ("data", "embeddings", "labels", "cache")} | {"seed": given["seed"] or 0}
    by = given["by"] or "diverse"
    with image_progress() as progress:
        found = select(given["run"], given["n"], by=by, **words, **options, progress=progress, note=print_note)
    if given["out"] is not None:
        write_selected(given["out"], given["run"], found, PICTURES)
    if given["json"]:
        print_json(selected_for_json(found))
        return 0
    rows = [
        (str(rank), f"{score:.4g}" if SCORES[by] else "", name)
        for rank, (name, score) in enumerate(zip(found.names[:SHOWN], found.scores, strict=False), 1)
    ]
    print_table(
        f"{counted(len(found.names), 'image')} to label, of {found.among:,}, {by}", ("", SCORES[by], "name"), rows
    )
    if len(found.names) > SHOWN:
        print(f"and {len(found.names) - SHOWN:,} more" + ("" if given["out"] else ": --out FILE.csv has them all"))
    print_unreadable(found.unreadable)
    if given["out"] is not None:
        print(given["out"])
    return 0


def _simulate(given: dict[str, Any], options: dict[str, Any]) -> int:
    if given["n"] is not None:
        raise UserError("-n applies to a selection: give --budgets to a simulation")
    if given["seed"] is not None:
        raise UserError("--seed applies to a selection: a simulation uses seeds from 0 on, as many as --seeds says")
    from dualtemp.data.sources.label_file import check_label_file
    from dualtemp.encoder.feature_records import EncodingOptions
    from dualtemp.encoder.label_file import number_labels
    from dualtemp.encoder.select import encoder_weights, labels_of_candidates, open_candidates
    from dualtemp.encoder.selection_simulation import simulate
    from dualtemp.progress_bar import image_progress
    from dualtemp.report.selection_pages import HEADS, simulation_for_json, simulation_rows, write_simulation

    path = given["labels"]
    if path is not None:
        check_label_file(path)  # before features are computed, which may take hours
    with image_progress() as progress:
        device = options.pop("device")
        how = EncodingOptions(**options, cache=given["cache"], progress=progress, note=print_note)
        found = open_candidates(given["run"], given["data"], given["embeddings"], how, device)
        known = found.rows.labels if path is None else labels_of_candidates(found, path, print_note)
        draws_views = found.encoder is not None and found.images is not None
        ways = [given["by"]] if given["by"] else [way for way in WAYS if way != "hardest" or draws_views]
        weights = encoder_weights(found, how) if "hardest" in ways else None
    if given["by"] is None and weights is None:
        print_note("hardest is left out: it draws views, which needs the run or start and --data")
    result = simulate(
        found.rows.features,
        number_labels(known)[0],
        ways,
        budgets=given["budgets"],
        seeds=given["seeds"] or 5,
        weights=weights,
        progress=lambda done, total: print_note(f"{done} of {total} seeds"),
    )
    if given["out"] is not None:
        write_simulation(given["out"], given["run"], result)
    if given["json"]:
        print_json(simulation_for_json(result))
        return 0
    title = f"{result.images:,} images, {result.classes} classes, {result.seeds} seeds"
    print_table(title, HEADS, simulation_rows(result))
    print_unreadable(found.unreadable)
    if given["out"] is not None:
        print(given["out"])
    return 0


COMMAND = Command(
    name="select",
    about="Choose which images to label.",
    place=(Group.USE, 12),
    add_arguments=add_arguments,
    run=run,
    details=DETAILS,
)
