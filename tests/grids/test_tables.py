"""Tables from results: columns that are the same runs on this data count once."""

from pathlib import Path

import pytest
from drawn_photos import draw_photos

from dualtemp.grids.claims import pooled_values
from dualtemp.grids.grid_request import GridRequest
from dualtemp.grids.measured_grid import measure_grid
from dualtemp.grids.missing import find_missing
from dualtemp.grids.results import Results, read_data_facts
from dualtemp.grids.tables import make_jobs

GRID = """data: photos
fixed: {epochs: 1, batch: 4, backbone: resnet_mini}
columns: {subset: [6, 100, 5000]}
seeds: 3
"""


def test_subsets_larger_than_the_data_are_one_run_and_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw_photos(tmp_path / "photos", 12)
    (tmp_path / "grid.yaml").write_text(GRID)
    request = GridRequest.parse(tmp_path / "grid.yaml", None, (), None)
    plan, results = request.make_plan(), Results(request.results)
    facts = {word: read_data_facts(word) for word in {run.settings["data"] for run in plan.runs.values()}}
    jobs = {job.name: job for job in make_jobs(plan, request.seeds, facts).values()}
    for number, job in enumerate(jobs.values()):
        results.write(job, {"status": "done", "metrics": {"probe_top1": 50.0 + number % 4}, "seconds": 60.0})
    measured = measure_grid(request.grid, plan, request.seeds, facts, results)
    small, large, larger = measured.table.values()
    assert small.run != large.run == larger.run
    assert large.values == larger.values
    pool = pooled_values(request.grid.rules, request.grid.artifact.id, measured.table, measured.table)
    assert len(pool) == 2
    assert len(measured.contrasts) == 2, "both large ones with the small one"
    assert (measured.runs, measured.wanted, measured.seconds) == (6, 6, 360.0)
    for file in results.path.glob("*.json"):
        file.unlink()
    assert sorted(job.name for job in find_missing(request, plan).jobs) == sorted(jobs)
