"""Members of a tar, compared with Python's own `tarfile` and with the `tar` of the system."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed_shards import add_member

from dualtemp.data.shards.tar_members import Damaged, members

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
NAMES = ["a.jpg", "Ä/ö.png", "deep/" * 30 + "long.jpg", "x" * 99 + "/" + "y" * 90 + ".jpg", "with space\n.gif"]


LETTERS = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=140)


def written(names: list[str], form: int, size: int = 700) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for number, name in enumerate(names):
            add_member(archive, name, bytes([number % 256]) * (size + number))
    return buffer.getvalue()


@pytest.mark.parametrize("form", FORMATS)
def test_members_are_those_that_tarfile_finds(form: str) -> None:
    names = [name for name in NAMES if form != "ustar" or len(name) < 250]
    content = written(names, FORMATS[form])
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        expected = [(each.name, each.offset_data, archive.extractfile(each).read()) for each in archive]  # pyright: ignore
    assert list(members(io.BytesIO(content))) == expected
    assert len(expected) == len(names)


@given(
    names=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=140), max_size=5
    ),
    form=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    size=st.integers(0, 1100),
)
def test_any_name_and_size_comes_back(names: list[str], form: int, size: int) -> None:
    names = [name for name in names if name not in (".", "..")]
    content = written(names, form, size)
    assert [(each.name, len(each.content)) for each in members(io.BytesIO(content))] == [
        (name, size + i) for i, name in enumerate(names)
    ]


@given(data=st.data())
def test_a_spoiled_file_ends_in_one_line_and_never_in_another_error(data: st.DataObject) -> None:
    content = bytearray(written(["a.jpg", "b" * 150 + ".jpg", "c.jpg"], tarfile.PAX_FORMAT))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    reasons, found = [], []
    try:
        found += members(io.BytesIO(bytes(content)))
    except Damaged as error:
        reasons.append(str(error))
    assert all(len(reason.splitlines()) == 1 for reason in reasons)
    assert all(isinstance(each.name, str) for each in found)


def test_links_and_folders_are_passed_over_and_the_systems_tar_is_read(tmp_path: Path) -> None:
    tar = shutil.which("tar")
    if tar is None:
        pytest.skip("no tar")
    (tmp_path / "in/cat").mkdir(parents=True)
    (tmp_path / "in/cat/1.jpg").write_bytes(b"one")
    (tmp_path / "in/cat/2.jpg").symlink_to("1.jpg")
    subprocess.run([tar, "-cf", tmp_path / "x.tar", "-C", tmp_path / "in", "."], check=True)
    with open(tmp_path / "x.tar", "rb") as file:
        assert [(each.name, each.content) for each in members(file)] == [("./cat/1.jpg", b"one")]


def test_a_compressed_file_is_named_so(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w:gz") as archive:
        add_member(archive, "a.jpg", b"a" * 2000)
    with open(tmp_path / "x.tar", "rb") as file, pytest.raises(Damaged, match="unpacked first"):
        list(members(file))


@pytest.mark.parametrize("size", ["many", "-700", "1e3"])
def test_a_length_in_an_extended_header_that_is_no_number_is_damage(size: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a.jpg")
        member.pax_headers = {"size": size}
        archive.addfile(member)
    with pytest.raises(Damaged, match="damaged at byte"):
        list(members(io.BytesIO(buffer.getvalue())))
