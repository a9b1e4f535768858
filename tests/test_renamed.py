"""Former names of arguments."""

import warnings

import pytest

from dualtemp.renamed import renamed_arguments


@renamed_arguments(watch="observer")
def pair(first: int, *, observer: str = "nobody") -> tuple[int, str]:
    """Return both."""
    return first, observer


def test_a_former_name_gives_the_same_with_a_warning_that_points_at_the_caller() -> None:
    with pytest.warns(DeprecationWarning, match="the argument 'watch' of pair is now 'observer'") as caught:
        assert pair(1, watch="me") == (1, "me")  # pyright: ignore[reportCallIssue]
    assert caught[0].filename == __file__


def test_the_new_name_gives_no_warning() -> None:
    with warnings.catch_warnings(action="error"):
        assert pair(1, observer="me") == pair(first=1, observer="me") == (1, "me")


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="got both 'observer' and its former name 'watch'"):
        pair(1, observer="a", watch="b")  # pyright: ignore[reportCallIssue]
