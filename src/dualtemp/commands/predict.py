"""`dualtemp predict`: classes of images, suspected wrong labels, clusters. Needs no torch until images are read."""

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import (
    SOURCE,
    add_encoder,
    add_encoding_options,
    add_json,
    add_label_file,
    check_at_least,
    default_out,
    encoding_options,
)
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json, print_note, print_table, print_unreadable
from dualtemp.errors import UserError

if TYPE_CHECKING:
    from dualtemp.evaluation.predict import Predicted

SHOWN = 20  # suspected labels printed
DETAILS = """The classifier is the one that `dualtemp evaluate` keeps in the run: a probe, or the fine-tuned network.
With --learn FOLDER, --labels FILE.csv, the run's own images or a pretrained start, it is fitted to labeled images
first. Without any labels, images are only clustered."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_encoder(parser)
    parser.add_argument("--data", metavar=SOURCE, help="the images (default: the run's own)")
    add_label_file(parser)
    parser.add_argument("--learn", metavar=SOURCE, help="labeled images to learn from, if not among --data")
    parser.add_argument(
        "--out",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="FILE.csv, .json, .html or .parquet; repeatable (default: RUN/predictions.html; with --json, none)",
    )
    parser.add_argument(
        "--classifier",
        default="auto",
        metavar="auto|probe|fine-tuned",
        help="which classifier of the run; auto: the one more often right on the validation images",
    )
    parser.add_argument("--clusters", type=int, metavar="N", help="number of clusters (default: chosen)")
    parser.add_argument(
        "--unknown-rate",
        type=float,
        default=0.05,
        metavar="X",
        help="share of known images that may be called none of these (default: 0.05; 0: never); the run's own "
        "classifier keeps its rate",
    )
    parser.add_argument(
        "--cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep features in the cache folder and reuse them (default: yes)",
    )
    add_json(parser, " instead of tables")
    add_encoding_options(parser)


def run(given: dict[str, Any]) -> int:
    """Print tables or JSON, and write the files that --out names."""
    options = encoding_options(given)
    check_at_least(given, clusters=1)
    if not 0 <= given["unknown_rate"] < 1:
        raise UserError(f"--unknown-rate must be from 0 to below 1, got {given['unknown_rate']}")
    from dualtemp.encoder.overwriting import refuse_overwriting
    from dualtemp.evaluation.predict import predict
    from dualtemp.evaluation.prediction_files import check_prediction_file, for_json, write_predictions
    from dualtemp.progress_bar import image_progress

    outs = given["out"] or ([] if given["json"] else [default_out(given["run"], "predictions.html")])
    for out in outs:
        check_prediction_file(out)
        refuse_overwriting(out, given["run"], given["data"], given["labels"], given["learn"])
    words = {
        name: given[name] for name in ("data", "labels", "learn", "classifier", "clusters", "unknown_rate", "cache")
    }
    with image_progress() as progress:
        found = predict(given["run"], **words, **options, progress=progress, note=print_note)
    for out in outs:
        write_predictions(out, given["run"], found)
    if given["json"]:
        print_json(for_json(found))
        return 0
    _print(found)
    print_unreadable(found.unreadable)
    for out in outs:
        print(out)
    return 0


def _print(found: "Predicted") -> None:
    from dualtemp.evaluation.prediction_files import NONE, rows_of, summary_of, suspects_of
    from dualtemp.file_names import valid_text
    from dualtemp.quantities import counted

    rows = rows_of(found)
    if found.classifier is not None:
        counts, sure = Counter[str](), Counter[str]()
        for row in rows:
            counts[row["prediction"]] += 1
            sure[row["prediction"]] += row["confidence"]
        lines = [
            (name, f"{counts[name]:,}", f"{sure[name] / counts[name]:.3f}")
            for name in (*map(valid_text, found.classifier.classes), NONE)
            if counts[name]
        ]
        title = f"{counted(len(rows), 'image')}, by a classifier that learned from {found.learned_from}"
        print_table(title, ("prediction", "images", "mean confidence"), lines)
        if m := found.measured:
            print(
                f"right {100 * m['accuracy']:.1f} % of {m['images']:,} labeled images that it did not learn from; "
                f"calibration error {100 * m['ece']:.1f} %; called none of these {100 * m['none_of_these']:.1f} %"
            )
    suspects = suspects_of(found)
    if found.wrong is not None:
        lines = [
            (f"{rows[i]['wrong_label_score']:.3f}", rows[i]["name"], rows[i]["label"] or "", rows[i]["suggested"] or "")
            for i in suspects[:SHOWN]
        ]
        title = f"{counted(len(suspects), 'suspected wrong label')} of {len(found.labeled):,}"
        print_table(title, ("score", "image", "label", "rather"), lines)
    for_clusters = summary_of(found)["clusters"]
    if for_clusters:
        lines = [
            (
                str(each["cluster"]),
                f"{each['images']:,}",
                each["examples"][0],
                ", ".join(f"{label} {count}" for label, count in list(each["labels"].items())[:3]),
            )
            for each in for_clusters
        ]
        print_table(counted(len(lines), "cluster"), ("", "images", "most typical", "labels"), lines)


COMMAND = Command(
    name="predict",
    about="Predict classes, find suspected wrong labels, group images.",
    details=DETAILS,
    place=(Group.USE, 13),
    add_arguments=add_arguments,
    run=run,
)
