"""What the package says of itself: one version, bounds of what it needs."""

import re
from pathlib import Path

from lowest_versions import declared, lowest, numbers, pinned

import dualtemp

ROOT = Path(__file__).parents[1]


def test_the_citation_names_the_version() -> None:
    (version,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version == dualtemp.__version__


def test_the_changes_are_told_by_version_the_newest_first() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    versions = [numbers(heading.split(",")[0]) for heading in headings[1:]]
    assert versions == sorted(versions, reverse=True)
    assert all(version <= numbers(dualtemp.__version__) for version in versions)


def test_everything_that_is_needed_has_a_lower_bound_and_the_suites_version_meets_it() -> None:
    assert [word for word in declared() if ">=" not in word] == []
    for name, bound in lowest().items():
        assert numbers(pinned().get(name, bound)) >= numbers(bound), name


def test_the_highest_of_several_bounds_counts() -> None:
    assert numbers("1.0.16") > numbers("1.0.9")
    assert lowest()["scipy"] == "1.13"


def test_the_quick_tests_that_the_makefile_names_are_there() -> None:
    named = set(re.findall(r"tests/[\w/]+\.py", (ROOT / "Makefile").read_text()))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
