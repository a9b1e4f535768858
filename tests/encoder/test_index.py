import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from command_processes import Commands, halting, kill_where_it_halts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualtemp.cli import main
from dualtemp.encoder import embedding_file, index_pairs, index_recall, vector_index
from dualtemp.encoder.captions import captions
from dualtemp.encoder.embed import embed
from dualtemp.encoder.embedding_file import Columns, write_features
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.index import index
from dualtemp.encoder.index_file import KINDS, index_paths
from dualtemp.encoder.near_duplicates import similar_pairs
from dualtemp.encoder.stored_vectors import StoredVectors
from dualtemp.encoder.vector_index import VectorIndex, open_index, usual_kind
from dualtemp.errors import UserError

HOW: dict[str, Any] = {"workers": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    started = Commands(tmp_path_factory.mktemp("commands"))
    yield started
    started.close()


def drawn(seed: int, count: int, width: int = 16) -> np.ndarray:
    """Clusters of vectors, and among them copies and almost equal ones."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(20, width))
    x = centers[rng.integers(0, 20, count)] + 0.5 * rng.normal(size=(count, width))
    some = rng.integers(0, count, count // 10)
    x[some] = x[some[::-1]] + 0.01 * rng.normal(size=(len(some), width))
    x[count // 2 : count // 2 + 30] = x[0]  # more copies of one image than neighbors are asked for at first
    return x.astype(np.float32)


def written(path: Path, x: np.ndarray, dtype: str = "float32") -> Path:
    names = [f"image-{i}" for i in range(len(x))]
    labels = np.arange(len(x)) % 3 - 1
    with open(path, "wb") as file:
        columns = Columns(names, None, (), labels, ("cat", "dog"))
        write_features(file, path.suffix, columns, [x], x.shape[1], {"backbone": "abc"}, dtype)
    return path


def unit64(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return drawn(0, 3000)


@pytest.fixture(scope="module")
def features(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("features") / "e.parquet", vectors)


@pytest.fixture(scope="module", params=KINDS)
def built(request: Any, features: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index(features, out=tmp_path_factory.mktemp("index") / "e.index", kind=request.param).path


def test_what_a_search_finds_has_exact_cosines_and_the_recall_that_was_measured(
    built: Path, vectors: np.ndarray
) -> None:
    opened, header, _ = open_index(built)
    # Of no image, but like them; of queries unlike all images an index finds less than it says.
    queries = unit64(vectors[:200] + 0.3 * np.random.default_rng(1).normal(size=(200, 16))).astype(np.float32)
    rows, s = opened.search(queries, 10)
    exact = queries.astype(np.float64) @ unit64(vectors).T
    np.testing.assert_allclose(s, np.take_along_axis(exact, rows, 1), atol=1e-6)
    assert (np.diff(s, axis=1) <= 0).all()
    tenth = np.sort(exact, axis=1)[:, -10]
    found = float((s >= tenth[:, None] - 1e-6).mean())
    assert found > 0.9
    assert header.recall["recall@10"] >= 0.95
    if header.kind == "exact":
        plain = faiss.IndexFlatIP(vectors.shape[1])
        plain.add(unit64(vectors).astype(np.float32))
        np.testing.assert_allclose(s, plain.search(queries, 10)[0], atol=1e-6)
        assert found == 1


def test_the_recall_beside_an_index_is_that_of_a_brute_force(built: Path, vectors: np.ndarray) -> None:
    opened, header, _ = open_index(built)
    _, asked = index_recall.drawn_queries(len(opened))
    z = unit64(vectors)
    exact = z[asked] @ z.T
    exact[np.arange(len(asked)), asked] = -np.inf
    tenth = np.sort(exact, axis=1)[:, -10]
    rows, s = opened.search(z[asked].astype(np.float32), 11)
    right = ((rows != asked[:, None]) & (s >= tenth[:, None] - 1e-6)).sum(1).clip(max=10)
    assert header.recall == {
        "recall@10": pytest.approx(right.mean() / 10, abs=2e-3), "queries": len(asked), "asked": 0.95
    }  # fmt: skip
    tuned, _ = index_recall.drawn_queries(len(opened))
    assert not set(tuned.tolist()) & set(asked.tolist())


def test_pairs_found_by_an_index_are_those_of_all_pairs_and_what_is_missing_is_told(
    built: Path, vectors: np.ndarray, monkeypatch: Any
) -> None:
    opened, _, _ = open_index(built)
    expected, cosines, _ = similar_pairs(torch.from_numpy(vectors), 0.99)
    monkeypatch.setattr(index_pairs, "SAMPLE", 3000)  # all: the recall is then exactly the share that was found
    found = index_pairs.index_pairs(opened, 0.99)
    all_pairs, some = ({tuple(pair) for pair in pairs.tolist()} for pairs in (expected, found.pairs))
    assert len(some) == len(found.pairs)
    values = dict(zip(map(tuple, expected.tolist()), cosines.tolist(), strict=True))
    assert all(s >= 0.99 - 2e-6 for s in found.s)
    for pair, s in zip(found.pairs.tolist(), found.s.tolist(), strict=True):
        if tuple(pair) in values:
            assert s == pytest.approx(values[tuple(pair)], abs=1e-6)
    assert found.recall is not None
    assert found.recall == pytest.approx(len(all_pairs & some) / len(all_pairs), abs=2e-3)
    assert found.recall > 0.97
    copies = {0, *range(1500, 1530)}
    assert {(i, j) for i in copies for j in copies if i < j} <= some
    assert not found.cut


@pytest.mark.slow
def test_codes_find_pairs_among_images_that_are_nearly_as_close(tmp_path: Path) -> None:
    """Ten crowds of 150: the codes' order of neighbors is rough there, and the nearest by it are not the nearest."""
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(10, 64))
    x = (np.repeat(centers, 150, 0) + 0.12 * rng.normal(size=(1500, 64))).astype(np.float32)
    opened, _, _ = open_index(index(written(tmp_path / "e.parquet", x), out=tmp_path / "e.index", kind="ivfpq").path)
    expected = {tuple(pair) for pair in similar_pairs(torch.from_numpy(x), 0.988)[0].tolist()}
    found = {tuple(pair) for pair in index_pairs.index_pairs(opened, 0.988).pairs.tolist()}
    assert len(expected) > 1000
    assert len(found & expected) > 0.9 * len(expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_choice_in_float32_leaves_out_nothing_that_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Also of features whose squares leave the range of float32; a row of -1 is none."""
    monkeypatch.setattr(vector_index, "GATHERED", 5000)
    x = drawn(3, 400)
    lengths = np.random.default_rng(0).choice([1, 1e-3] if dtype == "float16" else [1, 1e25, 1e-10], 400)
    x = (x * lengths[:, None]).astype(dtype)
    x.tofile(tmp_path / "vectors")
    found = VectorIndex(None, StoredVectors(tmp_path / "vectors", len(x), x.shape[1], dtype), "exact", {})
    queries, rows = found.vectors.unit(np.arange(400)), np.tile(np.arange(-1, 400), (400, 1))
    cosines = unit64(x) @ unit64(x).T
    for least in (0.9, 0.99, 0.9999):
        at, place, s = found.near(queries, rows, least)
        expected = {(i, j) for i, j in np.argwhere(cosines >= least + 1e-6).tolist()}
        allowed = {(i, j) for i, j in np.argwhere(cosines >= least - 1e-6).tolist()}
        near = set(zip(at.tolist(), (place - 1).tolist(), strict=True))
        assert expected <= near <= allowed
        np.testing.assert_allclose(s, cosines[at, place - 1], atol=1e-6)


def test_of_too_many_pairs_the_most_similar_are_kept(built: Path) -> None:
    opened, _, _ = open_index(built)
    whole = index_pairs.index_pairs(opened, 0.9)
    cut = index_pairs.index_pairs(opened, 0.9, most=50)
    assert cut.cut
    np.testing.assert_array_equal(cut.s, whole.s[:50])
    assert cut.recall is None


@pytest.mark.parametrize("ending", [".parquet", ".npz", ".csv"])
def test_captions_are_read_for_some_rows_alone(tmp_path: Path, monkeypatch: Any, ending: str) -> None:
    monkeypatch.setattr(embedding_file, "ROWS", 7)
    file = EmbeddingFile(written(tmp_path / f"e{ending}", drawn(0, 100, 4)))
    found = captions(file, [99, 0, 50, 51])
    assert {i: (c.name, c.label, c.part) for i, c in found.items()} == {
        i: (f"image-{i}", [None, "cat", "dog"][i % 3], None) for i in (0, 50, 51, 99)
    }


@pytest.mark.parametrize(("count", "dtype"), [(1, "float32"), (2, "float32"), (15, "float16"), (300, "float16")])
@pytest.mark.parametrize("kind", KINDS)
def test_few_vectors_are_an_index_too(tmp_path: Path, count: int, dtype: str, kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(count, 7)).astype(np.float32)  # nothing divides 7
    path = index(written(tmp_path / "e.npz", x, dtype), kind=kind).path
    opened, header, file = open_index(path)
    assert (header.count, header.dtype, file.dtype) == (count, dtype, dtype)
    rows, s = opened.search(unit64(x).astype(np.float32), 3)
    assert (rows[:, 0] == np.arange(count)).all()
    assert (s[:, 0] > 0.999).all()
    assert (rows[:, 3 - max(0, 3 - count) :] == -1).all() or count >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_vector_has_no_recall_and_two_find_each_other(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, told, recall in (
        (1, "recall@10 is not measured: a single vector has no others to find", None),
        (2, "recall@10 1.000, measured on 2 held-out queries", 1.0),
    ):
        made = written(tmp_path / f"{count}.npz", np.eye(count, 7, dtype=np.float32))
        assert main(["index", str(made), "--kind", kind]) == 0
        said = capsys.readouterr()
        assert said.out.splitlines()[-1] == told
        assert "below the 0.95" not in said.err
        kept = json.loads((tmp_path / f"{count}.index.json").read_text())
        assert kept["recall"] == {"recall@10": recall, "queries": 0 if count == 1 else 2, "asked": 0.95}
        found, _, _ = open_index(tmp_path / f"{count}.index")
        assert found.search(np.eye(1, 7, dtype=np.float32), 1)[0].tolist() == [[0]]


def test_the_kind_follows_the_number_of_vectors() -> None:
    assert [usual_kind(count) for count in (1, 20_000, 20_001, 500_000, 500_001)] == [
        "exact", "exact", "hnsw", "hnsw", "ivfpq"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_search_and_near_duplicates_by_an_index_say_what_they_say_without(
    photos_run: Path, photos: Path, tmp_path: Path, capsys: Any, kind: str
) -> None:
    made = embed(photos_run, data=photos, out=tmp_path / "e", parts=2, batch=8, **HOW).path
    assert main(["index", str(made), "--kind", kind, "--recall", "1"]) == 0
    assert "recall@10 1.000, measured on" in capsys.readouterr().out
    for words in (
        ["search", str(photos_run), str(photos / "test/cat/200.png"), str(photos / "train/dog/100.jpg"), "-k", "5"],
        ["near-duplicates", str(photos_run), "--threshold", "0.9"],
    ):
        told = []
        for more in (["--embeddings", str(made)], ["--index", str(tmp_path / "e.index")]):
            assert main([*words, *more, "--json"]) == 0
            told.append(json.loads(capsys.readouterr().out))
        plain, indexed = told
        indexed.pop("recall", None)
        found = [
            [near.pop("s") for photo in each.get("photos", []) for near in photo["found"]]
            + [pair.pop("s") for pair in each.get("pairs", [])]
            for each in told
        ]
        np.testing.assert_allclose(found[0], found[1], atol=2e-6)
        if "photos" in plain:
            assert plain == indexed
        else:
            names = [sorted(sorted(pair["names"]) for pair in each["pairs"]) for each in told]
            assert names[0] == names[1]
            assert plain["images"] == indexed["images"] == 34


def test_an_index_of_other_embeddings_or_another_encoder_is_refused(
    photos_run: Path, digits_run: Path, photos: Path, tmp_path: Path, capsys: Any
) -> None:
    made = embed(photos_run, data=photos, out=tmp_path / "e.parquet", **HOW).path
    path = index(made).path
    photo = str(photos / "test/cat/200.png")
    assert main(["search", str(digits_run), photo, "--index", str(path)]) == 2
    assert "features of another encoder" in capsys.readouterr().err
    other = embed(photos_run, data=photos, part="train", out=tmp_path / "other.parquet", **HOW).path
    assert main(["search", str(photos_run), photo, "--index", str(path), "--embeddings", str(other)]) == 2
    assert "it is an index of other embeddings than" in capsys.readouterr().err
    made.write_bytes(other.read_bytes())  # embedded anew
    assert main(["near-duplicates", str(photos_run), "--index", str(path)]) == 2
    assert "or they were embedded anew: build it again" in capsys.readouterr().err
    made.unlink()
    assert main(["search", str(photos_run), photo, "--index", str(path)]) == 2
    error = capsys.readouterr().err
    assert "its embeddings are no longer at" in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_an_index_that_is_killed_while_it_is_written_is_refused_and_built_again(
    commands: Commands, features: Path, tmp_path: Path
) -> None:
    out = tmp_path / "e.index"
    for name in (".e.index.vectors*", ".e.index.[0-9]*", ".e.index.json*"):
        kill_where_it_halts(commands.start("index", features, "--out", out, first=halting(name)))
        with pytest.raises(UserError, match="no such file"):
            open_index(out)
    assert commands.run("index", features, "--out", out).code == 0
    whole = {path.name: path.read_bytes() for path in index_paths(out)[:2]}
    assert open_index(out)[1].count == 3000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.index", "e.index.json", "e.index.vectors"]
    # Killed when another kind was to replace it: faiss's file is the new one, the JSON the old one.
    words = ["index", features, "--out", out, "--kind", "hnsw"]
    kill_where_it_halts(commands.start(*words, first=halting(".e.index.json*")))
    with pytest.raises(UserError, match="writing was interrupted or it was changed: build it again"):
        open_index(out)
    assert commands.run("index", features, "--out", out).code == 0
    assert {path.name: path.read_bytes() for path in index_paths(out)[:2]} == whole


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2), st.integers(0, 2000), st.binary(min_size=1, max_size=40))
def test_a_damaged_file_is_one_line(tmp_path: Path, which: int, at: int, garbage: bytes) -> None:
    out = tmp_path / "e.index"
    if not (tmp_path / "e.npz").exists():
        index(written(tmp_path / "e.npz", drawn(0, 200, 4)), out=out)
        for path in index_paths(out):
            (tmp_path / f"kept-{path.name}").write_bytes(path.read_bytes())
    for path in index_paths(out):
        path.write_bytes((tmp_path / f"kept-{path.name}").read_bytes())
    path = index_paths(out)[which]
    before = path.read_bytes()
    at %= len(before)
    path.write_bytes(before[:at] + garbage + before[at + len(garbage) :])
    refused, header = None, None
    try:
        _, header, _ = open_index(out)
    except UserError as error:
        refused = str(error)
    if refused is not None:
        assert "\n" not in refused
        return
    # Only what no check can know may have changed: a figure in the JSON, or nothing.
    assert which == 2 or path.read_bytes() == before
    assert header is not None
    assert header.count == 200


@pytest.mark.parametrize("value", [[], 3, {"format": 2}, {"format": 1}, {"format": 1, "kind": "exact"}])
def test_a_json_that_is_no_header_is_one_line(features: Path, tmp_path: Path, value: Any) -> None:
    path = index(features, out=tmp_path / "e.index").path
    (tmp_path / "e.index.json").write_text(json.dumps(value))
    with pytest.raises(UserError, match=re.escape("build it again")):
        open_index(path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["missing.parquet"], "no such file"),
        (["e.npz", "--kind", "best"], "--kind"),
        (["e.npz", "--recall", "2"], "above 0 and up to 1"),
        (["e.npz", "--recall", "nan"], "above 0 and up to 1"),
        (["e.npz", "--out", "e.faiss"], "ends with .index"),
        (["damaged.npz"], "cannot be read"),
        (["."], "no features in it"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, capsys: Any, monkeypatch: Any, words: list[str], told: str) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "e.npz", drawn(0, 100, 4))
    Path("damaged.npz").write_bytes(b"PK")
    assert main(["index", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.npz", "e.npz"]
