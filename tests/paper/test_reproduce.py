import json
import multiprocessing
import os
import re
import shlex
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from command_processes import PATIENCE
from paper.smoke import DIVERGING, digits, reproduce, tiny_job

from dualtemp.cli import main
from dualtemp.engines.engine import Place
from dualtemp.engines.local import LocalEngine
from dualtemp.errors import UserError
from dualtemp.grids.carry_out import carry_out
from dualtemp.grids.missing import find_missing, parse_seeds
from dualtemp.grids.results import Job, Results
from dualtemp.grids.tables import collect_results, make_jobs
from dualtemp.paper.artifact import artifacts
from dualtemp.paper.claims import judge_claims
from dualtemp.paper.reproduce import Request


class Heard:
    """Remembers what a pool told."""

    def __init__(self) -> None:
        self.over: dict[str, str] = {}

    def moved(self, job: Job, fraction: float) -> None:
        assert 0 <= fraction <= 1

    def ended(self, job: Job, status: str, reason: str) -> None:
        self.over[job.name] = status


def finished(results: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in results.glob("*-s*.json")}


@pytest.mark.parametrize(("text", "seeds"), [("3", (1, 2, 3)), ("1", (1,)), ("0,", (0,)), ("4,2,4", (4, 2))])
def test_seeds_are_a_number_or_a_list_and_the_pilots_is_not_among_a_number(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "", ",", "x", "1,x", "1000000000000"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--seeds"):
        parse_seeds(text)


@pytest.mark.slow
def test_two_cells_of_every_table_and_figure_run(tmp_path: Path) -> None:
    request = Request(["all"], "smoke", (1,), results=tmp_path)
    found = request.make_plan()
    facts = {"digits": digits()}
    wanted: dict[str, Job] = {}
    for table in found.cells.values():
        # The first and the last that are there: so that rows and columns both differ where they can.
        words = [cell.run for cell in table.values() if cell.run is not None]
        for word in {*words[:1], *words[-1:]}:
            job = make_jobs(found, [1], facts)[word, 1]
            wanted[job.name] = job
    heard = Heard()
    outcome = carry_out(list(wanted.values()), LocalEngine([Place("cpu")] * 2), tmp_path, heard)
    assert set(heard.over) == set(wanted)
    assert outcome["failed"] == 0
    for path in finished(tmp_path):
        result = json.loads((tmp_path / path).read_text())
        assert {"settings", "data", "status", "metrics", "seconds", "versions"} <= set(result)
    there = collect_results(found, [1], facts, Results(tmp_path))
    for id in set(artifacts()) - {"F-frameworks", "F-teaser"}:
        assert any(cell.values for cell in there.tables[id].values()), id
    assert all(
        verdict.verdict in ("undecided", "not at this scale") for verdict in judge_claims(there.tables)
    )  # one seed


@pytest.mark.slow
def test_every_cell_runs(tmp_path: Path) -> None:
    request = Request(["all"], "smoke", (1, 2), results=tmp_path)
    left = find_missing(request, request.make_plan())
    outcome = carry_out(left.jobs, LocalEngine([Place("cpu")] * 2), tmp_path, Heard())
    assert outcome["failed"] == 0
    assert sum(outcome.values()) == len(left.jobs) == 2 * 81
    assert find_missing(request, request.make_plan()).jobs == []


@pytest.mark.slow
def test_a_grid_that_was_killed_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    words = ["T-tau-beta", "--scale", "smoke", "--seeds", "1"]
    first = reproduce(words, tmp_path)
    deadline = time.monotonic() + PATIENCE
    while len(finished(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    second = reproduce(words, tmp_path)
    before = finished(tmp_path)
    told, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, told
    after = finished(tmp_path)
    assert 2 <= len(before) < len(after) == 10
    assert {name: after[name] for name in before} == before
    # Processes of the killed one end with it, or at the latest with their run.
    assert int(re.findall(r"^(\d+) runs", told, re.M)[0]) <= 10 - len(before) + 2


@pytest.mark.slow
def test_two_commands_on_one_results_folder_share_the_runs(tmp_path: Path) -> None:
    words = ["T-reverse", "--scale", "smoke", "--seeds", "2"]
    both = [reproduce(words, tmp_path), reproduce(words, tmp_path)]
    seen: dict[str, set[int]] = {}
    while any(process.poll() is None for process in both):
        for name, written in finished(tmp_path).items():
            seen.setdefault(name, set()).add(written)
        time.sleep(0.02)
    assert [process.wait() for process in both] == [0, 0]
    assert len(seen) == 16
    assert all(len(times) == 1 for times in seen.values())  # none was written twice


@pytest.mark.slow
def test_a_stop_saves_the_runs_and_they_are_gone_on_with(tmp_path: Path) -> None:
    job = tiny_job(epochs=200)

    class Impatient(Heard):
        def moved(self, job: Job, fraction: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out([job], LocalEngine([Place("cpu")]), tmp_path, Impatient())
    assert multiprocessing.active_children() == []
    assert list(Results(tmp_path).run_folder(job).glob("checkpoints/*.ckpt"))
    assert finished(tmp_path) == {}


@pytest.mark.slow
def test_what_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    diverging, killed, sound = tiny_job(**DIVERGING), tiny_job(epochs=500), tiny_job()

    class Killer(Heard):
        def moved(self, job: Job, fraction: float) -> None:
            if job is killed:
                for process in multiprocessing.active_children():
                    process.kill()

    heard = Killer()
    outcome = carry_out([diverging, killed, sound], LocalEngine([Place("cpu")]), tmp_path, heard)
    assert outcome == Counter(failed=2, done=1)
    assert heard.over == {diverging.name: "failed", killed.name: "failed", sound.name: "done"}
    found = Results(tmp_path).read(killed)
    assert found is not None
    assert "killed, twice" in found["reason"]


@pytest.mark.slow
def test_each_listed_command_makes_one_missing_run(tmp_path: Path) -> None:
    request = Request(["T-unified"], "smoke", (1, 2), results=tmp_path)
    left = find_missing(request, request.make_plan())
    commands = [request.command(job) for job in left.jobs]
    assert len(set(commands)) == 16
    words = shlex.split(commands[5])
    assert words[:2] == ["dualtemp", "reproduce"]
    running = reproduce(words[2:], tmp_path)
    told, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, told
    assert list(finished(tmp_path)) == [f"{left.jobs[5].name}.json"]
    assert len(find_missing(request, request.make_plan()).jobs) == 15


def test_a_listed_command_retries_and_loads_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALTEMP_PLUGINS", str(tmp_path / "own.py"))
    request = Request(["T-unified"], "smoke", (1,), results=tmp_path)
    words = shlex.split(request.command(tiny_job(), retry=True))
    assert words[words.index("--plugin") + 1] == str(tmp_path / "own.py")
    assert "--retry" in words
    assert "--retry" not in request.command(tiny_job())


def test_failed_runs_are_missing_only_when_they_are_to_be_retried(tmp_path: Path) -> None:
    request = Request(["T-unified"], "smoke", (1,), results=tmp_path)
    one = find_missing(request, request.make_plan()).jobs[0]
    Results(tmp_path).write(one, {"status": "failed", "reason": "no room"})
    assert one not in find_missing(request, request.make_plan()).jobs
    assert one in find_missing(request, request.make_plan(), retry=True).jobs


def test_a_set_that_cannot_be_had_is_said_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    request = Request(["T-data"], "mini", (1,), ["cifar10=digits", "cifar100=nowhere", "svhn=nowhere/else"], tmp_path)
    left = find_missing(request, request.make_plan())
    assert set(left.unavailable) == {"nowhere", "nowhere/else"}
    assert len(left.jobs) == 5
    request = Request(["T-reverse"], "mini", (1,), ["nowhere"], tmp_path)
    with pytest.raises(UserError, match="nowhere"):
        find_missing(request, request.make_plan())


def test_an_unknown_cell_is_refused(tmp_path: Path) -> None:
    request = Request(["T-unified"], "smoke", (1,), results=tmp_path)
    with pytest.raises(UserError, match="there is no cell 'abc'"):
        find_missing(request, request.make_plan(), cell="abc")


@pytest.mark.parametrize("cell", ["0123456789abcdef-s1", "0123456789abcdef-s2", "nonsense"])
def test_looking_for_a_cell_that_is_not_there_fetches_nothing(
    cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    words = ["--scale", "mini", "--seeds", "1", "--results", str(tmp_path / "results")]
    assert main(["reproduce", "T-data", *words, "--list", "--cell", cell]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"there is no cell '{cell}'" in told
    assert ("not downloaded: cifar10" in told) == cell.endswith("f-s1")
    assert not (tmp_path / "cache").exists()


def test_a_cell_is_found_in_the_data_that_is_here_before_any_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    request = Request(["T-data"], "mini", (1,), ["svhn=digits"], tmp_path / "results")
    wanted = make_jobs(request.make_plan(), (1,), {"digits": digits()})
    left = find_missing(request, request.make_plan(), cell=next(iter(wanted.values())).name)
    assert (len(left.jobs), list(left.facts), left.unavailable) == (1, ["digits"], {})
    assert not (tmp_path / "cache").exists()
