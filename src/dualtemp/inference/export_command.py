"""What `dualtemp export` does. Needs no torch until something is exported."""

import argparse
from pathlib import Path
from typing import Any


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp export`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--format",
        action="append",
        metavar="NAME",
        help="safetensors (default), timm, onnx, torch-export, or all; again or with commas for several",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where it goes (default: RUN/export)")
    parser.add_argument(
        "--normalise", action="store_true", help="onnx and torch-export take uint8 pixels and normalise them themselves"
    )


def run_export(given: dict[str, Any]) -> int:
    """Export, and say what was written and how exactly it gives the run's features."""
    from dualtemp.inference.export import export, formats_in

    folder = export(given["run"], given["format"] or "safetensors", given["out"], normalise=given["normalise"])
    for name, entry in formats_in(folder).items():
        print(f"{name:<13} {', '.join(entry['files']):<30} features within {entry['difference']:.1g} of the run's")
    print(f"{folder}: preprocessing.json tells how images go in, README.md how to load it")
    return 0
