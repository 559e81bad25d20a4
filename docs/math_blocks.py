"""Turn fenced `math` blocks of the documentation into MathML, which browsers draw without any script."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_BLOCK = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each block; mkdocs calls this for every page."""
    return _BLOCK.sub(lambda found: f'<div class="formula">{convert(found[1], display="block")}</div>', markdown)
