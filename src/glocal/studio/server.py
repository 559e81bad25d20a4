"""Start the page: a socket, the guard in front of the page, and the end of everything when it is closed."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glocal.errors import ArgumentError, MissingDependencyError, OutputError
from glocal.jobs.memory import parse_bytes
from glocal.options import option
from glocal.studio.framework import import_gradio
from glocal.studio.guard import Guard
from glocal.studio.studio import MAX_BYTES, MAX_PIXELS, Studio, open_studio

PORT = 7860
PASSWORD = "GLOCAL_STUDIO_PASSWORD"  # the name of the variable, not the password
_PORTS = 20
_SHORTEST = 8


@dataclass(frozen=True)
class StudioOptions:
    """Flags of `glocal studio`."""

    host: str = option("127.0.0.1", f"Where to listen. Other addresses than this machine's need {PASSWORD} to be set.")
    port: int | None = option(None, f"The port. Default: the first free one from {PORT} on.", min=0, max=65535)
    open: bool = option(True, "Open the page in the browser.")
    max_upload: int = option(
        MAX_BYTES, "The largest file that can be uploaded, such as 256M.", parse=parse_bytes, metavar="<size>"
    )
    max_pixels: int = option(MAX_PIXELS, "The largest picture that can be uploaded, in pixels.", min=1)


def serve(options: StudioOptions, ready: Callable[[str], None], parent: str | None = None) -> None:
    """Run the studio until it is interrupted.

    Parameters
    ----------
    options : StudioOptions
        The user's flags.
    ready : callable(str)
        Gets the address when the page answers.
    parent : path or None
        Where the workspace is made. Default: the system's temporary folder.

    Raises
    ------
    MissingDependencyError
        gradio is not installed.
    ArgumentError
        The page would be open to other machines without a password, or the password is too short.
    OutputError
        The port is taken.
    """
    password = password_for(options.host)
    with (
        listening(options.host, options.port) as sock,
        open_studio(parent, max_bytes=options.max_upload, max_pixels=options.max_pixels) as studio,
    ):
        port = sock.getsockname()[1]
        guard = guarded_page(studio, host=options.host, port=port, password=password)
        name = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{name}:{port}/" + (f"?token={guard.token}" if password is None else "")

        def begun() -> None:
            ready(address)
            threading.Thread(target=studio.warm, name="glocal-warm", daemon=True).start()  # the page need not wait
            if options.open:
                webbrowser.open(address)

        _run(guard, sock, begun)


def guarded_page(studio: Studio, *, host: str, port: int, password: str | None = None) -> Guard:
    """Return the page of a studio behind its guard, as an ASGI application.

    Raises
    ------
    MissingDependencyError
        gradio is not installed.
    """
    # Read when gradio is imported: no word to anybody, and every file in our own folder.
    os.environ |= {
        "GRADIO_ANALYTICS_ENABLED": "False",
        # Otherwise each event makes statistics with pandas, which nobody sees.
        "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**9),
        "GRADIO_ANALYTICS_MAX_EVENTS": "1",
        "GRADIO_TEMP_DIR": str(studio.place.served),
        "GRADIO_EXAMPLES_CACHE": str(studio.place.served),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    try:
        gr = import_gradio()
        from fastapi import FastAPI
    except ImportError as error:
        message = "studio: gradio is not installed. Install glocal[studio]."
        raise MissingDependencyError(message) from error
    from glocal.studio.page import CSS, THEME, build_page

    page = build_page(studio)
    app = gr.mount_gradio_app(
        FastAPI(openapi_url=None), page, path="/", server_name=host, server_port=port, footer_links=[], run_history=False,
        allowed_paths=[], show_error=False, max_file_size=studio.max_bytes, ssr_mode=False, enable_monitoring=False,
        pwa=False, mcp_server=False, theme=THEME, css=CSS,
    )  # fmt: skip
    page.has_launched = True  # mounting leaves this out, and only then are the paths in requests checked
    guard: Any = app
    return Guard(guard, served=studio.place.served, port=port, host=host, password=password)


def password_for(host: str) -> str | None:
    """Return the password that a host needs, or None for this machine alone.

    Raises
    ------
    ArgumentError
        Other machines could reach the page, and there is no good password.
    """
    if is_this_machine(host):
        return None
    password = os.environ.get(PASSWORD, "")
    if len(password) < _SHORTEST:
        message = (
            f"studio: `host` (={host!r}) can be reached from other machines, and {PASSWORD} is not set or shorter than "
            f"{_SHORTEST} characters. Set it to a password, or leave --host out."
        )
        raise ArgumentError(message)
    return password


def is_this_machine(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_this_machine("127.0.0.1"), is_this_machine("::1"), is_this_machine("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens; without a port, on the first free one from 7860 on.

    Raises
    ------
    OutputError
        The port is taken, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(PORT, PORT + _PORTS) if port is None else (port,):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
            sock.listen()
        except OSError as error:
            sock.close()
            reason = (error.strerror or str(error)).lower()
        else:
            return sock
    which = f"port {port}" if port is not None else f"ports {PORT} to {PORT + _PORTS - 1}"
    message = f"studio ({host}): {which}: {reason}. Choose another --port or --host."
    raise OutputError(message)


def _run(app: Any, sock: socket.socket, begun: Callable[[], None]) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            begun()

        def handle_exit(self, sig: int, frame: Any) -> None:
            # The signal is not raised again at the end, as the library does: then nothing would be tidied up.
            self.force_exit = self.should_exit
            self.should_exit = True

    config = uvicorn.Config(
        app, log_level="error", access_log=False, ws="none", timeout_graceful_shutdown=1, server_header=False
    )
    Server(config).run(sockets=[sock])
