"""What all pages share: templates, colours, and that a page is written whole."""

import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader
from markupsafe import Markup, escape

from dualtemp import __version__
from dualtemp.atomic_write import write_output

MINUS = "\N{MINUS SIGN}"


def rendered(template: str, context: Mapping[str, Any]) -> str:
    """A page as HTML: one file, no network. Templates find `css` (the shared colours) and `version` too."""
    environment = _environment()
    css = environment.get_template("paper.css").render()
    return environment.get_template(template).render(css=css, version=__version__, **context)


def write_page(path: Path, page: str) -> Path:
    """Write a page whole; names of files on it need not be valid text."""
    write_output(path, page.encode(errors="backslashreplace"))
    return path


def link_to(path: Path, page: Path) -> str:
    """The address of a file for a page that is written to `page`: relative, so that a folder can be moved whole."""
    return quote(os.path.relpath(path.resolve(), page.resolve().parent).replace(os.sep, "/"))


@cache
def _environment() -> Environment:
    """Kept: a run writes its page every epoch, and reading the templates takes most of the time."""
    environment = Environment(loader=FunctionLoader(_template), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["signed"] = lambda value, places=2: f"{value:+.{places}f}".replace("-", MINUS)
    environment.filters["code"] = _with_code
    return environment


def _with_code(text: str) -> Markup:
    """Text whose `commands` are set as code."""
    pieces = [str(escape(piece)) for piece in text.split("`")]
    return Markup("".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces)))


def _template(name: str) -> str | None:
    found = files("dualtemp.report").joinpath("templates", name)
    return found.read_text(encoding="utf-8") if found.is_file() else None
