"""The samples inside the package are whole, and NOTICE names each of them."""

from pathlib import Path

import pytest

from glocal import samples
from glocal.errors import ArgumentError

NOTICE = Path(__file__).parents[1] / "NOTICE"


def test_every_sample_is_named_in_the_notice():
    assert len(samples.NAMES) == 12
    text = NOTICE.read_text()
    for name in samples.NAMES:
        assert f"\n{name} " in text
        assert samples.path(name).stat().st_size > 10_000


def test_an_unknown_sample_is_refused_with_the_list():
    with pytest.raises(ArgumentError, match=r"there is no sample `name` \(='cat.jpg'\). Choose one of bridge.jpg, "):
        samples.path("cat.jpg")
