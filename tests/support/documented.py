"""The pages of the documentation: their blocks of code, links and headings."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
AT_ROOT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


class Block(NamedTuple):
    """A block of code: where it begins, its language ("" if none is given), its lines joined."""

    page: Path
    line: int
    language: str
    text: str


def pages() -> list[Path]:
    """All pages, those at the root first."""
    return [*(ROOT / name for name in AT_ROOT), *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced and the indented blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        begin = at
        if opened := re.match(r"```(\w*)", lines[at]):
            at += 1
            while not lines[at].startswith("```"):
                at += 1
            yield Block(page, begin + 1, opened[1], "\n".join(lines[begin + 1 : at]) + "\n")
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            text = "\n".join(line[4:] for line in lines[begin:at]).rstrip() + "\n"
            yield Block(page, begin + 1, "python" if re.match(r"(import|from) \w", text) else "", text)
            continue
        at += 1


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?:^|\n)\n(?:    .*\n)+", "\n\n", text)


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The `dualtemp ...` commands of a page: where they stand, and their words after `dualtemp`.

    Within a sentence a command may be named without all that it needs: its words end with "...".
    """
    for block in blocks(page):
        if block.language in ("", "bash", "sh"):
            for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
                if found := re.match(r"(?:\$ |!)?(?:torchrun .* -m )?dualtemp (.*)", line):
                    yield f"{page.relative_to(ROOT)}:{block.line}: {line}", _words(found[1])
    for code in re.findall(r"`([^`\n]+)`", prose(page)):
        if found := re.match(r"(?:torchrun .* -m )?dualtemp ([a-z].*)", code.replace("\\|", "|")):
            yield f"{page.relative_to(ROOT)}: `{code}`", [*_words(found[1]), "..."]


def _words(line: str) -> list[str]:
    """The words of a command: what follows two spaces, or a hash, is an explanation."""
    return shlex.split(re.split(r"\s{2,}(?![-\\])|\s#", line.strip())[0])


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def links(page: Path) -> list[str]:
    """Where the links and pictures of a page lead."""
    return re.findall(r"\]\(([^)\s]+)(?:\s[^)]*)?\)", re.sub(r"`[^`\n]*`", "", prose(page)))
