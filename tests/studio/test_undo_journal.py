"""Undo survives the end of a studio: whatever kills it, the next one takes back the same steps, in the same order."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_processes import PATIENCE
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp.studio import label_file
from dualtemp.studio.label_file import Entry, LabelFile
from dualtemp.studio.undo_journal import digest, journal_path, read_journal

NAMES = ["a.png", "b, with a comma.png", "é\n.png", "d.png"]
Entries = dict[int, Entry]

LABELS_AND_UNDOES = """
import sys
from pathlib import Path
from dualtemp.studio.label_file import LabelFile
file = LabelFile(Path(sys.argv[1]), [f"{n}.png" for n in range(40)])
print("open", flush=True)
for n in range(10**9):
    if n % 5 == 4:
        file.undo()
    else:
        file.set_label([n % 40, (n * 7) % 40], f"word {n}")
    print(n, flush=True)
"""

KILLED_BETWEEN_THE_TWO_FILES = """
import os, signal, sys
from pathlib import Path
from dualtemp.studio import label_file
path = Path(sys.argv[1])
file = label_file.LabelFile(path, ["a", "b"])
file.set_label([0], "one")
file.set_label([1], "two")
label_file.whole_file = lambda path: os.kill(os.getpid(), signal.SIGKILL)
file.undo() if sys.argv[2] == "undo" else file.set_label([0], "three")
"""


def histories(path: Path, names: list[str]) -> list[Entries]:
    """The entries as they are, and after each undo, by a studio that opens the file anew for each."""
    found = [dict(LabelFile(path, names).entries)]
    while (file := LabelFile(path, names)).can_undo:
        assert file.undo() is not None
        found.append(dict(file.entries))
    return found


def test_the_next_studio_undoes_what_the_last_one_did(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    file, states = LabelFile(path, NAMES), [{}]
    for change in (
        lambda: file.set_label([0, 1], "cat"),
        lambda: file.add_tag([1, 2], "night"),
        lambda: file.set_label([0], None),
        lambda: file.set_label([0], "cat"),  # as it was two steps ago: states that are equal are not confused
        lambda: file.set_label([0], None),
    ):
        change()
        states.append(dict(file.entries))
    assert histories(path, NAMES) == states[::-1]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["cat", "dog", "none", "tag", "untag", "undo", "open"]), max_size=14), st.data())
def test_it_agrees_with_a_list_of_states(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "labels.csv"
    file = LabelFile(path, NAMES)
    states: list[Entries] = [{}]
    for act in acts:
        if act == "open":
            file = LabelFile(path, NAMES)
        elif act == "undo":
            assert (file.undo() is not None) == (len(states) > 1)
            states = states[:-1] or states
        else:
            ids = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
            if act.endswith("tag"):
                (file.add_tag if act == "tag" else file.remove_tag)(ids, "odd")
            else:
                file.set_label(ids, None if act == "none" else act)
            if file.entries != states[-1]:
                states.append(dict(file.entries))
        assert file.entries == states[-1]
        assert file.can_undo == (len(states) > 1)


@pytest.mark.parametrize("after", [0.0, 0.03, 0.1])
def test_a_process_that_is_killed_at_any_moment_leaves_a_journal_that_fits(tmp_path: Path, after: float) -> None:
    path, names = tmp_path / "labels.csv", [f"{n}.png" for n in range(40)]
    child = subprocess.Popen([sys.executable, "-c", LABELS_AND_UNDOES, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = [child.stdout.readline() for _ in range(12)]
    time.sleep(after)
    child.send_signal(signal.SIGKILL)
    told += child.stdout.readlines()
    assert child.wait(PATIENCE) == -signal.SIGKILL
    done = len([line for line in told if line.strip().isdecimal()])
    # What the same acts give without a kill; one more may have been done than was told.
    other = LabelFile(tmp_path / "other.csv", names)
    possible: list[list[Entries]] = []
    states: list[Entries] = [{}]
    for n in range(done + 1):
        if n % 5 == 4:
            other.undo()
            states = states[:-1]
        else:
            other.set_label([n % 40, (n * 7) % 40], f"word {n}")
            states = [*states, dict(other.entries)]
        if n >= done - 1:
            possible.append(states[::-1])
    found, file = [dict(LabelFile(path, names).entries)], LabelFile(path, names)
    while file.undo() is not None:
        found.append(dict(file.entries))
    assert found in [each[: len(found)] for each in possible]
    assert len(found) in {min(len(each), label_file.STEPS + 1) for each in possible}


@pytest.mark.parametrize("act", ["undo", "label"])
def test_a_kill_between_the_journal_and_the_file_loses_nothing(tmp_path: Path, act: str) -> None:
    path = tmp_path / "labels.csv"
    ended = subprocess.run([sys.executable, "-c", KILLED_BETWEEN_THE_TWO_FILES, str(path), act], timeout=PATIENCE)
    assert ended.returncode == -signal.SIGKILL
    one, two = Entry("one"), Entry("two")
    assert histories(path, ["a", "b"]) == [{0: one, 1: two}, {0: one}, {}]


def test_steps_of_images_that_are_not_on_show_are_undone_too(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    LabelFile(path, NAMES).set_label([0, 3], "cat")
    LabelFile(path, NAMES).set_label([3], "dog")
    some = LabelFile(path, [NAMES[3], "new.png"])
    assert some.undo() is not None
    change = some.undo()
    assert change is not None
    assert change.entries == {0: Entry()}, "the images on show alone"
    assert LabelFile(path, NAMES).entries == {}
    assert not LabelFile(path, NAMES).can_undo


def test_what_another_program_has_written_is_not_undone(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    LabelFile(path, NAMES).set_label([0], "cat")
    path.write_text("name,label,tags\na.png,lion,\n")
    file = LabelFile(path, NAMES)
    assert not file.can_undo
    assert file.undo() is None
    assert file.entry(0) == Entry("lion")
    file.set_label([0], "tiger")
    assert histories(path, NAMES) == [{0: Entry("tiger")}, {0: Entry("lion")}]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"states": [1]}', b"\xff", b"[" * 100_000, b'{"states": ["a", "%s"]}\n{"a.png": [1, 2]}']
)
def test_a_damaged_journal_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.csv"
    LabelFile(path, NAMES).set_label([0], "cat")
    journal_path(path).write_bytes(content.replace(b"%s", digest(path.read_bytes()).encode()))
    file = LabelFile(path, NAMES)
    assert not file.can_undo
    assert file.entry(0) == Entry("cat")


def test_the_journal_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, names = tmp_path / "labels.csv", [f"{n}.png" for n in range(60)]
    monkeypatch.setattr(label_file, "STEPS", 10)
    file = LabelFile(path, names)
    for n in range(25):
        file.set_label([n], "cat")
    assert len(read_journal(journal_path(path), digest(path.read_bytes()))) == 10
    assert len(histories(path, names)) == 11
    monkeypatch.setattr(label_file, "MOST_ENTRIES", 50)
    file = LabelFile(path, names)
    file.set_label([59], "dog")
    file.set_label(range(60), "all")  # more entries than are kept: this step alone
    assert len(histories(path, names)) == 2
