"""`dualtemp export`: the encoder for use without dualtemp. Needs no torch until something is exported."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_encoder
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_note


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_encoder(parser)
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


def run(given: dict[str, Any]) -> int:
    """Export, and print what was written and how closely it reproduces the run's features."""
    from dualtemp.exporting.export import export, formats_in
    from dualtemp.exporting.files import FORMATS

    asked = given["format"] or ["safetensors"]
    folder = export(given["run"], asked, given["out"], normalise=given["normalise"], note=print_note)
    written = formats_in(folder)
    for name, entry in written.items():
        print(f"{name:<13} {', '.join(entry['files']):<30} features within {entry['difference']:.1g} of the run's")
    for name in (name for name in FORMATS if name not in written and "all" in ",".join(asked).split(",")):
        print(f"{name:<13} left out: this encoder cannot be had in it (`--format {name}` says why)")
    print(f"{folder}: preprocessing.json tells how images go in, README.md how to load it")
    return 0


COMMAND = Command(
    name="export",
    about="Write the encoder for timm, onnxruntime or torch.export, with a model card.",
    place=(Group.USE, 4),
    add_arguments=add_arguments,
    run=run,
)
