"""XMP packets: keep them, settle their orientation, and carry a recipe inside when the format has no better place."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, unescape

_NAMESPACE = "urn:glocal:recipe:1"
_BLOCK = re.compile(rb"<rdf:Description[^<>]*xmlns:glocal=[^<>]*>.*?</rdf:Description>", re.DOTALL)
_RECIPE = re.compile(rb"<glocal:recipe>(.*?)</glocal:recipe>", re.DOTALL)
_ORIENTATION = re.compile(rb"(tiff:Orientation(?:=\"|='|>))[1-8]")
_EMPTY = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b"</rdf:RDF></x:xmpmeta>"
)


def settle(packet: bytes, turn: int = 1) -> bytes:
    """Return the packet with orientation `turn`, if it states one; 1 is for upright pixels.

    Examples
    --------
    >>> settle(b'<a tiff:Orientation="6"/>')
    b'<a tiff:Orientation="1"/>'
    """
    return _ORIENTATION.sub(rb"\g<1>%d" % turn, packet)


def with_recipe(packet: bytes | None, recipe: str) -> bytes:
    """Return the packet with `recipe` inside; a recipe from an earlier run is replaced.

    Examples
    --------
    >>> recipe_in(with_recipe(None, '{"a": "<&>"}'))
    '{"a": "<&>"}'
    """
    packet = _BLOCK.sub(b"", packet) if packet else _EMPTY
    if b"</rdf:RDF>" not in packet:
        packet = _EMPTY
    block = (
        f'<rdf:Description rdf:about="" xmlns:glocal="{_NAMESPACE}">'
        f"<glocal:recipe>{escape(recipe)}</glocal:recipe></rdf:Description>"
    )
    head, tail = packet.rsplit(b"</rdf:RDF>", 1)
    return head + block.encode() + b"</rdf:RDF>" + tail


def recipe_in(packet: bytes | None) -> str | None:
    """Return the recipe inside a packet, or None."""
    found = _RECIPE.search(packet) if packet else None
    return unescape(found.group(1).decode("utf-8", "replace")) if found else None


def without_recipe(packet: bytes) -> bytes | None:
    """Return the packet without its recipe; None if nothing else was in it."""
    rest = _BLOCK.sub(b"", packet)
    return None if rest == _EMPTY else rest
