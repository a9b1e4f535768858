"""What `dualtemp explore` refuses, and what its sliders offer."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualtemp
from dualtemp.cli import main
from dualtemp.report.explorer import dictionary_sizes, slider_taus

SETTINGS = {"data": "digits", "backbone": "resnet_mini", "epochs": 1, "batch": 32, "subset": 64, "knn_images": 64}
HOW = {"device": "cpu", "threads": 1, "quiet": True}


def test_mistakes_are_told_in_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    dualtemp.train(out=folder, **SETTINGS, **HOW)  # pyright: ignore
    dualtemp.train(out=tmp_path / "ce", method="supervised", **SETTINGS, **HOW)  # pyright: ignore
    capsys.readouterr()
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "page.html")
    for words, told in (
        ([tmp_path / "nothing", "--out", out], "is not a run"),
        ([tmp_path / "ce", "--out", out], "no anchors"),
        ([folder, "--out", tmp_path / "file" / "page.html"], "cannot be written"),
        ([folder, "--out", out, "--data", tmp_path / "nowhere"], "nowhere"),
        ([folder, "--out", out, "--device", "gpu9"], "gpu9"),
    ):
        assert main(["explore", *map(str, words)]) == 2
        err = capsys.readouterr().err
        assert told in err
        assert err.count("\n") == 1
    assert not Path(out).exists()


@given(st.integers(1, 5000))
def test_dictionary_sizes_are_powers_of_two_and_all_there_are(keys: int) -> None:
    sizes = dictionary_sizes(keys)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == keys
    assert all(size & (size - 1) == 0 for size in sizes[:-1])
    assert sizes[:-1] == [2**i for i in range(1, 12) if 2**i < keys]


@given(st.floats(1e-3, 50), st.floats(1e-3, 50) | st.just(math.inf))
def test_the_sliders_have_the_runs_own_temperatures(alpha: float, beta: float) -> None:
    taus = slider_taus(alpha, beta)
    assert taus == sorted(set(taus))
    assert {alpha, 0.02, 0.1, 1.0, 5.0} <= set(taus)
    assert beta in taus or math.isinf(beta)
    assert all(math.isfinite(tau) for tau in taus)
