from dualtemp.text import similar_words, suggest

METHODS = ["moco", "simmoco", "simco", "byol"]


def test_a_mistyped_word_is_answered_with_the_nearest() -> None:
    assert suggest("simcoo", METHODS) == "did you mean 'simco'?"
    assert similar_words("simcoo", METHODS, count=2) == ["simco", "simmoco"]


def test_a_word_like_no_other_is_answered_with_all_or_with_what_was_said() -> None:
    assert suggest("xyz", METHODS) == "choose among moco, simmoco, simco, byol"
    assert suggest("xyz", METHODS, otherwise="see --help") == "see --help"
    assert similar_words("xyz", METHODS) == []
