"""What two processes must make of a run: what one makes, also after a kill."""

import json
from pathlib import Path
from typing import Any

import torch
from command_processes import OFTEN, Command, Commands, halting, kill_where_it_halts, together
from run_contents import different, everything

# No batch norm, whose statistics would be those of a half of the batch.
TRANSFORMER = ("--backbone", "test_vit", "--warmup-epochs", "0")


def check_two_processes(commands: Commands, folder: Path, *words: object) -> dict[str, Any]:
    """Two processes learn what one learns, up to the rounding of sums, and the same bits after a kill.

    words: of `train`; the runs go below `folder`. Returns what all three have written down of their images.
    """

    def train(name: str, processes: int, *more: object, first: str = "") -> list[Command]:
        own = (*words, *TRANSFORMER, *more, "--out", folder / name)
        return together(commands, "train", *own, count=processes, first=first)

    for started in (train("one", 1, "--workers", 0), train("two", 2, "--workers", 0)):
        ended = [each.wait() for each in started]
        assert [each.code for each in ended] == [0] * len(ended), "".join(each.err for each in ended)
    kill_where_it_halts(*train("killed", 2, "--workers", 1, *OFTEN, first=halting(".step-*.part", 2)))
    ended = [each.wait() for each in together(commands, "resume", folder / "killed", "--workers", 1, count=2)]
    assert [each.code for each in ended] == [0, 0], "".join(each.err for each in ended)

    one, two, killed = (everything(folder / name) for name in ("one", "two", "killed"))
    assert different(killed, two) == []
    weights = [name for name, value in one.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    assert weights
    for name in weights:  # as in test_combinations.py
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
    first, *others = (
        json.loads((folder / name / "environment.json").read_text())["images"] for name in ("one", "two", "killed")
    )
    assert others == [first, first]
    return first
