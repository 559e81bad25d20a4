"""Options are written once: the check, its message, the keyword, the flag, the recipe and the docs come from one field."""

import inspect
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np
import pytest

import glocal
from glocal.apps.color.options import ColorOptions
from glocal.apps.denoise.options import DenoiseOptions
from glocal.apps.speech.options import SpeechOptions
from glocal.apps.style.options import StyleOptions
from glocal.cli import main
from glocal.cli.shell.lazy import load_command
from glocal.errors import ArgumentError
from glocal.options import Options, option, takes_options

CALLS = {
    "style": (glocal.stylize, StyleOptions),
    "color": (glocal.recolor, ColorOptions),
    "denoise": (glocal.denoise, DenoiseOptions),
    "speech": (glocal.denoise_speech, SpeechOptions),
}


@dataclass(frozen=True)
class Sample(Options):
    call: ClassVar[str] = "sample"
    count: int = option(3, "How many.", min=1, max=9)
    size: int | str = option(8, "Pixels, or keep.", min=1, words=("keep",))
    share: float | None = option(None, "A share.", above=0, max=1)
    mode: Literal["a", "b"] = option("a", "Which.")
    names: tuple[str, ...] = option((), "Names.")
    soft: bool = option(True, "Soft.")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "sample: `count` (=0) must be a whole number from 1 to 9. The default is 3."),
        ({"count": 2.0}, "sample: `count` (=2.0) must be a whole number from 1 to 9. The default is 3."),
        ({"count": True}, "sample: `count` (=True) must be a whole number from 1 to 9. The default is 3."),
        ({"size": "big"}, "sample: `size` (='big') must be a whole number of at least 1, or 'keep'. The default is 8."),
        ({"share": 0}, "sample: `share` (=0) must be a number above 0 and up to 1. The default is None."),
        ({"share": "x"}, "sample: `share` (='x') must be a number above 0 and up to 1. The default is None."),
        ({"share": float("nan")}, "sample: `share` (=nan) must be a number above 0 and up to 1. The default is None."),
        ({"mode": "c"}, "sample: `mode` (='c') is unknown. Choose one of a, b."),
        ({"mode": 3}, "sample: `mode` (=3) is unknown. Choose one of a, b."),
        ({"names": "ab"}, "sample: `names` (='ab') must be a list of values of the right type. The default is ()."),
        ({"soft": 1}, "sample: `soft` (=1) must be True or False. The default is True."),
    ],
)
def test_every_message(values, message):
    with pytest.raises(ArgumentError) as caught:
        Sample(**values)
    assert str(caught.value) == message


def test_values_get_the_type_of_their_field():
    made = Sample(count=np.int64(4), share=np.float32(0.5), names=["x", "y"], size="keep")
    assert (made.count, type(made.count), made.share, made.names, made.size) == (4, int, 0.5, ("x", "y"), "keep")


def test_keywords_change_options_that_are_given():
    @takes_options(Sample)
    def sample(image, *, options, mask=None):
        """Do it.

        {options}
        """
        return options

    assert sample("a", options=Sample(count=5), mode="b") == Sample(count=5, mode="b")
    assert "count : int, default 3\n" in sample.__doc__
    with pytest.raises(ArgumentError, match=r"sample: `options` \(=3\) must be a Sample"):
        sample("a", options=3)
    with pytest.raises(TypeError, match="sample: got an unexpected keyword argument 'cuont'"):
        sample("a", cuont=3)


@pytest.mark.parametrize("name", CALLS)
def test_call_flags_docs_and_checks_come_from_the_options(name):
    call, options = CALLS[name]
    home = main.COMMANDS[name][0]
    flags = {param.name for param in load_command(name, home).params}
    keywords = inspect.signature(call).parameters
    for field in fields(options):
        hidden, no_flag = field.metadata.get("hidden"), field.metadata.get("no_flag")
        assert (field.name in keywords) == (not hidden), field.name
        assert (field.name in flags) == (not hidden and not no_flag), field.name
        if not hidden:
            assert f"{field.name} : " in call.__doc__


@pytest.mark.parametrize("name", CALLS)
def test_all_calls_take_the_same_things(name):
    keywords = inspect.signature(CALLS[name][0]).parameters
    assert {"device", "seed", "progress", "mask", "strength", "options"} <= set(keywords)
    assert ("layout" in keywords) == (name != "speech")


PICTURE = np.zeros((16, 16, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "arguments", "text"),
    [
        (glocal.denoise, {"image": PICTURE, "sigma": "x"}, r"denoise: `sigma` \(='x'\) must be above 0 and at most 10"),
        (
            glocal.denoise,
            {"image": PICTURE, "sigma": 0.1, "noise_profile": PICTURE},
            "either `sigma` or `noise_profile`",
        ),
        (glocal.recolor, {"photo": PICTURE, "reference": PICTURE, "map": "a.cube"}, "`map`; both were given"),
        (glocal.denoise, {"image": PICTURE, "model": 3}, r"denoise: `model` \(=3\) must be a text"),
        (glocal.denoise, {"image": PICTURE, "device": 3}, r"denoise: `device` \(=3\) must be cpu, cuda or cuda:N"),
        (glocal.recolor, {"photo": PICTURE, "reference": PICTURE, "colors": "x"}, "must be a whole number"),
        (glocal.recolor, {"photo": PICTURE}, "recolor: give either `reference` or `map`; neither was given"),
        (glocal.stylize, {"photo": PICTURE, "painting": PICTURE, "tv": None, "seed": "x"}, "`seed` .* whole number"),
        (glocal.denoise_speech, {"samples": np.zeros(9), "rate": 8000, "model": 3}, "`model` .*must be a text"),
        (glocal.denoise_speech, {"samples": np.zeros(9), "rate": "x"}, r"`rate` \(='x'\) must be a whole number"),
        (glocal.denoise_speech, {"samples": np.zeros(9)}, r"`rate` \(=None\) must be a whole number"),
    ],
)
def test_wrong_types_are_argument_errors(call, arguments, text):
    with pytest.raises(ArgumentError, match=text):
        call(**arguments)
