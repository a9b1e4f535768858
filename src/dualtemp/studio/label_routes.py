"""Routes for labeling: labels, tags, undo, what to label next."""

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dualtemp.errors import UserError
from dualtemp.studio import requests as asked
from dualtemp.studio.label_file import Change, LabelFile, valid_word
from dualtemp.studio.routes import answering
from dualtemp.studio.workspace import Workspace, numbers_within


class LabelRoutes:
    """Every change of labels and tags."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def routes(self) -> list[Route]:
        """All of them."""
        posts = {
            "/api/label": self.label,
            "/api/tag": self.tag,
            "/api/undo": self.undo,
            "/api/suggest": self.suggest,
        }
        return [Route(address, answering(handler), methods=["POST"]) for address, handler in posts.items()]

    async def label(self, request: Request) -> Response:
        """Give images a label, or remove it."""
        body = await asked.read_body(request, asked.Labeled)
        word = None if body.label is None else _word(body.label)
        numbers = self._numbers(body.ids)
        return await self._changed(lambda labels: labels.set_label(numbers, word))

    async def tag(self, request: Request) -> Response:
        """Add a tag to images, or remove it."""
        body = await asked.read_body(request, asked.Tagged)
        word, numbers = _word(body.tag), self._numbers(body.ids)
        change = LabelFile.remove_tag if body.remove else LabelFile.add_tag
        return await self._changed(lambda labels: change(labels, numbers, word))

    async def undo(self, request: Request) -> Response:
        """Undo the newest change."""
        return await self._changed(LabelFile.undo)

    async def _changed(self, make: Callable[[LabelFile], Change | None]) -> Response:
        change = await run_in_threadpool(self.workspace.change_labels, make)
        if change is None:
            raise UserError("there is nothing to undo")
        labels = self.workspace.shown.labels
        return JSONResponse(
            {"version": change.version, "changed": len(change.entries), "ids": list(change.entries)[:10_000],
             "can_undo": labels.can_undo, "words": self.workspace.label_words(), "tags": self.workspace.tag_words()}
        )  # fmt: skip

    async def suggest(self, request: Request) -> Response:
        """Images to label next."""
        body = await asked.read_body(request, asked.Suggested)
        from dualtemp.studio.suggestions import suggest

        found = await run_in_threadpool(suggest, self.workspace, body.way, body.count)
        return JSONResponse({"ids": [int(i) for i in found.ids], "about": found.about})

    def _numbers(self, ids: list[int]) -> list[int]:
        return numbers_within(ids, len(self.workspace.shown.images))


def _word(text: str) -> str:
    word = valid_word(text)
    if word is None:
        raise UserError("labels and tags are printable words without |, at most 200 characters")
    return word
