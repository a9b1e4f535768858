from pathlib import Path

import dualtemp
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
