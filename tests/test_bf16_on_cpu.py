"""A CPU that announces instructions and does not allow them: told from a child's death, remembered, capped or refused.

The deadly step is a real program that dies of SIGILL, as a bfloat16 product does on such a host.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_processes import PATIENCE
from made_runs import made_run

from dualtemp.bf16_on_cpu import CAP, Bf16, bf16_on_cpu
from dualtemp.cli import main

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
DIES_UNLESS_CAPPED = (
    f"import os, signal; os.environ.get('{CAP[0]}') == '{CAP[1]}' or os.kill(os.getpid(), signal.SIGILL)"
)
SAID = "a step in bfloat16 ended with SIGILL"
TRAIN = "data='digits', backbone='resnet_mini', batch=64, subset=64, epochs=1, amp='bf16', device='cpu', page=False"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory of its own, as on a host that was never asked."""
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv(CAP[0], raising=False)
    return tmp_path / "cache"


def program(text: str, mark: Path | None = None) -> tuple[str, ...]:
    """A command that leaves a mark each time that it runs."""
    note = "" if mark is None else f"open({str(mark)!r}, 'a').write('x');"
    return (sys.executable, "-S", "-c", note + text)


@pytest.mark.parametrize(
    ("text", "expected", "runs"),
    [
        ("pass", Bf16("works"), 1),
        (DIES_UNLESS_CAPPED, Bf16("works capped", SAID), 2),
        (DIES, Bf16("fails", SAID), 2),
    ],
)
def test_a_host_is_asked_once_and_remembered(text: str, expected: Bf16, runs: int, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for _ in range(2):
        assert bf16_on_cpu(program(text, mark)) == expected
        assert mark.read_text() == "x" * runs
    assert bf16_on_cpu(program("pass"), afresh=True) == Bf16("works")
    assert bf16_on_cpu(program(DIES)) == Bf16("works")


def test_what_was_found_for_another_host_processor_or_torch_is_not_taken(cache: Path) -> None:
    bf16_on_cpu(program("pass"))
    (name,) = json.loads((cache / "bf16.json").read_text())
    (cache / "bf16.json").write_text(json.dumps({name.replace("torch ", "torch 1."): ["works", ""]}))
    assert bf16_on_cpu(program(DIES)).outcome == "fails"


def test_what_may_end_differently_next_time_is_not_remembered(cache: Path) -> None:
    for text in ("raise MemoryError('none left')", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"):
        outcome, reason = bf16_on_cpu(program(text))
        assert outcome == "fails"
        assert "none left" in reason or "SIGKILL" in reason
    assert not (cache / "bf16.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"a": 3}', "null"])
def test_a_damaged_memory_is_no_memory(content: str, cache: Path) -> None:
    cache.mkdir()
    (cache / "bf16.json").write_text(content)
    assert bf16_on_cpu(program("pass")) == Bf16("works")


@pytest.mark.parametrize(("text", "told"), [(DIES, "give --amp none"), (DIES_UNLESS_CAPPED, "=".join(CAP))])
def test_a_run_that_would_die_is_refused_in_one_line(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    bf16_on_cpu(program(text))
    words = ["--data", "digits", "--amp", "bf16", "--device", "cpu", "--out", str(tmp_path / "run")]
    assert main(["train", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert SAID in said
    assert told in said
    assert not (tmp_path / "run").exists()
    assert main(["train", *words[:3], "fp16", "--backbone", "resnet81", *words[4:]]) == 2
    assert "resnet81" in capsys.readouterr().err, "other precisions are not concerned"


@pytest.mark.slow
def test_a_run_is_capped_before_torch_is_loaded(tmp_path: Path) -> None:
    """The instruction set that oneDNN says it takes, of a run that began without a word of it in its environment."""
    bf16_on_cpu(program(DIES_UNLESS_CAPPED))
    said = subprocess.run(
        [sys.executable, "-c", f"import dualtemp; dualtemp.train({TRAIN}, quiet=True, out={str(tmp_path / 'run')!r})"],
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout
    assert "AMX" not in next(line for line in said.splitlines() if ",isa:" in line)


def test_a_run_that_goes_on_is_capped_before_torch_is_loaded(tmp_path: Path) -> None:
    bf16_on_cpu(program(DIES_UNLESS_CAPPED))
    run = made_run(tmp_path / "run", amp="bf16")
    resume = f"""
import os, sys, dualtemp
try:
    dualtemp.resume({str(run)!r}, device="cpu", workers=-1)  # a mistake that is found before torch is loaded
except dualtemp.errors.UserError:
    print(os.environ[{CAP[0]!r}], "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", resume], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == [CAP[1], "False"]


@pytest.mark.parametrize(
    ("text", "told"), [("pass", "works"), (DIES_UNLESS_CAPPED, f"{SAID}; works with {'='.join(CAP)}")]
)
def test_the_doctor_tells_it(text: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    bf16_on_cpu(program(text))
    assert main(["doctor"]) == 0
    assert f"bf16 on cpu   {told}" in capsys.readouterr().out
