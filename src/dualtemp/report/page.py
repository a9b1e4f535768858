"""What all pages share: templates, colors and writing files."""

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


def render(template: str, context: Mapping[str, Any]) -> str:
    """Render a template as HTML: one file, no network. Templates also get `css` (the shared colors) and `version`."""
    environment = _environment()
    css = environment.get_template("paper.css").render()
    return environment.get_template(template).render(css=css, version=__version__, **context)


def write_page(path: Path, page: str) -> Path:
    """Write a page atomically; file names on it need not be valid text."""
    write_output(path, page)
    return path


def link_to(path: Path, page: Path) -> str:
    """Return the relative address of a file for a page written to `page`, so that a folder can be moved as a whole."""
    address = os.path.relpath(path.resolve(), page.resolve().parent).replace(os.sep, "/")
    return quote(os.fsencode(address))  # names need not be valid text


@cache
def _environment() -> Environment:
    """Build the environment once: a run writes its page every epoch, and reading templates takes most of that time."""
    environment = Environment(loader=FunctionLoader(_template), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["signed"] = lambda value, places=2: f"{value:+.{places}f}".replace("-", MINUS)
    environment.filters["code"] = _with_code
    return environment


def _with_code(text: str) -> Markup:
    """Set text between backticks as code."""
    pieces = [str(escape(piece)) for piece in text.split("`")]
    return Markup("".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces)))


def _template(name: str) -> str | None:
    found = files("dualtemp.report").joinpath("templates", name)
    return found.read_text(encoding="utf-8") if found.is_file() else None
