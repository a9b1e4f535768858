"""Parquet files with a column of images: every value is found where pyarrow finds it, however the file was written."""

import contextlib
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_photos import drawn_photo
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp.data import open_source
from dualtemp.data.shards.contents import ShardContents
from dualtemp.data.shards.parquet_pages import Chunk, values
from dualtemp.data.shards.parquet_shard import list_parquet
from dualtemp.data.shards.shard_images import ShardImages
from dualtemp.data.shards.shard_index import ShardFile, joined
from dualtemp.data.shards.tar_members import Damaged
from dualtemp.errors import UserError

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

CLASSES = ["zebra", "ape"]


def encoded(number: int) -> bytes:
    buffer = io.BytesIO()
    drawn_photo(number, 40 + number % 9, 48).save(buffer, "PNG")
    return buffer.getvalue()


def listed(path: Path) -> ShardContents:
    with open(path, "rb") as file:
        return list_parquet(file)


def hub_table(numbers: range, labels: bool = True) -> Any:
    """A table in the layout of Hugging Face's sets."""
    images = [{"bytes": encoded(i), "path": f"{i:04}.png"} for i in numbers]
    columns = {"image": pa.array(images, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    if labels:
        columns["label"] = pa.array([i % 2 for i in numbers], pa.int64())
        features["label"] = {"names": CLASSES, "_type": "ClassLabel"}
    told = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    return pa.table(columns).replace_schema_metadata(told)


@given(
    sizes=st.lists(st.none() | st.integers(0, 3000), min_size=1, max_size=40),
    codec=st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
    version=st.sampled_from(["1.0", "2.0"]),
    dictionary=st.booleans(),
    group=st.integers(1, 40),
    page=st.sampled_from([100, 5000, 1 << 20]),
    struct=st.booleans(),
    twice=st.booleans(),
)
@settings(max_examples=60)
def test_every_value_is_where_pyarrow_finds_it(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int | None],
    codec: str,
    version: str,
    dictionary: bool,
    group: int,
    page: int,
    struct: bool,
    twice: bool,
) -> None:
    draws = np.random.default_rng(len(sizes))
    made = [None if size is None else draws.integers(0, 4, size, np.uint8).tobytes() for size in sizes]
    made = made + made if twice else made  # so that a dictionary pays
    column = pa.array([{"bytes": each} for each in made]) if struct else pa.array(made, pa.binary())
    if struct and all(each is None for each in made):
        return
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    table = pa.table({"number": list(range(len(made))), "image": column})
    pq.write_table(
        table, path, compression=codec, data_page_version=version, use_dictionary=dictionary, row_group_size=group,
        data_page_size=page, dictionary_pagesize_limit=2000, write_batch_size=3,
    )  # fmt: skip
    found = listed(path)
    expected = [each for each in made if each is not None]
    assert found.trouble == (
        f"{len(made) - len(expected)} of {len(made)} rows have no image in them" * (len(expected) < len(made))
    )
    index = joined([ShardFile(str(path), "x.parquet")], [found])
    images = ShardImages(index, np.arange(len(index)), ("",), "x")
    assert [images.content(i) for i in range(len(images))] == expected
    rows = [i for i, each in enumerate(made) if each is not None]
    assert list(images.names) == [f"{row:06}" for row in rows]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A folder as the hub has it."""
    (tmp_path / "set" / "data").mkdir(parents=True)
    for part, first, shards in (("train", 0, 2), ("test", 30, 1)):
        for shard in range(shards):
            table = hub_table(range(first + 10 * shard, first + 10 * shard + 10))
            pq.write_table(
                table, tmp_path / "set" / "data" / f"{part}-{shard:05}-of-{shards:05}.parquet", row_group_size=4
            )
    return tmp_path / "set"


def test_a_set_in_the_layout_of_the_hub_has_its_parts_names_and_classes(hub: Path) -> None:
    splits = open_source(hub)
    assert splits.split == "shards of train and test"
    assert splits.train.classes == tuple(CLASSES), "in the order of the file, not of the alphabet"
    assert list(splits.train.source.names) == [f"train/{i:04}.png" for i in range(20)]
    assert splits.train.labels is not None
    assert splits.train.labels.tolist() == [i % 2 for i in range(20)]
    assert splits.test is not None
    for i in range(10):
        assert splits.test.source.content(i) == encoded(30 + i)
        assert splits.test.source.open(i) == drawn_photo(30 + i, 40 + (30 + i) % 9, 48)


def test_a_test_part_whose_labels_are_kept_back_makes_way_for_the_validation_part(hub: Path) -> None:
    table = hub_table(range(50, 60))
    pq.write_table(table, hub / "data" / "validation-00000-of-00001.parquet")
    kept_back = hub_table(range(30, 40)).set_column(1, "label", pa.array([-1] * 10, pa.int64()))
    pq.write_table(
        kept_back.replace_schema_metadata(table.schema.metadata), hub / "data" / "test-00000-of-00001.parquet"
    )
    splits = open_source(hub)
    assert splits.split == "shards of train and validation; test not used"


def test_labels_may_be_words_and_images_a_plain_column(tmp_path: Path) -> None:
    table = pa.table({"jpg": [encoded(i) for i in range(20)], "label": [CLASSES[i % 2] for i in range(20)]})
    pq.write_table(table, tmp_path / "x.parquet")
    splits = open_source(tmp_path / "x.parquet")
    assert splits.train.classes == ("ape", "zebra")
    assert splits.train.labels is not None
    numbers = [int(name) for name in splits.train.source.names]
    assert splits.train.labels.tolist() == [1 - i % 2 for i in numbers]


def test_one_image_is_read_without_its_row_group(tmp_path: Path) -> None:
    """Ten megabytes in a row group, one in a page."""
    images = [np.random.default_rng(i).bytes(100_000) for i in range(100)]
    pq.write_table(pa.table({"image": images}), tmp_path / "x.parquet", compression="snappy", write_batch_size=5)
    index = joined([ShardFile(str(tmp_path / "x.parquet"), "x")], [listed(tmp_path / "x.parquet")])
    source = ShardImages(index, np.arange(100), ("",), "x")
    tracemalloc.start()
    assert source.content(57) == images[57]
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


def test_a_file_without_images_or_cut_short_is_told_in_one_line(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="no column of images among text, n"):
        open_source(tmp_path / "x.parquet")
    pq.write_table(hub_table(range(9)), tmp_path / "y.parquet")
    content = (tmp_path / "y.parquet").read_bytes()
    (tmp_path / "y.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="not a readable Parquet file"):
        open_source(tmp_path / "y.parquet")


@given(data=st.data())
@settings(max_examples=60)
def test_a_spoiled_file_never_ends_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("spoiled") / "x.parquet"
    pq.write_table(pa.table({"image": [bytes([i]) * 50 for i in range(30)]}), path, compression="none")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, len(content) - 400))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    with contextlib.suppress(OSError):  # one line, whatever it is
        assert len(listed(path)) <= 30


def test_paths_that_name_the_same_file_in_two_spellings_are_no_names(tmp_path: Path) -> None:
    contents = [encoded(i) for i in range(4)]
    paths = ["a.png", "/a.png", "./b.png", "c.png"]
    rows = [{"bytes": content, "path": path} for content, path in zip(contents, paths, strict=True)]
    pq.write_table(pa.table({"image": rows}), tmp_path / "x.parquet", compression="zstd")
    whole = open_source(tmp_path / "x.parquet")
    images = [whole.train.source, *([] if whole.test is None else [whole.test.source])]
    found = {name: each.content(i) for each in images for i, name in enumerate(each.names)}
    assert found == {f"{i:06}": content for i, content in enumerate(contents)}


@pytest.mark.parametrize("column", ["path", "label"])
def test_a_text_that_is_none_is_a_damaged_file(tmp_path: Path, column: str) -> None:
    rows = [{"bytes": encoded(0), "path": "some image.png"}]
    table = pa.table({"image": rows, "label": ["some label"]})
    pq.write_table(table, tmp_path / "x.parquet", compression="none", use_dictionary=False, write_statistics=False)
    content = (tmp_path / "x.parquet").read_bytes()
    word = b"some image" if column == "path" else b"some label"
    (tmp_path / "x.parquet").write_bytes(content.replace(word, b"\xff" + word[1:]))
    with pytest.raises(UserError, match="not a readable Parquet file"):
        open_source(tmp_path / "x.parquet")


def test_a_page_that_ends_before_its_numbers_is_a_damaged_one() -> None:
    body = io.BytesIO()
    pq.write_table(pa.table({"image": [b"one", b"two"] * 20}), body, compression="none", write_statistics=False)
    chunk = pq.ParquetFile(body).metadata.row_group(0).column(0)
    content = bytearray(body.getvalue())
    # The header of the data page, in Thrift: type 0, then the lengths, unpacked and as stored; these become 6, so that
    # nothing is left after the levels.
    at = chunk.data_page_offset
    assert content[at : at + 2] == b"\x15\x00"
    for place in (at + 3, at + 5):
        content[place] = 2 * 6
    with pytest.raises(Damaged, match="damaged page"):
        list(values(io.BytesIO(bytes(content)), Chunk(chunk.dictionary_page_offset, chunk.num_values, 1), None))
