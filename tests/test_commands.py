"""A command is one file: found by its name, listed by its place, loaded alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_processes import PATIENCE

from dualtemp import commands
from dualtemp.cli import main
from dualtemp.commands.lookup import all_commands, find_command

GREET = """
from dualtemp.commands.command import Command, Group

def add_arguments(parser):
    parser.add_argument("--name", default="you")

def run(given):
    if given["name"] == "nobody":
        raise SystemExit("there is nobody")
    print(f"hello, {given['name']}")
    return 3

COMMAND = Command("greet-me", "Say hello.", run, add_arguments, (Group.TRAIN, 99), takes_threads=False)
"""


@pytest.fixture
def greet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greet_me.py").write_text(GREET)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "dualtemp.commands.greet_me", raising=False)


@pytest.mark.usefixtures("greet")
def test_a_new_file_is_a_new_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet-me", "--name", "all"]) == 3
    assert capsys.readouterr().out == "hello, all\n"
    assert main(["greet-me", "--name", "nobody"]) == 2
    assert capsys.readouterr().err == "dualtemp: there is nobody\n"
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if "greet-me" in line)
    assert lines[at].endswith("Say hello.")
    assert lines[at - 1].split()[0] == "grid"  # the last of its group
    assert main(["greet-mee"]) == 2
    assert "did you mean 'greet-me'?" in capsys.readouterr().err


def test_every_command_is_found_under_its_own_name_only() -> None:
    for command in all_commands():
        assert find_command(command.name) is command
    for word in ("lookup", "command", "arguments", "near_duplicates", "__init__", "", "../cli", "Train"):
        assert find_command(word) is None


def test_no_two_commands_have_one_place() -> None:
    places = [command.place for command in all_commands()]
    assert len(set(places)) == len(places)


def imported(*words: str) -> set[str]:
    program = f"import sys; from dualtemp.cli import main; main({list(words)}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_a_command_loads_no_other() -> None:
    modules = {f"dualtemp.commands.{command.name.replace('-', '_')}" for command in all_commands()}
    assert imported("runs", "--help") & modules == {"dualtemp.commands.runs"}


def test_the_overview_loads_nothing_heavy() -> None:
    assert not imported("--help") & {"torch", "numpy", "rich", "pydantic", "yaml", "jinja2", "dataclasses", "json"}


def test_the_python_functions_are_called_like_commands() -> None:
    import dualtemp
    from dualtemp import api

    words = {command.name.replace("-", "_") for command in all_commands()}
    assert set(api.__all__) <= words
    assert all(getattr(dualtemp, name) is getattr(api, name) for name in api.__all__)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (
            ["select", "x.npz", "--simulate", "--out", "names.txt"],
            "names.txt: give --out a file's name that ends with .csv",
        ),
        (["runs", ".", "--plugin", "gives_up.py"], "gives_up.py, line 2, fails: SystemExit: no license"),
        (["runs", ".", "--plugin", "~nobody-of-this-name/a.py"], "cannot be read"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gives_up.py").write_text("import sys\nsys.exit('no license')\n")
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
