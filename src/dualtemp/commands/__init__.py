"""The commands of the command line, one file each: `command.py` defines what a command is, `lookup.py` finds them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what `lookup` finds by listing this folder, for readers and tools that follow imports
    from dualtemp.commands import (  # noqa: F401
        analyze,
        clean,
        data,
        demo,
        doctor,
        embed,
        evaluate,
        explore,
        export,
        grid,
        index,
        judge,
        near_duplicates,
        paper,
        predict,
        report,
        reproduce,
        resume,
        runs,
        search,
        select,
        studio,
        train,
    )
