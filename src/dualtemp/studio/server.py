"""The studio as a local web server: one process, one page, one user."""

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dualtemp.errors import UserError
from dualtemp.frameworks import frameworks
from dualtemp.studio.export_routes import ExportRoutes
from dualtemp.studio.guard import Guard
from dualtemp.studio.label_routes import LabelRoutes
from dualtemp.studio.routes import LookRoutes
from dualtemp.studio.run_routes import RunRoutes
from dualtemp.studio.settle_routes import SettleRoutes
from dualtemp.studio.suggestions import ways
from dualtemp.studio.temperature_routes import TemperatureRoutes
from dualtemp.studio.training_runs import TrainingRuns
from dualtemp.studio.workspace import Workspace

LOOPBACK = "127.0.0.1"
GRACE = 1  # seconds for connections to end when the studio closes


def build_app(workspace: Workspace, token: str, host: str, port: int) -> Guard:
    """Build the studio as an ASGI application behind its guard."""
    runs = TrainingRuns(workspace.places.runs, workspace.news, workspace.device)

    def more() -> dict[str, Any]:
        return {"runs": runs.listed(), "methods": list(frameworks()), "ways": ways()}

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        workspace.start()
        runs.start_watching()
        try:
            yield
        finally:
            runs.close()
            workspace.close()

    rooms = [
        LookRoutes(workspace, more),
        LabelRoutes(workspace),
        SettleRoutes(workspace),
        ExportRoutes(workspace),
        RunRoutes(workspace, runs),
        TemperatureRoutes(workspace),
    ]
    app = Starlette(
        routes=[route for room in rooms for route in room.routes()],
        lifespan=lifespan,
        exception_handlers={HTTPException: _explain},
    )
    return Guard(app, host, port, token, f"dualtemp-studio-{port}")


def open_socket(host: str, port: int) -> socket.socket:
    """Bind the address first, so that the port is known before anything else; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen()  # so that requests before the server runs wait, instead of being refused
    except (OSError, OverflowError) as error:
        opened.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{host}:{port} cannot be opened ({reason}): give another --port, 0 for a free one") from None
    return opened


class Server(uvicorn.Server):
    """A server that closes the pages' connections when it is asked to end; otherwise it would wait for them."""

    def __init__(self, workspace: Workspace, app: Guard) -> None:
        super().__init__(
            uvicorn.Config(
                app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE
            )
        )
        self.workspace = workspace

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End on a signal."""
        self.workspace.news.close()
        super().handle_exit(sig, frame)


async def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
