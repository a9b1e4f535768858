"""A web server on this machine that gives parts of files, and fails when it is told to."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class ShardServer:
    """Serves the files below a folder at `address`; `requests` counts what was asked for, by (method, path).

    fail(path, method, count) may answer instead: a number is a status, "hang" never ends, "close" ends the connection,
    "short" gives half of what was asked for, "slow" a byte now and then, "whole" ignores the range; count: how often
    this was asked for so far.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests: Counter[tuple[str, str]] = Counter()
        self.fail: Callable[[str, str, int], Any] = lambda path, method, count: None
        self.ended = threading.Event()
        self._lock = threading.Lock()
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                served.answer(self, "HEAD")

            def do_GET(self) -> None:
                served.answer(self, "GET")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, request: Any, method: str) -> None:
        path = request.path.lstrip("/")
        with self._lock:
            self.requests[method, path] += 1
            count = self.requests[method, path]
        how = self.fail(path, method, count)
        if how == "hang":
            self.ended.wait(60)
            how = "close"
        if how == "close":
            request.close_connection = True
            request.connection.close()
            return
        file = self.root / path
        if isinstance(how, int) or not file.is_file():
            request.send_response(how if isinstance(how, int) else 404)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        content, found = file.read_bytes(), file.stat()
        asked, status = request.headers.get("Range"), 200
        if asked and how != "whole":
            first, _, last = asked.removeprefix("bytes=").partition("-")
            content, status = content[int(first) : int(last) + 1 if last else None], 206
        if how == "short":
            content = content[: len(content) // 2]
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("ETag", f'"{found.st_size}-{found.st_mtime_ns}"')
        request.send_header("Accept-Ranges", "bytes")
        request.end_headers()
        if method == "GET" and how == "slow":
            self._give_slowly(request, content)
        elif method == "GET":
            request.wfile.write(content)

    def _give_slowly(self, request: Any, content: bytes) -> None:
        """Never a long pause, but no end either."""
        with contextlib.suppress(OSError):  # whoever asked has given up
            for byte in content:
                request.wfile.write(bytes([byte]))
                if self.ended.wait(0.05):
                    return

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        time.sleep(0)
