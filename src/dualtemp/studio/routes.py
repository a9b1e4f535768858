"""The routes for looking at images, and the answers to errors of all routes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dualtemp import __version__
from dualtemp.data.loading.decode import UnreadableImage
from dualtemp.errors import UserError
from dualtemp.studio import requests as asked
from dualtemp.studio.finding import find_like, find_similar, find_text
from dualtemp.studio.frames import pack
from dualtemp.studio.guard import TooLarge
from dualtemp.studio.thumbnail_sheets import COLUMNS, MOST, SIDES
from dualtemp.studio.workspace import NotReady, Workspace, numbers_within

STATIC = {
    "/studio.js": ("studio.js", "text/javascript; charset=utf-8"),
    "/studio.css": ("studio.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
Handler = Callable[[Request], Awaitable[Response]]


class LookRoutes:
    """Routes for looking: the page itself, points, columns, thumbnails, search."""

    def __init__(self, workspace: Workspace, more: Callable[[], dict[str, Any]]) -> None:
        """more: returns further state for a page that opens."""
        self.workspace, self.more = workspace, more

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/", _static("index.html", "text/html; charset=utf-8")),
            *(Route(address, _static(*file)) for address, file in STATIC.items()),
            Route("/api/state", answering(self.state)),
            Route("/api/events", answering(self.events)),
            Route("/api/points", answering(self.points)),
            Route("/api/columns/{name}", answering(self.column)),
            Route("/api/thumbs", answering(self.thumbs)),
            Route("/api/images/{number:int}", answering(self.image)),
            Route("/api/items", answering(self.items), methods=["POST"]),
            Route("/api/search", answering(self.search)),
            Route("/api/similar", answering(self.similar), methods=["POST"]),
            Route("/api/drop", answering(self.drop), methods=["POST"]),
            Route("/api/space", answering(self.show_space), methods=["POST"]),
            Route("/api/jobs/stop", answering(self.stop_job), methods=["POST"]),
        ]

    async def state(self, request: Request) -> Response:
        """Everything that a page needs at first, or the progress of opening the images."""
        return JSONResponse(await run_in_threadpool(self._state))

    def _state(self) -> dict[str, Any]:
        workspace = self.workspace
        about = {
            "version": __version__,
            "title": workspace.opening.title,
            "ready": workspace.ready,
            "problem": workspace.problem,
            "notes": workspace.notes,
            "jobs": workspace.background.listed(),
        }
        if not workspace.ready:
            return about
        shown = workspace.shown
        return {
            **about,
            "count": len(shown.images),
            "pictures": shown.images.images is not None,
            "source": shown.images.source,
            "spaces": workspace.described_spaces(),
            "current": workspace.current,
            "columns": workspace.column_names(),
            "labels": self._labels(),
            "predictions": workspace.probe.described(),
            "files": {"labels": str(workspace.places.labels), "exports": str(workspace.places.exports)},
            **self.more(),
        }

    def _labels(self) -> dict[str, Any]:
        workspace = self.workspace
        version, entries, can_undo = workspace.shown.labels.snapshot()
        said = {str(i): [entry.label, list(entry.tags)] for i, entry in entries.items()}
        words = {"words": workspace.label_words(), "tags": workspace.tag_words()}
        return {"version": version, "entries": said, **words, "can_undo": can_undo}

    async def events(self, request: Request) -> Response:
        """News, as server-sent events."""
        first = json.dumps({"ready": self.workspace.ready})
        return StreamingResponse(self.workspace.news.listen(first), media_type="text/event-stream")

    async def points(self, request: Request) -> Response:
        """The positions of all images on a map."""
        number = _whole(request, "space", 0, len(self.workspace.shown.spaces) - 1)
        space = self.workspace.shown.spaces[number]
        layout = request.query_params.get("layout", "components")
        if layout not in space.places:
            raise HTTPException(404, "no such map yet")
        packed = pack({"count": len(space.features), "note": space.notes.get(layout, "")}, space.places[layout])
        return Response(packed, media_type="application/octet-stream")

    async def column(self, request: Request) -> Response:
        """The values of a column."""
        found = await run_in_threadpool(self.workspace.column, request.path_params["name"])
        if found is None:
            raise HTTPException(404, "no such column")
        head = {"title": found.title, "kind": found.kind, "categories": found.categories, "about": found.about}
        return Response(pack(head, found.values), media_type="application/octet-stream")

    async def thumbs(self, request: Request) -> Response:
        """A sheet of thumbnails."""
        shown, words = self.workspace.shown, request.query_params.get("ids", "").split(",")
        side = _whole(request, "side", SIDES[0], SIDES[-1])
        if side not in SIDES or not 1 <= len(words) <= MOST or not all(word.isdecimal() for word in words):
            raise HTTPException(400, f"up to {MOST} image numbers, and a side of {SIDES}")
        if any(len(word) > 12 for word in words):
            raise HTTPException(400, "no such image")
        numbers = numbers_within(map(int, words), len(shown.images))
        sheet = await run_in_threadpool(shown.sheets.sheet, numbers, side)
        return Response(sheet, media_type="image/jpeg", headers={"x-columns": str(COLUMNS)})

    async def image(self, request: Request) -> Response:
        """One image, large."""
        shown = self.workspace.shown
        (number,) = numbers_within([request.path_params["number"]], len(shown.images))
        found = await run_in_threadpool(shown.sheets.image, number)
        if found is None:
            raise HTTPException(404, "this image cannot be read, or it is not known where it is")
        return Response(found, media_type="image/jpeg")

    async def items(self, request: Request) -> Response:
        """Names, labels and other facts of some images."""
        body = await asked.read_body(request, asked.Items)
        numbers = numbers_within(body.ids, len(self.workspace.shown.images))
        return JSONResponse({"items": await run_in_threadpool(self._items, numbers)})

    def _items(self, numbers: list[int]) -> list[dict[str, Any]]:
        shown, found = self.workspace.shown, self.workspace.probe.predictions
        images = shown.images
        rows = []
        for i in numbers:
            entry = shown.labels.entry(i)
            row = {"id": i, "name": images.names[i], "part": images.parts[i], "given": images.given_label(i)}
            row |= {"label": entry.label, "tags": entry.tags}
            if found is not None and i < len(found.codes):
                row |= {"prediction": found.classes[found.codes[i]], "confidence": round(float(found.confidence[i]), 4)}
            rows.append(row)
        return rows

    async def search(self, request: Request) -> Response:
        """Images found by words of their names, labels and tags."""
        text = request.query_params.get("q", "")[:500]
        found = await run_in_threadpool(find_text, self.workspace, text)
        return Response(pack({"count": len(found)}, found.astype(np.int32)), media_type="application/octet-stream")

    async def similar(self, request: Request) -> Response:
        """Images like some others."""
        body = await asked.read_body(request, asked.Similar)
        numbers = numbers_within(body.ids, len(self.workspace.shown.images))
        return _near(*await run_in_threadpool(find_similar, self.workspace, numbers, body.most))

    async def drop(self, request: Request) -> Response:
        """Images like a picture that was dropped onto the page; the request's body is the file itself."""
        if not self.workspace.ready:
            raise NotReady("the images are still being opened")
        encoded = await request.body()
        try:
            return _near(*await run_in_threadpool(find_like, self.workspace, encoded))
        except UnreadableImage as error:
            raise UserError(f"the picture cannot be read: {error.reason}") from None

    async def show_space(self, request: Request) -> Response:
        """Switch to another encoder's features."""
        body = await asked.read_body(request, asked.Which)
        await run_in_threadpool(self.workspace.show_space, body.number)
        return JSONResponse({})

    async def stop_job(self, request: Request) -> Response:
        """Stop a background job."""
        body = await asked.read_body(request, asked.Which)
        return JSONResponse({"stopped": self.workspace.background.stop(body.number)})


def answering(handler: Handler) -> Handler:
    """Turn a user's mistake, or a full disk, into a response of one line."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except NotReady as error:
            return _refusal(409, str(error))
        except UserError as error:
            return _refusal(400, str(error))
        except TooLarge:
            return _refusal(413, "the request is too large")
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            return _refusal(507, f"{where}{error.strerror or error}; nothing was changed")
        except asyncio.CancelledError:
            raise

    return answer


def _refusal(code: int, text: str) -> Response:
    return JSONResponse({"error": " ".join(text.split())}, code)


def _near(numbers: np.ndarray, cosines: np.ndarray) -> Response:
    return JSONResponse({"ids": numbers.tolist(), "cosines": [round(float(s), 5) for s in cosines]})


def _whole(request: Request, name: str, least: int, most: int) -> int:
    text = request.query_params.get(name, str(least))
    if not (text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise HTTPException(400, f"{name} is a number from {least} to {most}")
    return int(text)


def _static(name: str, kind: str) -> Handler:
    async def serve(request: Request) -> Response:
        content = await run_in_threadpool(files("dualtemp.studio").joinpath("static", name).read_bytes)
        return Response(content, media_type=kind)

    return serve
