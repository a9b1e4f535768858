"""`dualtemp studio`: look at images, choose, label and train, on a page of this computer."""

import argparse
import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import SOURCE, add_device
from dualtemp.commands.command import Command, Group
from dualtemp.errors import UserError

PORT = 8765


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "what",
        metavar="FOLDER|RUN|EMBEDDINGS",
        help="images (a folder, a set, an .npz file), a run's folder, or a file of `dualtemp embed`",
    )
    parser.add_argument("--data", metavar=SOURCE, help="images of a run, if not its own; where those of EMBEDDINGS are")
    parser.add_argument(
        "--encoder", metavar="RUN|START", help="the encoder to use (default: the run, else the frozen imagenet)"
    )
    parser.add_argument("--columns", type=Path, metavar="FILE", help="CSV or Parquet: image names, columns to color by")
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE.csv",
        help="labels and tags (default: SOURCE.labels.csv beside the images)",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="FOLDER",
        help="for class folders (default: SOURCE.export beside the images)",
    )
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="where runs are, and new ones go (default: runs)")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default: {PORT}; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this computer alone")
    parser.add_argument("--no-browser", dest="browser", action="store_false", help="print the address, open nothing")
    add_device(parser)


def run(given: dict[str, Any]) -> int:
    """Open the images and serve the page until Ctrl-C."""
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise UserError("the studio needs packages that are not installed: pip install 'dualtemp[studio]'")
    from dualtemp.studio.guard import is_wildcard, new_token
    from dualtemp.studio.label_file import LabelFile
    from dualtemp.studio.opening import open_for_studio
    from dualtemp.studio.server import Server, build_app, open_socket
    from dualtemp.studio.workspace import Places, Workspace

    if not 0 <= given["port"] < 65536:
        raise UserError(f"--port is a number from 0 to 65535, got {given['port']}")
    opening = open_for_studio(given["what"], given["data"], given["encoder"], given["device"])
    beside = _beside(opening.source)
    labels = given["labels"] or beside.with_name(f"{beside.name}.labels.csv")
    LabelFile(labels, ())  # a damaged one is refused before anything is computed
    places = Places(
        labels,
        given["export"] or beside.with_name(f"{beside.name}.export"),
        given["runs"] or _runs(Path(given["what"])),
        given["columns"],
    )
    with contextlib.ExitStack() as held:
        _hold(labels, held)
        sock = held.enter_context(open_socket(given["host"], given["port"]))
        port, token = sock.getsockname()[1], new_token()
        workspace = Workspace(opening, places, given["device"])
        server = Server(workspace, build_app(workspace, token, given["host"], port))
        everywhere = is_wildcard(given["host"])
        host = "127.0.0.1" if everywhere else f"[{given['host']}]" if ":" in given["host"] else given["host"]
        address = f"http://{host}:{port}/?token={token}"
        elsewhere = "Elsewhere, put this computer's address in place of 127.0.0.1.\n" if everywhere else ""
        print(
            f"The studio of {opening.title} is at\n  {address}\n{elsewhere}Labels go to {labels}. Ctrl-C ends it.",
            flush=True,
        )
        if given["browser"]:
            import webbrowser

            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again, once all is closed
            server.run(sockets=[sock])
    return 0


def _beside(source: str) -> Path:
    """The path beside which the studio puts its files: that of the images, or a name in the current folder."""
    path = Path(source)
    return path.resolve() if path.exists() else Path(path.name or "images").resolve()


def _runs(what: Path) -> Path:
    return what.resolve().parent if (what / "config.yaml").is_file() else Path("runs").resolve()


def _hold(labels: Path, held: contextlib.ExitStack) -> None:
    """Lock the label file, so that no other studio writes it."""
    from dualtemp.errors import writing
    from dualtemp.file_lock import Busy, locked

    with writing(labels, "give another --labels"):
        labels.parent.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(locked(labels.with_name(f".{labels.name}.lock"), what=labels, remove=True))
        except Busy:
            raise UserError(f"another studio writes {labels}: use that one, or give another --labels") from None


COMMAND = Command(
    name="studio",
    about="Look at images, choose, label and train, in the browser.",
    place=(Group.USE, 20),
    add_arguments=add_arguments,
    run=run,
)
