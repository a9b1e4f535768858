"""Which shards a word means: braces as the shell expands them, folders, patterns, parts."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.data.shards.braces import expand_braces, has_braces
from dualtemp.data.shards.locations import Place, divide, find_shards, is_shard_folder, looks_like_shards
from dualtemp.errors import UserError

PATTERNS = [
    "s/{000..011}.tar",
    "{a,b}-{1..3}.tar",
    "x{3..1}.tar",
    "{0..10..5}.tar",
    "plain.tar",
    "{x}.tar",
    "{08..11}.tar",
    "{{0..1},{5..6}}.tar",
    "{train-{0..2},test-{a,b}}.tar",
    "{a,b{c,{d,e}}f}-{1..2}.tar",
    "{{a,b}}.tar",
    "{a,{b,c}.tar",
    "{a,b}}.tar",
    "{x{a,b},{0..1}{c,d}}",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_braces_mean_what_they_mean_to_the_shell(pattern: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    said = subprocess.run([bash, "-c", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True)
    assert expand_braces(pattern) == said.stdout.split()


@given(first=st.integers(0, 300), count=st.integers(1, 50), width=st.integers(0, 6))
def test_a_range_has_every_number_once(first: int, count: int, width: int) -> None:
    last = first + count - 1
    found = expand_braces(f"{{{first:0{width}}..{last:0{width}}}}")
    assert list(map(int, found)) == list(range(first, first + count))
    assert len(set(map(len, found))) == 1 or width < len(str(last))


def test_braces_without_end_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="more than 1,000,000"):
        expand_braces("{0..99999999}.tar")
    assert not has_braces("a{b}c.tar")


def test_a_word_is_shards_only_if_it_can_be_nothing_else() -> None:
    assert looks_like_shards("s/{0..3}.tar")
    assert looks_like_shards("s/*.parquet")
    assert not looks_like_shards("s/photos")
    assert not looks_like_shards("cifar10")


def test_a_folder_with_image_files_stays_a_folder_of_images(tmp_path: Path) -> None:
    (tmp_path / "photos.tar").touch()
    assert is_shard_folder(tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.JPG").touch()
    assert not is_shard_folder(tmp_path)


def test_a_link_to_a_folder_above_is_not_followed_in_circles(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for name in ("train/000.tar", "001.tar"):
        (tmp_path / name).touch()
    expected = [each.name for each in find_shards(tmp_path)]
    (tmp_path / "self").symlink_to(".")
    (tmp_path / "train" / "up").symlink_to(tmp_path)
    assert [each.name for each in find_shards(tmp_path)] == expected == ["001.tar", "train/000.tar"]


def words(*names: str) -> dict[str, list[str]]:
    return {word: [each.name for each in found] for word, found in divide([Place(n, n) for n in names]).shards.items()}


def test_parts_are_told_by_folders_or_by_the_beginning_of_names() -> None:
    hub = ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet")
    assert words(*hub) == {"train": list(hub[:2]), "test": [hub[2]]}
    assert list(words("train/0.tar", "val/0.tar", "unlabelled/0.tar")) == ["train", "val", "unlabelled"]
    assert words("000.tar", "001.tar") == {"": ["000.tar", "001.tar"]}
    assert words("trains-0.tar", "cars-0.tar") == {"": ["trains-0.tar", "cars-0.tar"]}
    assert words("train-0.tar", "cars-0.tar") == {"": ["train-0.tar", "cars-0.tar"]}, "a class of its own"
    assert divide([Place(n, n) for n in ("train-0.tar", "test-0.tar", "x.tar")]).unused == ("others",)


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "0.tar").touch()
    for word, expected in {
        f"{tmp_path}/*.parquet": "no shard is called so",
        f"{tmp_path}/{{0,0}}.tar": "twice",
        f"{tmp_path}/{{0..2}}.tar.gz": "unpack it",
    }.items():
        with pytest.raises(UserError, match=expected):
            find_shards(word)
