"""A framework from a file of the user's own: trained, killed, resumed, listed, shown."""

import argparse
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_processes import OFTEN, PATIENCE, Commands, halting, kill_where_it_halts
from run_contents import different, everything

import dualtemp
from dualtemp.commands.train import add_arguments
from dualtemp.config import setting_names
from dualtemp.frameworks.registry import OF_TRAIN

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_framework.py"
PLUGIN = ("--plugin", EXAMPLE)
TINY = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "320", "--epochs", "2")
DECLARED = """
from pydantic import Field
from dualtemp.frameworks import Framework, FrameworkSettings, framework
@framework('mine')
class A(Framework):
    {}
    def {}(self): pass
"""
WHOLE = DECLARED.replace("{}", "{}\n    def heads(self): pass", 1).replace("def {}", "def forward")
MINE = (*TINY, "--method", "invariance", "--decorrelation", "0.02")


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60


def test_the_order_of_frameworks_does_not_depend_on_which_was_imported_first() -> None:
    program = "import dualtemp.frameworks.{}, dualtemp.frameworks as f; print(*f.frameworks())"
    found = {
        subprocess.run(
            [sys.executable, "-c", program.format(first)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for first in ("vicreg", "moco")
    }
    assert found == {"moco simmoco simco simclr byol simsiam supervised vicreg barlow_twins distil"}


def test_a_plugins_settings_are_flags_with_help(commands: Commands) -> None:
    ended = commands.run("train", *PLUGIN, "--help")
    assert ended.code == 0
    assert "--decorrelation" in ended.out
    assert "0.01 for invariance" in ended.out
    ended = commands.run("train", *PLUGIN, *MINE[:-1], "-1", "--out", "nowhere")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "decorrelation must be a number above 0" in ended.err


@pytest.mark.slow
def test_a_plugins_run_is_killed_resumed_listed_and_shown(commands: Commands, tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "killed"
    assert commands.run("train", *PLUGIN, *MINE, "--out", whole).code == 0
    third = halting(".step-*.part", 3)
    kill_where_it_halts(commands.start("train", *PLUGIN, *MINE, *OFTEN, "--out", path, first=third))

    refused = commands.run("resume", path)
    assert refused.code == 2, "no code is run because a run's folder names it"
    assert "--plugin" in refused.err
    assert commands.run("resume", path, *PLUGIN).code == 0
    assert different(everything(path), everything(whole)) == []
    assert "invariance" in commands.run("runs", tmp_path, *PLUGIN).out
    assert "decorrelation" in (path / "report.html").read_text()
    assert commands.run("report", path, whole, "--out", tmp_path / "both.html", *PLUGIN).code == 0
    ended = commands.run("explore", path, *PLUGIN)
    assert ended.code == 2
    assert "no anchors" in ended.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "line 1, fails: ZeroDivisionError"),
        ("x = = 1", "fails: SyntaxError"),
        ("from dualtemp.frameworks import framework\n@framework('simco')\nclass A: pass", "two frameworks are called"),
        ("from dualtemp.frameworks import framework\n@framework('mine')\nclass A: pass", "has no `Settings`"),
        (DECLARED.format("pass", "forward"), "has no `heads`"),
        (DECLARED.format("pass", "heads"), "has no `forward`"),
        (WHOLE.format("class Settings: pass"), "must be derived from dualtemp.frameworks.FrameworkSettings"),
        (WHOLE.format("class Settings(FrameworkSettings): rate: float = 1.0"), "needs a default and a description"),
        (
            WHOLE.format("class Settings(FrameworkSettings): threads: int = Field(1, description='Of it.')"),
            "has a setting 'threads', as `dualtemp train` has",
        ),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_line(text: str, said: str, commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(text)
    ended = commands.run("train", *TINY, "--plugin", tmp_path / "bad.py", "--out", tmp_path / "run")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert said in ended.err
    assert not (tmp_path / "run").exists()


def test_no_setting_may_be_called_like_what_train_has_beside_settings() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    of_the_function = set(inspect.signature(dualtemp.train).parameters) - {"values"}
    of_the_command = {action.dest for action in parser._actions} - set(setting_names())
    assert set(OF_TRAIN) >= of_the_function | of_the_command


def test_a_plugin_that_is_not_there_is_one_line(commands: Commands) -> None:
    for words in (("--plugin", "nowhere.py"), ("--plugin=nowhere.py",), ("--plugin",)):
        ended = commands.run("train", *words)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "--plugin" in ended.err


@pytest.mark.slow
def test_processes_that_are_started_load_the_plugin_too(commands: Commands, tmp_path: Path) -> None:
    ended = commands.run("train", *MINE, "--out", tmp_path / "run", env={"DUALTEMP_PLUGINS": str(EXAMPLE)})
    assert ended.code == 0, ended.err


GRID = """
import sys
from pathlib import Path
from paper.smoke import tiny_job
from dualtemp.engines.engine import Place
from dualtemp.engines.local import LocalEngine
from dualtemp.grids.carry_out import carry_out
from dualtemp.grids.results import Results


class Told:
    def moved(self, job, fraction):
        pass

    def ended(self, job, status, reason):
        print(status, reason)


if __name__ == "__main__":
    jobs = [tiny_job(seed, method="invariance", decorrelation=x) for x in (0.01, 0.02) for seed in (1, 2)]
    folder = Path(sys.argv[1])
    assert carry_out(jobs, LocalEngine([Place("cpu")] * 2), folder, Told()) == {"done": 4}
    results = [Results(folder).read(job) for job in jobs]
    assert {each["settings"]["decorrelation"] for each in results} == {0.01, 0.02}
    assert len({job.name for job in jobs}) == 4, "the plugin's own settings are in the key"
"""


@pytest.mark.slow
def test_a_plugins_runs_make_a_grid(tmp_path: Path) -> None:
    (tmp_path / "grid.py").write_text(GRID)
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "DUALTEMP_PLUGINS": str(EXAMPLE), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(tmp_path / "grid.py"), str(tmp_path / "results")]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
