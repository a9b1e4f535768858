"""Pieces that the tests of running share."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualtemp.grids.plan import PlannedRun, run_id
from dualtemp.grids.results import DataFacts, Job, make_job, read_data_facts

TINY = {"data": "digits", "method": "simco", "backbone": "resnet_mini", "epochs": 1, "batch": 64, "subset": 128}
DIVERGING = {"lr": 1e6, "weight_decay": 1e10, "warmup_epochs": 0, "epochs": 4}
PROGRAM = """
import argparse, sys
from dualtemp.commands.reproduce import COMMAND
parser = argparse.ArgumentParser()
COMMAND.add_arguments(parser)
sys.exit(COMMAND.run(vars(parser.parse_args(sys.argv[1:]))))
"""


def tiny_job(seed: int = 1, measured: tuple[tuple[str, str], ...] = (), **changes: Any) -> Job:
    values = {**TINY, **changes}
    return make_job(PlannedRun(run_id(values), values, measured), seed, digits())


def digits() -> DataFacts:
    return read_data_facts("digits")


def reproduce(words: Sequence[str], results: Path) -> subprocess.Popen[str]:
    """`dualtemp reproduce WORDS` in a process of its own, on one core."""
    command = [sys.executable, "-c", PROGRAM, *words, "--results", str(results)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_stay_on_one_core
    )


def _stay_on_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
