"""`dualtemp judge`: compare runs without labels. Needs no torch until images are read."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_device, add_json, add_workers
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json, print_note, print_table
from dualtemp.machine import check_workers

DETAILS = """The judge measures 256 images and forecasts kNN accuracy. The level is vague, since it depends on classes
that the judge does not know. Of two runs on the same images it says which is better, and with what chance.
docs/judge.md says how often it is right."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs, on the same images")
    add_device(parser)
    add_workers(parser)
    add_json(parser, " instead of a table")


def run(given: dict[str, Any]) -> int:
    """Print the runs, the best forecast first, and which one to take."""
    check_workers(given["workers"])
    from dualtemp.evaluation.judge import chance_better
    from dualtemp.evaluation.judge_encoders import judge

    found = judge(given["runs"], device=given["device"], workers=given["workers"])
    same = len({each.images for each in found}) == 1
    chance = chance_better(found[0].found, found[1].found) if len(found) > 1 and same else None
    if given["json"]:
        rows = [
            {
                "run": str(each.path),
                "step": each.step,
                **each.measures,
                **each.found._asdict(),
                "over": each.over,
                "chance_above": each.gain,
                "best_step": each.best_step,
                "advice": each.advice,
            }
            for each in found
        ]
        print_json({"runs": rows, "chance_first_is_best": chance})
        return 0
    lines = [
        (
            str(each.path),
            f"{each.step:,}",
            f"{each.found.low:.0f} to {each.found.high:.0f} %",
            f"{each.found.score:+.3f}",
            each.advice,
        )
        for each in found
    ]
    print_table("kNN forecast without labels", ("run", "step", "kNN", "score", ""), lines)
    if not same:
        print_note("these runs were measured on different images: their forecasts do not compare")
    elif chance is not None:
        print(f"take {found[0].path}: better than {found[1].path} with chance {chance:.0%}")
    return 0


COMMAND = Command(
    name="judge",
    about="Compare runs without labels: which to take, whether to stop.",
    details=DETAILS,
    place=(Group.INSPECT, 13),
    add_arguments=add_arguments,
    run=run,
)
