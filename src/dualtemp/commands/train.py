"""`dualtemp train`: every setting of a run is a flag."""

import argparse
from pathlib import Path
from typing import Any, get_args

from dualtemp.commands.arguments import add_training_options
from dualtemp.commands.command import Command, Group

OWN_IMAGES = """Defaults are the paper's. For a folder or an .npz file of your own, image size, batch, epochs, backbone
and lr are chosen to suit the images and the device unless you give them, and printed before training starts; for
photographs, training begins from a pretrained start if one is available (--init none: from scratch)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags: the run's folder, execution options, and all settings."""
    from dualtemp.config import setting_names

    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the run's folder; must be new")
    parser.add_argument("--config", type=Path, metavar="FILE.yaml", help="settings; flags override them")
    add_training_options(parser)
    for name, field in setting_names().items():
        flag, text = f"--{name.replace('_', '-')}", _help(name, field)
        if name == "labels":
            parser.add_argument(
                flag, action=_Labels, nargs="?", default=argparse.SUPPRESS, help=text, metavar="FILE.csv"
            )
        elif "bool" in str(field.annotation):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        else:
            parser.add_argument(flag, default=argparse.SUPPRESS, metavar=_metavar(name, field.annotation), help=text)


def run(given: dict[str, Any]) -> int:
    """Train."""
    from dualtemp import api

    api.train(**given)
    return 0


class _Labels(argparse.Action):
    """--labels uses labels, --labels FILE.csv uses those of a file, --no-labels ignores them."""

    def __init__(self, option_strings: list[str], **given: Any) -> None:
        super().__init__([*option_strings, "--no-labels"], **given)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        uses = option_string != "--no-labels"
        if not uses and values is not None:
            parser.error(f"--no-labels takes no value, got {values!r}")
        namespace.labels = uses
        if values is not None:
            namespace.labels_from = values


def _metavar(name: str, annotation: Any) -> str:
    """The choices of a setting, or what kind of value it takes."""
    if name == "method":
        from dualtemp.frameworks import frameworks

        return "|".join(frameworks())
    words = [word for part in (annotation, *get_args(annotation)) for word in get_args(part) if isinstance(word, str)]
    if words == ["auto"]:
        return "N|auto"
    if words and float not in get_args(annotation):
        return "|".join(dict.fromkeys(words))
    return {str: "NAME", int: "N"}.get(annotation, "N" if int in get_args(annotation) else "X")


def _help(name: str, field: Any) -> str:
    """A setting's description with its default, or with the default of each framework that has it."""
    from dualtemp.frameworks import frameworks

    text = field.description.rstrip(".")
    text = text if text.startswith(("MoCo", "BYOL", "CSV")) else text[0].lower() + text[1:]
    of_frameworks = {method: kind.Settings.model_fields for method, kind in frameworks().items()}
    owners = {method: fields[name].default for method, fields in of_frameworks.items() if name in fields}
    if owners:
        defaults = {str(value): [m for m in owners if str(owners[m]) == str(value)] for value in owners.values()}
        default = ", ".join(f"{value} for {' '.join(methods)}" for value, methods in defaults.items())
        return f"{text} ({default})".replace("%", "%%").replace("None", "none")
    if field.is_required() or field.default is None:
        return text.replace("%", "%%")
    return f"{text} (default: {field.default})".replace("%", "%%")


COMMAND = Command(
    name="train",
    about="Train an encoder: dualtemp train --data cifar100 --method simco --out runs/simco.",
    details=OWN_IMAGES,
    place=(Group.TRAIN, 1),
    add_arguments=add_arguments,
    run=run,
    takes_threads=False,
)
