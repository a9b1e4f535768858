"""Only the studio's own pages, with the token, may send requests; all others are refused before they reach a route.

A page of another site in the same browser must not reach the studio. Four checks keep it out: the Host header (against
foreign names made to point at this address), Origin and Sec-Fetch-Site (against requests from other pages), and a
random token, which is in the address once and then in a cookie that other sites' requests do not carry.
"""

import secrets
from ipaddress import ip_address
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Only the package's own script and style sheet can be loaded, and only the studio itself can be called.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
MOST_BYTES = 32 << 20  # largest body of a request


class TooLarge(Exception):
    """A request's body is longer than MOST_BYTES."""


def new_token() -> str:
    """Make a secret that cannot be guessed."""
    return secrets.token_urlsafe(24)


def is_wildcard(host: str) -> bool:
    """Whether a server bound to `host` listens on every address of this computer."""
    return host in ("", "0.0.0.0", "::")


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """The Host headers of requests that are meant for this server."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


class Guard:
    """ASGI middleware that refuses requests that do not come from the studio's own page.

    Args:
        app: the application to guard.
        host, port: the address to which the server is bound.
        token: the secret.
        cookie: the cookie's name; one for each port, since cookies are shared between ports.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: str, cookie: str) -> None:
        self.app, self.port, self.token, self.cookie = app, port, token, cookie
        self.hosts, self.everywhere = allowed_hosts(host, port), is_wildcard(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason why it is refused."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        comes_with_token = scope["path"] == "/" and self._is_token(_query(scope).get("token", [""])[0])
        refused = self._refusal(headers, comes_with_token)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.decode().lower() for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name not in own]
                if comes_with_token and not refused:
                    words = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                    extra.append((b"set-cookie", words.encode()))
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        if refused:
            await PlainTextResponse(f"{refused}\n", 403)(scope, receive, sending)
            return
        await self.app(scope, _limited(receive), sending)

    def _refusal(self, headers: Headers, comes_with_token: bool) -> str | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._means_this(hosts[0].lower()):
            return "This address is not the studio's: open the one that `dualtemp studio` has printed."
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{hosts[0].lower()}":
            return "Another site may not ask the studio."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not comes_with_token:
            return "Another site may not ask the studio."
        if not comes_with_token and not self._is_token(self._cookie_value(headers)):
            return "Open the address with its token, as `dualtemp studio` has printed it."
        return None

    def _means_this(self, host: str) -> bool:
        """Whether a Host header names this server: by a known name, or by IP address if it listens everywhere.

        An attacker can make a name point here, but not an IP address.
        """
        if host in self.hosts or not self.everywhere:
            return host in self.hosts
        name, _, port = host.rpartition(":")
        try:
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return port == str(self.port)

    def _cookie_value(self, headers: Headers) -> str:
        """The value of the token's cookie. Cookies of other local programs come along too, and may hold anything."""
        pairs = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
        return next((value for name, _, value in pairs if name == self.cookie), "")

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(errors="replace"), self.token.encode())


def _query(scope: Scope) -> dict[str, list[str]]:
    try:
        return parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=100)
    except ValueError:  # too many fields
        return {}


def _limited(receive: Receive) -> Receive:
    """Limit a body by counting its bytes, whatever its Content-Length says."""
    count = 0

    async def counted() -> Message:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        if count > MOST_BYTES:
            raise TooLarge
        return message

    return counted
