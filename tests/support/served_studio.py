"""A studio that is served in this process, on a real socket, and how to ask it."""

import http.client
import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from command_processes import PATIENCE

from dualtemp.encoder.embedding_file import Columns, write_features
from dualtemp.studio.opening import Opening, open_for_studio
from dualtemp.studio.server import LOOPBACK, Server, build_app, open_socket
from dualtemp.studio.workspace import Places, Workspace

TOKEN = "a-token-of-the-tests"
HTML = "<img src=x onerror=alert(1)>.png"  # a file's name


class Answer(NamedTuple):
    """What the server said."""

    code: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class ServedStudio:
    """A running studio."""

    def __init__(self, workspace: Workspace, port: int, token: str = TOKEN) -> None:
        self.workspace, self.port, self.token = workspace, port, token
        self.address = f"http://{LOOPBACK}:{port}/?token={token}"

    def ask(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> Answer:
        """GET, or POST with a body (bytes as they are, else JSON); with the cookie unless headers say otherwise."""
        return ask(self.port, self.token, path, body, method, **headers)

    def until(self, happened: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def finish_job(self, answer: Answer) -> dict[str, Any]:
        """Wait for the job that an answer names; returns it."""
        assert answer.code == 200, answer.body
        number = answer.json()["job"]
        jobs = self.workspace.background.jobs
        self.until(lambda: jobs[number].state not in ("waiting", "running"))
        return vars(jobs[number])


def ask(port: int, token: str, path: str, body: Any = None, method: str | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE)
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    sent = {"Cookie": f"dualtemp-studio-{port}={token}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method or ("GET" if body is None else "POST"), path, content, sent)
    answer = connection.getresponse()
    found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    connection.close()
    return found


@contextmanager
def serve(what: Path | str | Opening, folder: Path, **options: Any) -> Any:
    """Serve a folder, a run or a file of features; what is written goes below `folder`.

    options: of `open_for_studio`; columns: a file of columns; wait: False to go on while the images are being opened.
    """
    columns, wait = options.pop("columns", None), options.pop("wait", True)
    opening = what if isinstance(what, Opening) else open_for_studio(str(what), **options)
    places = Places(folder / "labels.csv", folder / "export", folder / "runs", columns)
    workspace = Workspace(opening, places, "cpu")
    sock = open_socket(LOOPBACK, 0)
    port = sock.getsockname()[1]
    server = Server(workspace, build_app(workspace, TOKEN, LOOPBACK, port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    served = ServedStudio(workspace, port)
    try:
        if wait:
            served.until(lambda: workspace.ready or workspace.problem)
        assert not workspace.problem, workspace.problem
        yield served
    finally:
        workspace.news.close()
        server.should_exit = True
        thread.join(10)
        server.force_exit = True  # without waiting for a page that holds on
        thread.join(PATIENCE)
        sock.close()


def unpacked(body: bytes, dtype: Any) -> tuple[dict[str, Any], np.ndarray]:
    """A head and its one array, read as the page reads them."""
    length = int.from_bytes(body[:4], "little")
    head = json.loads(body[4 : 4 + length])
    return head, np.frombuffer(body, dtype, offset=4 + length)


def write_embeddings(path: Path, images: Path, names: list[str], labels: list[int], classes: tuple[str, ...]) -> None:
    """A file of features as `dualtemp embed` writes it: each class around a direction of its own."""
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(len(classes), 16))
    features = (centers[labels] + 0.25 * draw.normal(size=(len(names), 16))).astype(np.float32)
    columns = Columns(names, None, (), np.array(labels), classes)
    with open(path, "wb") as file:
        write_features(file, path.suffix, columns, [features], 16, {"source": str(images)})
