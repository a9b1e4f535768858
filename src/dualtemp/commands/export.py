"""`dualtemp export`: write the encoder for use without dualtemp. Needs no torch until something is exported."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_encoder, add_former_switch
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_note


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from dualtemp.exporting.lookup import export_formats

    add_encoder(parser)
    parser.add_argument(
        "--format",
        action="append",
        metavar="NAME",
        help=f"{', '.join(export_formats())}, or all but int8 and web (default: safetensors); repeat it, or use commas",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where it goes (default: RUN/export)")
    parser.add_argument(
        "--normalize",
        action="store_true",
        help="let graphs (onnx, onnx-int8, torch-export) take uint8 pixels and normalize them",
    )
    parser.add_argument(
        "--data",
        metavar="FOLDER|SET|FILE.npz",
        help="images that calibrate onnx-int8, and on which it is compared (default: the run's own)",
    )
    parser.add_argument(
        "--classifier",
        metavar="probe|fine-tuned",
        help="add the classifier kept by `evaluate` to graphs (onnx, onnx-web); fine-tuned: export that network",
    )
    add_former_switch(parser, "--normalise", "--normalize")


def run(given: dict[str, Any]) -> int:
    """Export, and print the files written and how closely they reproduce the run's features."""
    from dualtemp.exporting.export import export, formats_in
    from dualtemp.exporting.lookup import export_formats

    asked = given["format"] or ["safetensors"]
    how = {name: given[name] for name in ("normalize", "data", "classifier")}
    folder = export(given["run"], asked, given["out"], **how, note=print_note)
    written = formats_in(folder)
    for name, entry in written.items():
        print(f"{name:<13} {', '.join(entry['files']):<30} {_closeness(entry)}")
    everything = [name for name, each in export_formats().items() if each.in_all]
    for name in (name for name in everything if name not in written and "all" in ",".join(asked).split(",")):
        print(f"{name:<13} left out: this encoder cannot be exported in it (`--format {name}` says why)")
    print(f"{folder}: preprocessing.json says how to prepare images, README.md how to load the encoder")
    return 0


def _closeness(entry: dict[str, Any]) -> str:
    if "cosine" not in entry:
        return f"features within {entry['difference']:.1g} of the run's"
    neighbors = f"{entry['same_neighbor']:.0%} of {entry['compared_on']} images keep their nearest neighbor"
    return f"features at a mean cosine of {entry['cosine']:.4f} with the run's; {neighbors}"


COMMAND = Command(
    name="export",
    about="Write the encoder for timm, onnxruntime or torch.export, with a model card.",
    place=(Group.USE, 4),
    add_arguments=add_arguments,
    run=run,
)
