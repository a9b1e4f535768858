"""Who may ask the studio: its own page, with the token; no other site, no other name for this computer."""

import asyncio
import http.client
from concurrent.futures import ThreadPoolExecutor

import pytest
from served_studio import TOKEN, ServedStudio
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from dualtemp.studio.guard import Guard


def test_the_address_with_its_token_opens_the_page_and_sets_a_strict_cookie(shared_studio: ServedStudio) -> None:
    answer = shared_studio.ask(f"/?token={TOKEN}", Cookie="")
    assert answer.code == 200
    assert b"<title>dualtemp studio" in answer.body
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/?token=", "/studio.js", "/api/state", "/api/events", "/no"])
def test_without_the_token_nothing_is_told(shared_studio: ServedStudio, path: str) -> None:
    for cookie in ("", f"dualtemp-studio-{shared_studio.port}=wrong", "a=b; ;;=", '"'):
        answer = shared_studio.ask(path, Cookie=cookie)
        assert answer.code == 403
        assert b"image" not in answer.body
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "other", ['a={"x":1}', "x[y]=1", 'json=[{"a":1}]', "name=Jos\u00e9", 'q="a', "foo=a b", "flag", "=", "a=;b"]
)
def test_cookies_of_other_programs_on_this_computer_do_not_lock_it(shared_studio: ServedStudio, other: str) -> None:
    own = f"dualtemp-studio-{shared_studio.port}={TOKEN}"
    for cookies in (f"{other}; {own}", f"{own}; {other}"):
        assert shared_studio.ask("/api/state", Cookie=cookies).code == 200


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", ""])
def test_where_it_listens_everywhere_it_is_asked_by_number_but_not_by_any_name(bound: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("here")(scope, receive, send)

    def code(bound: str, host: str) -> int:
        headers = [(b"host", host.encode()), (b"cookie", f"c={TOKEN}".encode())]
        scope = {"type": "http", "path": "/", "query_string": b"", "headers": headers}
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        asked = Guard(app, bound, 8765, TOKEN, "c")(scope, app, send)  # pyright: ignore[reportArgumentType]
        with ThreadPoolExecutor(1) as pool:  # a browser's test may have left a loop running in this thread
            pool.submit(asyncio.run, asked).result()
        return sent[0]["status"]

    for host in ("192.168.1.5:8765", "[fe80::1]:8765", "localhost:8765", "127.0.0.1:8765"):
        assert code(bound, host) == 200
    for host in ("evil.example:8765", "192.168.1.5:80", "192.168.1.5", "1.2.3.4.evil.example:8765"):
        assert code(bound, host) == 403
    assert code("192.168.1.5", "192.168.1.5:8765") == 200
    assert code("192.168.1.5", "192.168.1.6:8765") == 403


def test_the_token_counts_only_in_the_pages_own_address(shared_studio: ServedStudio) -> None:
    assert shared_studio.ask(f"/api/state?token={TOKEN}", Cookie="").code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost.evil.io:{port}", ""])
def test_a_name_that_was_made_to_point_here_is_refused(shared_studio: ServedStudio, host: str) -> None:
    for path in ("/api/state", f"/?token={TOKEN}"):
        assert shared_studio.ask(path, Host=host.format(port=shared_studio.port)).code == 403
    assert shared_studio.ask("/api/state", Host=f"localhost:{shared_studio.port}").code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_a_page_of_another_site_cannot_ask(shared_studio: ServedStudio, origin: str) -> None:
    origin = origin.format(port=shared_studio.port)
    for body in (None, {"ids": [0], "label": "stolen"}):
        answer = shared_studio.ask("/api/label" if body else "/api/state", body, Origin=origin)
        assert answer.code == 403
    assert shared_studio.ask("/api/state", Sec_Fetch_Site="cross-site").code == 403
    assert shared_studio.ask("/api/state", Sec_Fetch_Site="same-site").code == 403
    assert shared_studio.ask("/api/state", Sec_Fetch_Site="same-origin").code == 200
    own = f"http://127.0.0.1:{shared_studio.port}"
    assert shared_studio.ask("/api/state", Origin=own).code == 200
    assert shared_studio.workspace.shown.labels.entries == {}


def test_two_host_headers_are_refused(shared_studio: ServedStudio) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared_studio.port)
    connection.putrequest("GET", "/api/state", skip_host=True)
    connection.putheader("Host", f"127.0.0.1:{shared_studio.port}")
    connection.putheader("Host", "evil.example")
    connection.putheader("Cookie", f"dualtemp-studio-{shared_studio.port}={TOKEN}")
    connection.endheaders()
    assert connection.getresponse().status in (400, 403)
    connection.close()


def test_a_body_without_end_is_cut(shared_studio: ServedStudio) -> None:
    huge = b"0" * (33 << 20)
    assert shared_studio.ask("/api/drop", huge).code == 413
    assert shared_studio.ask("/api/label", huge).code == 413
