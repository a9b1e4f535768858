"""Routes for showing the two temperatures at work."""

import threading
from collections import OrderedDict
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dualtemp.studio import requests as asked
from dualtemp.studio.background import Progress
from dualtemp.studio.columns import number_column
from dualtemp.studio.routes import answering
from dualtemp.studio.workspace import Workspace, numbers_within

KEPT_ANCHORS = 4  # selections whose anchors are cached, so that moving a slider need not draw them again


class TemperatureRoutes:
    """Shares of the gradient that anchors and negatives carry."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._anchors: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._drawing = threading.Lock()

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/api/temperatures", answering(self.temperatures), methods=["POST"]),
            Route("/api/weigh", answering(self.weigh_all), methods=["POST"]),
        ]

    async def temperatures(self, request: Request) -> Response:
        """The share of the gradient that each selected anchor and each key carries."""
        body = await asked.read_body(request, asked.Weighed)
        numbers = numbers_within(body.ids, len(self.workspace.shown.images))
        return JSONResponse(await run_in_threadpool(self._weighed, numbers, body.tau_alpha, body.tau_beta))

    def _weighed(self, numbers: list[int], tau_alpha: float, tau_beta: float) -> dict[str, Any]:
        from dualtemp.studio.anchors import draw_anchors, weigh

        workspace = self.workspace
        current, space = workspace.current, workspace.space
        key = (current, tuple(numbers))
        with self._drawing:
            if key not in self._anchors:
                self._anchors[key] = draw_anchors(space, workspace.shown.images, numbers, workspace.device)
                while len(self._anchors) > KEPT_ANCHORS:
                    self._anchors.popitem(last=False)
            drawn = self._anchors[key]
        return weigh(drawn, tau_alpha, tau_beta)

    async def weigh_all(self, request: Request) -> Response:
        """W of every image as an anchor, in the background."""
        body = await asked.read_body(request, asked.OneTau)
        workspace, space = self.workspace, self.workspace.space

        def work(progress: Progress) -> str:
            from dualtemp.studio.anchors import weigh_all

            W = weigh_all(space, workspace.shown.images, body.tau_beta, workspace.device, progress)
            about = f"inter-anchor weight at tau_beta {body.tau_beta:g}: how hard the image is as an anchor"
            workspace.add_column("W", number_column("anchor weight W", W, about))
            return "color by anchor weight W"

        job = workspace.background.start("weigh", "W of every image", work, alone="W is being computed already")
        return JSONResponse({"job": job.id})
