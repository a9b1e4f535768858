import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from command_processes import PATIENCE
from lowest_versions import pinned

import dualtemp

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("packaging", reason="needs the dev extra")
    out = tmp_path_factory.mktemp("sbom") / "bill.json"
    command = [sys.executable, str(ROOT / "release" / "sbom.py"), "--out", str(out)]
    texts = []
    for _ in range(2):
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        texts.append(out.read_text())
    assert texts[0] == texts[1], "the same environment gives the same bytes"
    return json.loads(texts[0])


def test_the_bill_of_materials_names_every_requirement_with_its_version(bill: dict[str, Any]) -> None:
    named = {each["name"]: each for each in bill["components"]}
    assert {"torch", "numpy", "pillow", "safetensors", "timm", "faiss-cpu", "starlette", "pyarrow"} <= set(named)
    assert "lightly" not in named, "developers' tools are no part of it"
    assert named["torch"]["scope"] == "required"
    assert named["starlette"]["scope"] == "optional"
    for name in ("numpy", "pillow", "timm"):
        assert named[name]["version"] == metadata.version(name)
    assert named["ray"]["version"] in (pinned()["ray"], _installed("ray"))
    assert all(each["licenses"] for name, each in named.items() if name in ("numpy", "torch", "jinja2", "rich"))


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def test_the_bill_of_materials_is_connected(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    own = bill["metadata"]["component"]
    assert own["version"] == dualtemp.__version__
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    graph = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert set(graph) == {own["bom-ref"], *refs}
    reached, waiting = set(), [own["bom-ref"]]
    while waiting:
        here = waiting.pop()
        waiting += [ref for ref in graph[here] if ref not in reached]
        reached.add(here)
    assert reached == set(graph), "nothing stands there that nobody needs"
