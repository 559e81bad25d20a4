"""Controls follow the options: what the page shows for each type, and what it gives back."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from glocal.errors import ArgumentError
from glocal.jobs.color import ColorJob
from glocal.jobs.denoise import DenoiseJob
from glocal.jobs.flags import flag_fields
from glocal.jobs.speech import SpeechJob
from glocal.jobs.style import StyleJob
from glocal.options import Options, option
from glocal.studio.controls import changes, controls_for, shown_values


@dataclass(frozen=True)
class Blur(Options):
    call: ClassVar[str] = "blur"
    radius: int = option(3, "How far.", min=1, max=99)
    share: float = option(0.5, "How much.", min=0, max=1)
    steps: int = option(5, "How often.", min=1)
    floor: float | None = option(None, "The least.", min=0, max=100)
    mode: Literal["soft", "hard"] = option("soft", "How.")
    keep: tuple[Literal["red", "blue"], ...] = option((), "What stays.")
    fast: bool = option(False, "Be quick.")
    size: str = option("keep", "How large.", parse=str)
    model: str = option("small", "Which.", known=("small", "wide"))
    weights: str | None = option(None, "A file.")
    secret: int = option(1, "Python only.", no_flag=True)


def test_the_type_and_the_limits_decide_the_control():
    found = controls_for(Blur, leave_out=("fast",))
    assert {name: one.widget for name, one in found.items()} == {
        "radius": "slider", "share": "slider", "steps": "number", "floor": "text", "mode": "choice", "keep": "choices",
        "size": "text", "model": "choice",
    }  # fmt: skip
    assert (found["radius"].minimum, found["radius"].maximum, found["radius"].step) == (1, 99, 1)
    assert found["share"].step == 0.01
    assert found["radius"].help == "How far. From 1 to 99."
    assert found["model"].choices == ("small", "wide")


def test_only_what_was_changed_comes_back():
    found = controls_for(Blur)
    page = shown_values(Blur, found)
    assert changes(Blur, found, page) == {}
    changed = changes(Blur, found, page | {"steps": 7.0, "keep": ["blue"], "size": "40", "floor": "3.5"})
    assert changed == {"steps": 7, "keep": ("blue",), "size": "40", "floor": 3.5}
    assert Blur.given(changed).keep == ("blue",)


def test_a_preset_changes_what_is_usual():
    found = controls_for(StyleJob.Options)
    paper = shown_values(StyleJob.Options, found, preset="paper")
    assert paper["size"] == "256"
    assert changes(StyleJob.Options, found, paper) == {"preset": "paper"}
    assert changes(StyleJob.Options, found, paper | {"tv": 0.02}) == {"preset": "paper", "tv": 0.02}
    # A part of `structure` that was not touched follows it.
    painterly = shown_values(StyleJob.Options, found, preset="painterly")
    changed = changes(StyleJob.Options, found, painterly | {"structure": 1.0})
    assert StyleJob.Options.given(changed).anchor == 0.6


@pytest.mark.parametrize("job", [StyleJob, ColorJob, DenoiseJob, SpeechJob])
def test_every_option_of_a_job_has_a_control_except_names_of_files(job):
    options = {field.name for field, _, _ in flag_fields(job.Options)}
    assert options - set(controls_for(job.Options)) <= {"weights"}
    shown = shown_values(job.Options, controls_for(job.Options))
    assert changes(job.Options, controls_for(job.Options), shown) == {}


def test_a_text_that_cannot_be_read_is_refused():
    found = controls_for(StyleJob.Options)
    page = shown_values(StyleJob.Options, found) | {"size": "wide"}
    with pytest.raises(ArgumentError, match=r"studio: `size` \(='wide'\) cannot be read. Longer side of the result"):
        changes(StyleJob.Options, found, page)
