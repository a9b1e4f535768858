"""A measure from a file of the user's own: computed at every evaluation, shown everywhere, in nobody's way."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command_processes import Commands
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize

from dualtemp.errors import UserError
from dualtemp.evaluation import measure
from dualtemp.report.run_page import write_run_page
from dualtemp.runs.metrics import measures

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_measure.py"
TINY = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "320", "--epochs", "2")
FAILING = '''

@measure("broken", title="Broken")
def broken(train, train_labels, test, test_labels):
    """Never anything."""
    weights = torch.zeros(train.shape[1], requires_grad=True)
    (train @ weights).sum().backward()  # a measure may train something
    train.zero_()  # and what it does to its tensors is its own business
    raise ValueError("no such thing")
'''


@pytest.fixture
def table() -> Iterator[dict]:
    """The table, and afterwards as it was."""
    before = dict(measures())
    yield measures()
    measures().clear()
    measures().update(before)


def test_the_example_is_short_and_right(table: dict) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 30
    spec = importlib.util.spec_from_file_location("my_measure", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    generator = torch.Generator().manual_seed(0)
    train, test = (torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in (60, 200))
    labels, truth = (torch.randint(0, 5, (n,), generator=generator) for n in (60, 200))
    peer = NearestCentroid().fit(normalize(train.numpy()), labels.numpy())
    expected = 100 * peer.score(normalize(test.numpy()), truth.numpy())
    assert module.nearest_centroid(train, labels, test, truth) == pytest.approx(expected)
    assert table["centroid_top1"].better == "higher"


@pytest.mark.slow
def test_a_plugins_measure_is_taken_and_shown_and_changes_nothing_else(commands: Commands, tmp_path: Path) -> None:
    plugin, path, plain = tmp_path / "my_measure.py", tmp_path / "run", tmp_path / "plain"
    plugin.write_text(EXAMPLE.read_text() + FAILING)
    ended = commands.run("train", "--plugin", plugin, *TINY, "--no-page", "--out", path)
    assert ended.code == 0, ended.err
    assert ended.err.count("the measure 'broken' fails and is left out: ValueError: no such thing\n") == 2
    assert len(re.findall(r"centroid \d+\.\d\d %", ended.out)) == 2
    assert commands.run("train", *TINY, "--no-page", "--out", plain).code == 0
    lines, others = ([json.loads(line) for line in (p / "metrics.jsonl").open()] for p in (path, plain))
    for line, other in zip(lines, others, strict=True):
        assert line.pop("centroid_top1") > 0
        assert {**line, "seconds": 0, "images_per_second": 0} == {**other, "seconds": 0, "images_per_second": 0}
    assert (path / "backbone.safetensors").read_bytes() == (plain / "backbone.safetensors").read_bytes()
    assert commands.run("report", path, "--no-pictures", "--plugin", plugin).code == 0
    page = (path / "report.html").read_text()
    assert "Nearest centroid, top-1" in page
    assert "nearest to the mean feature of their own class" in page
    both = tmp_path / "both.csv"
    assert commands.run("report", path, plain, "--plugin", plugin, "--out", both).code == 0
    assert "centroid_top1" in both.read_text().splitlines()[0]
    assert "centroid_top1" in write_run_page(path).read_text(), "without the plugin it stands under its key"


@pytest.mark.parametrize(("key", "group"), [("loss", "features"), ("two words", "features"), ("mine", "nowhere")])
def test_a_measure_that_cannot_be_declared_is_one_line(key: str, group: str, table: dict) -> None:
    with pytest.raises(UserError) as raised:
        measure(key, group=group)(lambda *tensors: 0.0)
    assert repr(key) in str(raised.value)
    assert "\n" not in str(raised.value)
