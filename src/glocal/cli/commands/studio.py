"""`glocal studio`: the jobs on a page in the browser."""

from __future__ import annotations

from glocal.cli.shell.console import Console, RunOptions
from glocal.studio.server import StudioOptions, serve


def studio(options: StudioOptions, run: RunOptions) -> None:
    """Open a page on this machine: stylise, recolour and denoise photos, denoise speech, look at the graph.

    The page runs the same jobs as the other commands. Only this machine can open it, with the address that is printed.
    Ctrl-C ends it and removes its files.
    """
    console = Console(run)

    def ready(address: str) -> None:
        console.result({"address": address}, address)
        console.say("Ctrl-C ends the studio.")

    serve(options, ready)
