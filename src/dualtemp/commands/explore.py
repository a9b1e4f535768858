"""What `dualtemp explore` does."""

import argparse
from pathlib import Path
from typing import Any


def add_explore_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp explore`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--data", metavar="SET | FOLDER | FILE.npz", help="images to look at (default: the run's training images)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.html", help="where the page goes (default: RUN/explore.html)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps (default: the best there is)")


def run_explore(given: dict[str, Any]) -> int:
    """Write the page and tell where it is."""
    from dualtemp.analysis.trained_run import trained_run
    from dualtemp.device import open_device
    from dualtemp.report.explorer import write_explorer

    run = trained_run(given["run"], open_device(given["device"]), given["data"])
    print(write_explorer(run, given["out"] or given["run"] / "explore.html"))
    return 0
