"""Former names of arguments: they still work, with a warning."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed_arguments(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take keyword arguments by their former names: `@renamed_arguments(former="new")`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for former in new_names.keys() & kwargs.keys():
                new = new_names[former]
                if new in kwargs:
                    raise TypeError(f"{function.__qualname__} got both {new!r} and its former name {former!r}")
                message = f"the argument {former!r} of {function.__qualname__} is now {new!r}"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate
