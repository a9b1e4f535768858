from pathlib import Path

import pytest

import dualtemp
from dualtemp.quantities import size
from dualtemp.text import similar_words, suggest

METHODS = ["moco", "simmoco", "simco", "byol"]


def test_a_mistyped_word_is_answered_with_the_nearest() -> None:
    assert suggest("simcoo", METHODS) == "did you mean 'simco'?"
    assert similar_words("simcoo", METHODS, count=2) == ["simco", "simmoco"]


def test_a_word_like_no_other_is_answered_with_all_or_with_what_was_said() -> None:
    assert suggest("xyz", METHODS) == "choose among moco, simmoco, simco, byol"
    assert suggest("xyz", METHODS, otherwise="see --help") == "see --help"
    assert similar_words("xyz", METHODS) == []


def test_the_question_is_asked_in_one_place() -> None:
    package = Path(dualtemp.__file__).parent
    asking = [path.name for path in package.rglob("*.py") if "did you mean" in path.read_text()]
    assert asking == ["text.py"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_400, "999 kB"),
        (999_999, "1.0 MB"),
        (256_000_000, "256 MB"),
        (999_999_999, "1.0 GB"),
    ],
)
def test_a_size_has_two_to_three_digits_and_never_a_thousand_of_a_unit(number: int, words: str) -> None:
    assert size(number) == words
