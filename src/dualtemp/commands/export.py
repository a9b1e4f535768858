"""What `dualtemp export` does. Needs no torch until something is exported."""

import argparse
import sys
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
    from dualtemp.exporting.export import export, formats_in
    from dualtemp.exporting.files import FORMATS

    asked = given["format"] or ["safetensors"]
    folder = export(given["run"], asked, given["out"], normalise=given["normalise"], note=_note)
    written = formats_in(folder)
    for name, entry in written.items():
        print(f"{name:<13} {', '.join(entry['files']):<30} features within {entry['difference']:.1g} of the run's")
    for name in (name for name in FORMATS if name not in written and "all" in ",".join(asked).split(",")):
        print(f"{name:<13} left out: this encoder cannot be had in it (`--format {name}` says why)")
    print(f"{folder}: preprocessing.json tells how images go in, README.md how to load it")
    return 0


def _note(text: str) -> None:
    print(f"dualtemp: {text}", file=sys.stderr, flush=True)
