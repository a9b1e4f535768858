"""`--seeds` left out: enough for the first look at the claims of a scale that declares looks."""

import argparse

import pytest

from dualtemp.commands.paper_arguments import add_request, parse_request
from dualtemp.paper.claims import planned_looks


def seeds(*words: str) -> tuple[int, ...]:
    parser = argparse.ArgumentParser()
    add_request(parser)
    return tuple(parse_request(vars(parser.parse_args(["T-reverse", *words]))).seeds)


def test_the_default_scale_runs_as_many_seeds_as_its_first_look_needs() -> None:
    assert seeds() == tuple(range(1, planned_looks("unequal").seeds[0] + 1)) == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("scale", ["mini", "paper", "smoke"])
def test_other_scales_run_three(scale: str) -> None:
    assert seeds("--scale", scale) == (1, 2, 3)


def test_seeds_that_are_given_are_taken() -> None:
    assert seeds("--seeds", "2") == (1, 2)
    assert seeds("--seeds", "4,7") == (4, 7)
