"""The command line. Each command loads its room when it runs: `--help` never imports torch."""

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, get_args

from dualtemp import __version__
from dualtemp.errors import UserError
from dualtemp.machine import use_threads
from dualtemp.standard_streams import standard_streams

OWN_IMAGES = """Defaults are the paper's. For a folder or an .npz file of your own, image size, batch, epochs, backbone
and lr that you do not give are chosen from the images and the device, and said before training starts."""
ABOUT = "Contrastive learning with two temperatures, without many negative samples."


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, with the nearest valid flag."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            f"dualtemp {command}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise what the parser has to say."""
        raise UserError(f"{message}; see {self.prog} --help")

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Parse all words."""
        known, unknown = self.parse_known_args(words)
        if unknown:
            raise UserError(self._unknown(unknown[0]))
        return vars(known)

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is not expected here; see {self.prog} --help"
        flag = word.partition("=")[0]
        near = difflib.get_close_matches(flag, self._option_string_actions, n=1, cutoff=0.5)
        hint = f": did you mean {near[0]}?" if near else f"; see {self.prog} --help"
        return f"no setting is called {flag}{hint}"


def data(words: Sequence[str]) -> int:
    """List the sets and what is cached; check one source; or show what the network will see of it."""
    parser = Parser("data", data.__doc__ or "")
    parser.add_argument("source", nargs="?", default="", metavar="SET | FOLDER | FILE.npz", help="what to check")
    parser.add_argument("--show", action="store_true", help="write a contact sheet of some images and their two views")
    parser.add_argument("--out", type=Path, metavar="FILE.png", help="where it goes; by default NAME-views.png, here")
    parser.add_argument("--recipe", help="the augmentation of the views (default: paper)")
    parser.add_argument("--no-labels", action="store_true", help="leave labels and class folders aside")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_threads(parser)
    given = parser.parse(words)
    use_threads(given["threads"])
    from dualtemp.commands import data as command

    if not given["source"]:
        if given["show"]:
            raise UserError("--show needs a set, a folder or a file: dualtemp data cifar10 --show")
        command.list_sets(given["json"])
        return 0
    for name in ("out", "recipe"):
        if given[name] is not None and not given["show"]:
            raise UserError(f"--{name} is about the contact sheet: give --show too, or leave it out")
    if given["show"]:
        command.show(given["source"], given["out"], given["recipe"] or "paper", labels=not given["no_labels"])
        return 0
    return command.print_check(given["source"], given["json"], labels=not given["no_labels"])


def train(words: Sequence[str]) -> int:
    """Train an encoder: dualtemp train --data cifar100 --method simco --out runs/simco."""
    from dualtemp.config import setting_names

    parser = Parser("train", f"{train.__doc__}\n\n{OWN_IMAGES}")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the run's folder; must be new")
    parser.add_argument("--config", type=Path, metavar="FILE.yaml", help="settings; flags override them")
    _add_how(parser)
    for name, field in setting_names().items():
        flag, text = f"--{name.replace('_', '-')}", _help(name, field)
        if "bool" in str(field.annotation):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        else:
            parser.add_argument(flag, default=argparse.SUPPRESS, metavar=_metavar(name, field.annotation), help=text)
    given = parser.parse(words)
    from dualtemp import api

    api.train(**given)
    return 0


def resume(words: Sequence[str]) -> int:
    """Go on with a run from its newest checkpoint: dualtemp resume runs/simco."""
    parser = Parser("resume", resume.__doc__ or "")
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--epochs", type=int, metavar="N", help="go on to so many epochs, also of a finished run")
    _add_how(parser)
    given = parser.parse(words)
    from dualtemp import api

    api.resume(**given)
    return 0


def demo(words: Sequence[str]) -> int:
    """Train SimCo on 10,000 CIFAR-10 images in minutes, and see what it has learned."""
    parser = Parser("demo", demo.__doc__ or "")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="default: runs/demo")
    parser.add_argument("--data", default="cifar10", help="a labelled set (default: cifar10; digits if there is none)")
    parser.add_argument("--epochs", type=int, default=None, metavar="N", help="passes over the images")
    _add_threads(parser)
    given = parser.parse(words)
    use_threads(given["threads"])
    from dualtemp.demo import demo as run

    run(given["out"], given["data"], given["epochs"])
    return 0


def doctor(words: Sequence[str]) -> int:
    """Tell versions, devices, threads and the data cache, and whether a small step runs."""
    Parser("doctor", doctor.__doc__ or "").parse(words)
    from dualtemp.doctor import doctor as examine

    return examine()


def _of(room: str, name: str, about: str) -> Callable[[Sequence[str]], int]:
    """A command that lives in `dualtemp.ROOM` as add_NAME_arguments(parser) and run_NAME(given) -> exit code.

    --threads is added here, but for commands that compute nothing, or in other processes.
    """
    computes = name not in ("runs", "paper", "reproduce")

    def run(words: Sequence[str]) -> int:
        commands, word = import_module(f"dualtemp.{room}"), name.replace("-", "_")
        parser = Parser(name, about)
        getattr(commands, f"add_{word}_arguments")(parser)
        if computes:
            _add_threads(parser)
        given = parser.parse(words)
        if computes:
            use_threads(given.pop("threads"))
        return getattr(commands, f"run_{word}")(given)

    run.__doc__ = about
    return run


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": train,
    "resume": resume,
    "data": data,
    "runs": _of("commands.report", "runs", "List runs: method, data, temperatures, status, probe and kNN."),
    "report": _of(
        "commands.report", "report", "Write the page of a run anew, or one page that puts several side by side."
    ),
    "explore": _of(
        "commands.explore", "explore", "Write a page with sliders for tau_alpha, tau_beta and the dictionary."
    ),
    "analyze": _of("commands.analyze", "analyze", "Look into a run: entropy, similarity, dictionary or neighbours."),
    "evaluate": _of("commands.evaluate", "evaluate", "Measure a run: kNN, linear probe, few labels, fine-tuning."),
    "embed": _of("commands.encoder", "embed", "Write the features of a folder's images: parquet, npz or csv."),
    "search": _of("commands.encoder", "search", "Show the images nearest to one."),
    "near-duplicates": _of("commands.encoder", "near-duplicates", "List pairs of almost equal images."),
    "export": _of(
        "commands.export",
        "export",
        "Write the encoder for timm, onnxruntime or torch.export, with a model card.",
    ),
    "paper": _of(
        "commands.paper",
        "paper",
        "List the paper's tables and figures: runs, what is done, expected time; or their page.",
    ),
    "reproduce": _of(
        "commands.paper", "reproduce", "Run what a table or figure still lacks: dualtemp reproduce T-reverse --seeds 3."
    ),
    "demo": demo,
    "doctor": doctor,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 for a user's mistake, 130 when interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with standard_streams() as streams:
        try:
            code = _run(words)
            sys.stdout.flush()
        except UserError as error:
            code = _refuse(str(error))
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            streams.out.discard()
            code = 0
        except OSError as error:  # of a file: no such name possible, not readable, a disk that is full or broken
            where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
            code = _refuse(f"{where}{error.strerror or error}")
        except KeyboardInterrupt as error:
            print(f"dualtemp: {str(error) or 'interrupted'}", file=sys.stderr)
            code = 130
        except SystemExit as error:  # --help of a command
            code = int(error.code or 0)
        if code == 0 and streams.out.trouble is not None:
            code = _refuse(f"standard output could not be written ({streams.out.trouble.strerror}): make room")
    return code


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        print(__version__)
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    return _command(words[0])(_without_plugins(words[1:]))


def _refuse(why: str) -> int:
    if os.environ.get("RANK", "0") == "0":  # of several processes, one speaks
        print(f"dualtemp: {' '.join(why.split())}", file=sys.stderr)
    return 2


def _command(word: str) -> Callable[[Sequence[str]], int]:
    if word in COMMANDS:
        return COMMANDS[word]
    near = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UserError(f"no command '{word}': {hint}Commands: {', '.join(COMMANDS)}; see dualtemp --help")


def _without_plugins(words: list[str]) -> list[str]:
    """Load the files of `--plugin FILE.py`, which any command takes; returns the other words."""
    rest = []
    waiting = iter(words)
    for word in waiting:
        flag, given, value = word.partition("=")
        if flag != "--plugin":
            rest.append(word)
            continue
        from dualtemp.frameworks.registry import add_plugin

        value = value if given else next(waiting, "")
        if not value:
            raise UserError("--plugin needs a Python file that declares frameworks: --plugin my_framework.py")
        add_plugin(value)
    return rest


def _overview() -> str:
    rows = [f"  {name:<16} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: dualtemp COMMAND ...\n\n{ABOUT}\n",
            *rows,
            "\n`dualtemp COMMAND --help` tells a command's settings; any takes --plugin FILE.py, your own frameworks.",
        ]
    )


def _add_how(parser: Parser) -> None:
    how = parser.add_argument_group("how it is computed")
    how.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps (default: the best there is)")
    how.add_argument("--workers", type=int, metavar="N", help="processes that read photographs")
    _add_threads(how)
    how.add_argument("--checkpoint-minutes", type=float, default=5.0, metavar="X", help="default: 5, and every epoch")
    how.add_argument("--quiet", action="store_true", help="say nothing but what is wrong")
    how.add_argument(
        "--log", action="append", default=[], metavar="tensorboard|wandb", help="log figures there too; repeatable"
    )
    how.add_argument("--no-page", dest="page", action="store_false", help="leave report.html and its pictures out")


def _add_threads(parser: Any) -> None:
    parser.add_argument("--threads", type=int, metavar="N", help="of the CPU, for one process")


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
    from dualtemp.frameworks import frameworks

    text = field.description.rstrip(".")
    text = text if text.startswith(("MoCo", "BYOL")) else text[0].lower() + text[1:]
    of_frameworks = {method: kind.Settings.model_fields for method, kind in frameworks().items()}
    owners = {method: fields[name].default for method, fields in of_frameworks.items() if name in fields}
    if owners:
        defaults = {str(value): [m for m in owners if str(owners[m]) == str(value)] for value in owners.values()}
        default = ", ".join(f"{value} for {' '.join(methods)}" for value, methods in defaults.items())
        return f"{text} ({default})".replace("%", "%%").replace("None", "none")
    if field.is_required() or field.default is None:
        return text.replace("%", "%%")
    return f"{text} (default: {field.default})".replace("%", "%%")
