"""Who may talk to the studio, and which of the framework's addresses exist at all.

- On this machine only the address with the random token opens the page. It sets a cookie; the token leaves the address.
- On other machines a password does the same.
- `Host` must name this machine: a page of a stranger whose name suddenly points here (DNS rebinding) is refused.
- `Origin`, where a browser sends one, must be the studio itself.
- Only the addresses that the page needs are answered. Files come from the workspace alone.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_API = "/gradio_api/"
_READ = ("/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt")
_READ_BELOW = ("/assets/", "/static/", "/svelte/")
_API_READ = ("info", "theme.css", "startup-events", "queue/data", "upload_progress", "app_id")
_API_READ_BELOW = ("heartbeat/",)
_API_WRITE = ("queue/join", "upload", "cancel", "reset")
_FILE = _API + "file="
_WRONG_PASSWORD_SECONDS = 1.0
_FORM_BYTES = 4096
_HEADERS = (
    # Nothing is loaded from another machine, whatever the framework would like.
    (b"content-security-policy", b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)  # fmt: skip
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>glocal studio</title><body style="font:1.1rem system-ui;max-width:34rem;margin:4rem auto;padding:0 1rem">
<h1>glocal studio</h1>{}</body></html>"""
_FORM = """<p>{}</p><form method="post" action="/enter"><label>Password
<input type="password" name="password" autofocus autocomplete="current-password"></label> <button>Enter</button></form>"""


class Guard:
    """An ASGI application around the page.

    Parameters
    ----------
    app : ASGI application
        The page.
    served : Path
        The only folder whose files are answered.
    port : int
        Where the studio listens.
    host : str
        The name or address to listen on, as the user gave it.
    password : str or None
        What opens the page; None: the token in the address.
    """

    def __init__(self, app: App, *, served: Path, port: int, host: str, password: str | None = None) -> None:
        self.app, self.served, self.port, self.password = app, served.resolve(), port, password
        self.token = secrets.token_urlsafe(24)
        self.secret = secrets.token_urlsafe(24)
        self.cookie = f"glocal_studio_{port}"
        self.names = {"localhost", host.lower()}
        if password is not None:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on to the page."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # the page uses no other protocol
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        send = _with_headers(send)
        path = scope["path"]
        if not self._is_host(headers.get("host", "")) or not self._is_origin(headers):
            await _answer(
                send, 403, "<p>This name or page may not talk to the studio. Use the address that it printed.</p>"
            )
        elif self.password is not None and path == "/enter" and scope["method"] == "POST":
            await self._enter(receive, send)
        elif not self._is_known(headers.get("cookie", "")):
            await self._welcome(scope, send)
        elif not self._is_offered(scope["method"], path):
            await _answer(send, 404, "<p>There is no such page.</p>")
        elif path == "/" and "token=" in scope["query_string"].decode("latin-1"):
            await _move(send, ())  # known already: only the token has to leave the address
        else:
            await self.app(scope, receive, send)

    def _is_host(self, host: str) -> bool:
        name, port = _split(host)
        if port != self.port:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.password is not None  # an address, unlike a name, cannot be rebound

    def _is_origin(self, headers: dict[str, str]) -> bool:
        origin = headers.get("origin")
        return origin is None or origin.lower() in (
            f"http://{headers['host']}".lower(),
            f"https://{headers['host']}".lower(),
        )

    def _is_known(self, cookies: str) -> bool:
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except Exception:  # a cookie of another page may be damaged
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self.secret.encode())

    def _is_offered(self, method: str, path: str) -> bool:
        """Whether the page needs this address."""
        if path.startswith(_API):
            rest = path.removeprefix(_API).rstrip("/")
            if method in ("GET", "HEAD"):
                if path.startswith(_FILE):
                    return self._is_served(path.removeprefix(_FILE))
                return rest in _API_READ or rest.startswith(_API_READ_BELOW)
            return method == "POST" and rest in _API_WRITE
        below = path.startswith(_READ_BELOW) and ".." not in path and "//" not in path
        return method in ("GET", "HEAD") and (path in _READ or below)

    def _is_served(self, name: str) -> bool:
        """Whether a file lies in the workspace, after all links were followed."""
        try:
            real = Path(os.path.realpath(name))
            return Path(name).is_absolute() and real.is_relative_to(self.served) and real.is_file()
        except (OSError, ValueError):
            return False

    async def _welcome(self, scope: Scope, send: Send) -> None:
        """Let the right token in; ask everybody else."""
        if self.password is not None:
            await _answer(send, 401, _FORM.format("This studio asks for its password."))
            return
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and hmac.compare_digest(given.encode(), self.token.encode()):
            await _move(send, (self._set_cookie(),))
        else:
            await _answer(send, 403, "<p>The studio opens with the address that it printed, which carries a token.</p>")

    async def _enter(self, receive: Receive, send: Send) -> None:
        body = b""
        while len(body) <= _FORM_BYTES:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        given = parse_qs(body.decode("utf-8", "replace")).get("password", [""])[0]
        if hmac.compare_digest(given.encode(), (self.password or "").encode()):
            await _move(send, (self._set_cookie(),))
            return
        await asyncio.sleep(_WRONG_PASSWORD_SECONDS)  # trying many takes long
        await _answer(send, 401, _FORM.format("That was not the password."))

    def _set_cookie(self) -> tuple[bytes, bytes]:
        return b"set-cookie", f"{self.cookie}={self.secret}; HttpOnly; SameSite=Strict; Path=/".encode()


def _split(host: str) -> tuple[str, int]:
    """Return name and port of a `Host`; a missing port is 80.

    >>> _split("[::1]:7860"), _split("localhost")
    (('::1', 7860), ('localhost', 80))
    """
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "80"
    return name.strip("[]").lower(), int(port) if port.isdecimal() else -1


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str) -> None:
    body = _PAGE.format(text).encode()
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _move(send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Send the browser to the page itself."""
    found = [(b"location", b"/"), (b"content-length", b"0"), *headers]
    await send({"type": "http.response.start", "status": 303, "headers": found})
    await send({"type": "http.response.body", "body": b""})
