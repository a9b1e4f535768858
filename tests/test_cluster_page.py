"""The commands of docs/cluster.md: each is understood, and those that one machine without a cluster can run are run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from drawn_photos import draw_photos

from dualtemp.cli import Parser
from dualtemp.commands.lookup import find_command
from dualtemp.encoder.bank import bank_of_file, gather_rows

PAGE = (Path(__file__).parent.parent / "docs" / "cluster.md").read_text()
COMMANDS = [line.split("#")[0].strip() for line in PAGE.splitlines() if re.match(r"    (dualtemp|torchrun) ", line)]
(JOB,) = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
SMALL = "--epochs 1 --batch 8 --image-size 32 --backbone resnet_mini --workers 0 --device cpu"
GRID = """
data: digits
fixed: {epochs: 1, batch: 64, subset: 256, backbone: resnet_mini}
rows: {SimCo: {method: simco}}
seeds: 1
"""
# What is changed so that a command is small, and needs neither a cluster nor a GPU; None: not run here.
HERE: dict[str, list[tuple[str, str]] | None] = {
    "dualtemp data photos --to shards": [],
    "dualtemp train --data shards --out runs/first": [("$", f" {SMALL}")],
    "torchrun --nproc-per-node 4 -m dualtemp embed": [("-node 4", "-node 2"), ("$", " --workers 0 --device cpu")],
    "dualtemp embed runs/first --data shards --out features --parts 64 --on slurm": [
        ("--on slurm --slurm partition=gpu --device cuda", "--on local --jobs 1 --device cpu"),
        ("64", "2"),
        ("features", "by-engine"),
    ],
    "dualtemp embed runs/first --data shards --out features --share": [
        ("64", "1"),
        ("features", "by-array"),
        ("$", " --workers 0 --device cpu"),
    ],
    "dualtemp grid FILE.yaml --on local": [("$", " --jobs 1 --device cpu")],
    "dualtemp grid FILE.yaml --on slurm": None,  # tests/cluster/slurm_here.sh
    "dualtemp grid FILE.yaml --on ray": None,  # tests/cluster/ray_here.py
    "dualtemp reproduce T-reverse --seeds 5 --on slurm": None,
}


def change_of(command: str) -> list[tuple[str, str]] | None:
    (found,) = [change for begin, change in HERE.items() if command.startswith(begin)]
    return found


def shell(text: str, folder: Path, **more: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "dualtemp").write_text(f'#!/bin/sh\nexec {sys.executable} -m dualtemp "$@"\n')
    (folder / "bin" / "torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    for path in (folder / "bin").iterdir():
        path.chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **more}
    ended = subprocess.run(
        ["bash", "-euc", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"


def test_the_page_shows_commands_and_each_is_accounted_for() -> None:
    assert [sum(command.startswith(begin) for begin in HERE) for command in COMMANDS] == [1] * len(HERE)


@pytest.mark.parametrize("command", [*COMMANDS, JOB.replace("\\\n", " ").strip().splitlines()[-1]])
def test_flags_of_a_command_are_those_that_there_are(command: str) -> None:
    words = shlex.split(command)
    words = words[words.index("dualtemp") + 1 :]
    found = find_command(words[0])
    assert found is not None
    Parser(found).parse(words[1:])  # raises UserError for an unknown flag or choice


@pytest.mark.slow
def test_the_page_works_from_a_folder_to_features(tmp_path: Path) -> None:
    for number in range(2):
        draw_photos(tmp_path / "photos" / f"c{number}", 10, first=10 * number)
    (tmp_path / "FILE.yaml").write_text(GRID)
    for command in COMMANDS:
        change = change_of(command)
        if change is None:
            continue
        for one, other in change:
            command = re.sub(r"$", other, command, count=1) if one == "$" else command.replace(one, other)
        shell(command, tmp_path, SLURM_ARRAY_TASK_ID="0")
    alone, engine, array = (
        gather_rows(bank_of_file(tmp_path / name).rows) for name in ("features", "by-engine", "by-array")
    )
    assert len(alone.names) == 20
    assert alone.names == engine.names == array.names
    assert alone.features.numpy().tobytes() == engine.features.numpy().tobytes() == array.features.numpy().tobytes()
    assert list((tmp_path / "results").glob("*.json"))


@pytest.mark.slow
def test_the_job_of_several_nodes_runs_with_one(tmp_path: Path) -> None:
    """srun and scontrol are stood in for; torchrun, its rendezvous and the run are real."""
    draw_photos(tmp_path / "photos", 16)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text('#!/bin/sh\nshift && exec "$@"\n')  # after its one flag
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\necho localhost\n")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").write_text("")  # the interpreter is this one: see shell()
    job = JOB.replace("--nproc-per-node 4", "--nproc-per-node 2").replace("/shared/", "").replace("--batch 1024", SMALL)
    job = job.replace(":29500", ":0")
    slurm = {"NNODES": "1", "JOB_NODELIST": "localhost", "JOB_ID": "7", "CPUS_PER_TASK": "32"}
    shell(job, tmp_path, **{f"SLURM_{name}": value for name, value in slurm.items()})
    assert (tmp_path / "runs" / "large" / "backbone.safetensors").is_file()
