"""The pages of the documentation: links lead somewhere, every page is reached, commands and programs are real."""

import ast
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from documented import DOCS, ROOT, Block, blocks, commands, headings, links, pages

from dualtemp.cli import Parser
from dualtemp.commands.lookup import find_command
from dualtemp.errors import UserError

BUILT = "mkdocs.yml"


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{relative(page)} links to {link}"
        if anchor:
            assert anchor in headings(file), f"{relative(page)} links to {link}"


def in_site() -> set[Path]:
    text = (ROOT / BUILT).read_text()
    named = re.findall(r"([\w\-/]+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)
    return {DOCS / name for name in named if (DOCS / name).exists()}


def test_every_page_is_in_the_navigation_or_linked_from_one_that_is() -> None:
    reached = in_site()
    assert len(reached) > 25
    for page in list(reached):
        reached |= {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
    assert [relative(page) for page in pages() if DOCS in page.parents and page not in reached] == []


# Words that stand for something else, of which a parser knows nothing.
PLACEHOLDER = re.compile(r"\.\.\.|\[.*|.*\]|\|")


@cache
def parser_of(name: str, lenient: bool) -> Parser:
    command = find_command(name)
    assert command is not None, f"no command {name}"
    parser = Parser(command)
    if lenient:
        for action in parser._actions:
            action.required = False
    return parser


def parse(words: list[str]) -> None:
    """Parse a command as the command line does, without running it. `...` stands for any flags."""
    if "--help" in words or words[0] in ("--version", "COMMAND", "..."):
        return
    left_out = any(PLACEHOLDER.fullmatch(word) for word in words)
    rest = [word for word in words[1:] if not PLACEHOLDER.fullmatch(word)]
    if "--plugin" in rest:  # its settings are not known here
        at = rest.index("--plugin")
        del rest[at : at + 2]
        left_out = True
    try:
        parser_of(words[0], left_out).parse(rest)
    except UserError as error:
        if not left_out or "no setting is called" in str(error):
            raise


DECLARED_BY_A_PLUGIN = {"--decorrelation"}


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_every_command_is_one_that_the_command_line_takes(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return
    for where, words in commands(page):
        try:
            parse([word for word in words if word not in DECLARED_BY_A_PLUGIN])
        except UserError as error:
            pytest.fail(f"{where}\n{words}\n{error}")


def test_the_parser_of_this_test_refuses_what_the_command_line_refuses() -> None:
    for words in (["train", "--out"], ["serch", "a"], ["search", "--no-such"], ["runs", "--sort=x", "--what", "..."]):
        with pytest.raises((UserError, AssertionError)):
            parse(words)


def python_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page) if block.language == "python"]


def named(block: Block) -> str:
    return f"{relative(block.page)}:{block.line}"


@pytest.mark.parametrize("block", python_blocks(), ids=named)
def test_python_compiles_and_imports_what_there_is(block: Block) -> None:
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dualtemp":
            module = __import__(node.module, fromlist=["x"])
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module}.{alias.name}"


def given_by_the_reader() -> dict[str, Any]:
    """What the blocks take from the reader: encoders, a batch in two views, labels, which images these are."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16))
    view1, view2 = torch.randn(2, 8, 3, 4, 4).unbind()
    q, k = torch.randn(2, 8, 16).unbind()
    labels = torch.arange(8) // 2
    return {
        "torch": torch,
        "encoder": network,
        "projector": torch.nn.Linear(16, 16),
        "image_encoder": network,
        "text_encoder": network,
        "model": network,
        **{"view1": view1, "view2": view2, "images": view1, "texts": view2},
        **{"q": q, "k": k, "image": q, "text": k, "index": torch.arange(8), "labels": labels, "ids": labels},
        "image_ids": labels,
    }


# Blocks that need neither a download nor a run, and take less than a second each. Views are given, embeddings are where
# `view1` is one.
CHEAP = ("README.md", "five-minutes.md", "losses.md", "pairs.md", "scalar-times-vector.md", "which-loss.md")
RUN = [block for block in python_blocks() if block.page.name in CHEAP]


@pytest.mark.parametrize("block", RUN, ids=named)
def test_python_runs(block: Block) -> None:
    given = given_by_the_reader()
    if "encoder(" not in block.text:
        given |= {"view1": given["q"], "view2": given["k"]}
    exec(compile(block.text, named(block), "exec"), given)


def test_grids_that_pages_show_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dualtemp.grids.declaration import load_grid

    shown = [
        block
        for page in pages()
        for block in blocks(page)
        if block.language == "yaml" and {"rows", "columns"} & set(yaml.safe_load(block.text))
    ]
    assert len(shown) >= 2
    monkeypatch.chdir(tmp_path)
    os.mkdir("photos")
    for number, block in enumerate(shown):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block.text)
        assert load_grid(file).make_plan().runs
