"""The files of a run folder, as a hand may have changed them."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import epochs, made_run

from dualtemp.cli import main
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder

LAST = {"stopped": True, "held_out_gained": 1, "held_out_lost": 30, "judged_past": 0.9}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", "x"),
        ("step", 20.5),
        ("step", None),
        ("held_out_lost", "3"),
        ("held_out_gained", [1]),
        ("held_out_gained", -40),
        ("judged_past", None),
        ("judged_past", "sure"),
    ],
)
def test_a_measure_of_another_kind_that_decides_something_is_one_line(
    key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made_run(tmp_path / "run", [*epochs(loss=[3.0, 2.0]), {"loss": 1.0, **LAST}])
    assert RunFolder(run).history()[-1] == {"epoch": 3, "step": 30, "loss": 1.0, **LAST}
    before = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    before[-1][key] = value
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in before))
    with pytest.raises(
        UserError, match=rf"metrics\.jsonl is damaged \({key} that is no (whole )?number( of at least 0)?\)"
    ):
        RunFolder(run).history()
    assert main(["report", str(run)]) == 2
    assert f"{key} that is no" in capsys.readouterr().err
    assert main(["clean", str(run)]) == 0
