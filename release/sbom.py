"""Write a bill of materials, CycloneDX 1.5 in JSON: what dualtemp and its extras need, with versions and licenses.

    python release/sbom.py --out dist/dualtemp.cdx.json [--extra studio ...]

Versions are those that are installed here; of packages that are not, those pinned in constraints.txt, else none.
Licenses are what the packages' own metadata state. The same environment gives the same bytes.
"""

import argparse
import json
import re
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOR_DEVELOPERS = {"suite", "test", "dev", "docs", "peers"}  # extras that no user of the package installs
TITLES = {"Apache Software License 2.0": "Apache-2.0", "Apache License": "Apache-2.0", "MIT License": "MIT"}


def needs_of(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What an installed package requires here, with these extras; nothing if it is not installed."""
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for text in required:
        requirement = Requirement(text)
        choices = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(requirement.marker.evaluate(choice) for choice in choices):
            found.append(requirement)
    return found


def declared(extras: list[str]) -> tuple[list[Requirement], list[Requirement]]:
    """What pyproject.toml requires: always, and with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    chosen = extras or [name for name in optional if name not in FOR_DEVELOPERS]
    return (
        [Requirement(text) for text in project["dependencies"]],
        [requirement for name in chosen for requirement in map(Requirement, optional[name])],
    )


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def license_of(name: str) -> list[dict[str, Any]]:
    """The license that a package states, as CycloneDX has it: an expression, or a name."""
    try:
        about: Any = metadata.metadata(name)  # a message with headers
    except metadata.PackageNotFoundError:
        return []
    if expression := about.get("License-Expression"):
        return [{"expression": expression}]
    said = (about.get("License") or "").strip()
    if said and said.upper() != "UNKNOWN" and "\n" not in said and len(said) < 100:
        return [{"license": {"name": said}}]
    classifiers = [
        text.rpartition(" :: ")[2] for text in about.get_all("Classifier") or [] if text.startswith("License")
    ]
    if classifiers:
        return [{"license": {"name": text}} for text in classifiers]
    for file in metadata.files(name) or []:
        if re.search(r"(?i)^(licen[cs]e|copying)(\.\w+)?$", file.name) and Path(str(file.locate())).is_file():
            title = next((line.strip() for line in file.read_text().splitlines() if line.strip()), "")
            return [{"license": {"id": TITLES[title]} if title in TITLES else {"name": title[:100]}}]
    return []


def component(name: str, scope: str, pins: dict[str, str]) -> dict[str, Any]:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = pins.get(name, "")
    version = version.partition("+")[0]  # a build of its own, such as torch's "+cpu", is the same release
    purl = f"pkg:pypi/{name}" + f"@{version}" * bool(version)
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "scope": scope, "purl": purl}
    if version:
        found["version"] = version
    if licenses := license_of(name):
        found["licenses"] = licenses
    return found


def bill_of_materials(extras: list[str]) -> dict[str, Any]:
    version = re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/dualtemp/__init__.py").read_text(), re.MULTILINE)[0]
    always, optional = declared(extras)
    scopes: dict[str, str] = {}
    graph: dict[str, set[str]] = {}
    for scope, requirements in (("required", always), ("optional", optional)):
        waiting = list(requirements)
        while waiting:
            requirement = waiting.pop()
            name = canonicalize_name(requirement.name)
            needs = needs_of(name, frozenset(requirement.extras))
            names = {canonicalize_name(each.name) for each in needs}
            if name in scopes and names <= graph[name]:
                continue
            scopes.setdefault(name, scope)
            graph.setdefault(name, set()).update(names)
            waiting += needs
    pins = pinned()
    components = {name: component(name, scopes[name], pins) for name in sorted(scopes)}
    own = f"pkg:pypi/dualtemp@{version}"
    direct = {canonicalize_name(each.name) for each in (*always, *optional)}
    tree = {own: direct, **{components[name]["bom-ref"]: graph[name] for name in components}}
    licenses = [{"license": {"id": "MIT"}}]
    about = {
        "type": "library",
        "bom-ref": own,
        "name": "dualtemp",
        "version": version,
        "purl": own,
        "licenses": licenses,
    }
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": about},
        "components": list(components.values()),
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(components[name]["bom-ref"] for name in names)}
            for ref, names in tree.items()
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    return {**bill, "serialNumber": f"urn:uuid:{serial}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--extra", action="append", default=[], help="one of pyproject.toml (default: all for users)")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    bill = bill_of_materials(given.extra)
    given.out.write_text(json.dumps(bill, indent=1) + "\n")
    print(f"{given.out}: {len(bill['components'])} packages")


if __name__ == "__main__":
    main()
