"""Read a page as a browser would: its pictures, its numbers and their sources, and the text between them."""

import base64
import io
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from PIL import Image

VOID = {"meta", "link", "img", "source", "br"}


@dataclass
class Block:
    """A block of the page: marks of its numbers, marks and lines of its sources, its other text."""

    numbers: list[tuple[str, float, str]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    text: str = ""


class Page(HTMLParser):
    """The parsed page; `problems` are tags that do not match and addresses outside of the page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.stack: list[tuple[str, dict]] = []
        self.sounds: list[bytes] = []
        self.images: list[tuple[str, np.ndarray]] = []
        self.blocks = [Block()]
        self.problems: list[str] = []
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text())
        self.close()
        self.problems += [f"<{tag}> stays open" for tag, _ in self.stack]
        self.problems += [f"no anchor {link}" for link in self.links if link.removeprefix("#") not in self.anchors]

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in VOID:
            self.stack.append((tag, given))
        if "block" in given.get("class", "").split():
            self.blocks.append(Block())
        if "id" in given:
            self.anchors.add(given["id"])
        for key in ("src", "srcset", "href"):
            address = given.get(key)
            if address and address.startswith("#"):
                self.links.add(address)
            elif address and not address.startswith("data:"):
                self.problems.append(f"{tag} asks for {address}")
            elif address and tag == "audio":
                self.sounds.append(base64.b64decode(address.removeprefix("data:audio/wav;base64,"), validate=True))
            elif address and key != "href":
                data = base64.b64decode(address.partition(",")[2], validate=True)
                self.images.append((given.get("alt", ""), np.asarray(Image.open(io.BytesIO(data)))))
        if tag in ("script", "iframe"):
            self.problems.append(f"<{tag}>")

    def handle_endtag(self, tag):
        if not self.stack or self.stack[-1][0] != tag:
            self.problems.append(f"</{tag}> does not match")
        else:
            self.stack.pop()

    def handle_data(self, text):
        tags = [tag for tag, _ in self.stack]
        if "style" in tags or "title" in tags:
            return
        around = next((given for tag, given in reversed(self.stack) if tag == "data"), None)
        line = next((given for tag, given in reversed(self.stack) if "data-mark" in given), None)
        block = self.blocks[-1]
        if around is not None:
            if tags[-1] == "data":
                block.numbers.append((around["data-source"], float(around["value"]), text))
        elif line is not None and tags[-1] != "sup":
            block.sources[line["data-mark"]] = block.sources.get(line["data-mark"], "") + text
        elif line is None:
            block.text += text + " "


def assert_page_is_whole(path: Path) -> Page:
    """What holds for every page: pictures open, tags match, nothing is fetched, each number has a printed source."""
    page = Page(path)
    assert page.problems == []
    for alt, pixels in page.images:
        assert pixels.size > 0, alt
    for block in page.blocks:
        for mark, value, text in block.numbers:
            assert mark in block.sources, (text, block.sources)
            assert re.match(r"(this run|stored run|paper): .+", block.sources[mark])
            assert abs(float(re.match(r"[-+0-9.e]+", text)[0]) - value) <= 0.051 * abs(value) + 0.51, (value, text)
    return page
