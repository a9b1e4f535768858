"""The changes that can be undone, kept beside the label file, so that a restarted studio can still undo them.

    {"states": ["<digest>", "<digest>"]}
    {"cats/1.jpg": [null, []]}
    {"cats/1.jpg": ["cat", []], "cats/2.jpg": [null, ["night"]]}

After the first line, each line is a step, the newest last: the entries of its images before it. The whole journal is
written before the label file, so whenever a studio is killed, the label file is in the state either before or after the
newest step. `states` are the digests of these two states, which tell the next studio which one it is. In any other
state, another program has written the file, and the steps no longer apply. The labels are synced to disk, the journal
is not: a power cut may cost the ability to undo, but no label.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import whole_file

Said = tuple[str | None, tuple[str, ...]]  # of an image: its label and its tags
HEAD = "states"


def journal_path(labels: Path) -> Path:
    """The path of a label file's journal."""
    return labels.with_name(f".{labels.name}.undo")


def digest(content: bytes | None) -> str:
    """The state of a label file with this content; content: None if there is no file."""
    return "none" if content is None else hashlib.sha256(content).hexdigest()


def step_line(before: Mapping[str, Said]) -> bytes:
    """A step as a line of the journal; before: the entries of its images before it, by name."""
    return json.dumps(before).encode() + b"\n"


def write_journal(path: Path, lines: Sequence[bytes], states: tuple[str, str]) -> None:
    """Write the steps; states: of the label file before and after the newest one."""
    with whole_file(path, sync=False) as file:
        file.write(json.dumps({HEAD: states}).encode() + b"\n")
        file.writelines(lines)


def read_journal(path: Path, state: str) -> list[dict[str, Said]]:
    """The steps that led to a label file in this state; none if the journal is damaged or of another state."""
    try:
        head, *lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        before, after = head[HEAD]
        steps = [{str(name): _said(said) for name, said in line.items()} for line in lines]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    if state == after:
        return steps
    return steps[:-1] if state == before else []


def _said(value: Any) -> Said:
    label, tags = value
    if not isinstance(label, str | None) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("a label and tags are expected")
    return label, tuple(tags)
