"""A studio in a process of its own, as a person starts it."""

import re

from command_processes import Commands, until
from served_studio import Answer, ask


class Started:
    """A studio that has printed its address, and has opened its images unless told not to wait for that."""

    def __init__(self, commands: Commands, *words: object, wait: bool = True) -> None:
        self.command = commands.start("studio", *words, "--no-browser", "--port", "0")
        assert until(self.command, lambda: "Ctrl-C" in self.command.out.read_text()), self.command.err.read_text()
        found = re.search(r"(http://127\.0\.0\.1:(\d+)/\?token=(\S+))", self.command.out.read_text())
        assert found is not None
        self.address, self.port, self.token = found[1], int(found[2]), found[3]
        if wait:
            assert until(self.command, lambda: self.ask("/api/state").json()["ready"])

    def ask(self, path: str, body: object = None) -> Answer:
        return ask(self.port, self.token, path, body)
