"""Jobs with further files and options, started by the requests that the page sends; each file is that of the command."""

import re
import shlex

import numpy as np
import pytest
import soundfile
from PIL import Image

from glocal.cli import main
from glocal.files.embedded import recipe_of
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image
from glocal.jobs.style import StyleJob
from glocal.studio.controls import controls_for, shown_values

pytestmark = pytest.mark.xdist_group("studio")


@pytest.fixture
def run(client, tmp_path, monkeypatch):
    """Run a job on uploads; returns the command that the page shows, after comparing its file with the downloaded one."""

    def running(job, uploads, **values):
        given = {}
        for name, paths in uploads.items():
            found = [client.upload(path) for path in paths]
            given[f"{job}-{name}"] = found if name in ("painting", "region", "painted") else found[0]
        answer = client.event((f"{job}-run", "click"), given | {f"{job}-{name}": v for name, v in values.items()})
        command = re.findall(rf'"(glocal {job} [^"]*)"', answer)
        assert command, answer[-2000:]
        target = command[-1].split()[-1]
        path = re.findall(rf'"path": ?"([^"]*/{re.escape(target)})"', answer)
        assert path, answer[-2000:]
        status, _, content = client("GET", f"/gradio_api/file={path[-1]}")
        assert status == 200
        monkeypatch.chdir(tmp_path)
        for one in (path for paths in uploads.values() for path in paths):
            if not (tmp_path / one.name).exists():
                (tmp_path / one.name).write_bytes(one.read_bytes())
        assert main.run(shlex.split(command[-1])[1:]) == 0
        assert (tmp_path / target).read_bytes() == content
        return command[-1]

    return running


def test_style_with_weights_regions_and_a_start(run, pictures, tmp_path):
    half = np.zeros((24, 32, 1), np.uint8)
    half[:, 16:] = 255
    for name, values in (("left.png", 255 - half), ("right.png", half)):
        write_image(tmp_path / name, Picture(values))
    uploads = {
        "photo": [pictures / "photo.png"],
        "painting": [pictures / "painting.png", tmp_path / "right.png"],
        "region": [tmp_path / "left.png"],
        "painted": [tmp_path / "left.png"],
        "start": [pictures / "photo.png"],
    }
    shown = shown_values(
        StyleJob.Options, controls_for(StyleJob.Options), preset="paper"
    )  # after the preset was chosen
    command = run("style", uploads, **shown | {"weights": "3,1", "size": "24", "iterations": 2})
    assert "--weights=3.0,1.0" in command
    assert "--regions=left.png=left.png" in command
    assert "--init=photo.png" in command
    made = read_image(tmp_path / "photo_style.png")
    before = read_image(pictures / "photo.png")
    assert (made.depth, made.icc) == ("16", before.icc)
    assert Image.open(tmp_path / "photo_style.png").getexif()[0x010F] == "A camera"


def test_regions_come_in_pairs(client, pictures):
    given = {"style-photo": client.upload(pictures / "photo.png")}
    given |= {f"style-{name}": [client.upload(pictures / "painting.png")] for name in ("painting", "region")}
    answer = client.event(("style-run", "click"), given)
    assert "style: there are 1 regions of the photo and 0 of the painting. Try: upload them in pairs." in answer


def test_color_with_a_map_instead_of_a_reference(run, client, pictures, tmp_path):
    (tmp_path / "dark.cube").write_text(
        "LUT_3D_SIZE 2\n" + "".join(f"{r / 2} {g / 2} {b / 2}\n" for b in (0, 1) for g in (0, 1) for r in (0, 1))
    )
    look = client.upload(tmp_path / "dark.cube")
    assert "dark.cube: a LUT with 2 points along an axis" in client.event(("color-map", "change"), {"color-map": look})
    uploads = {"photo": [pictures / "photo.png"], "map": [tmp_path / "dark.cube"]}
    assert (
        run("color", uploads, lut_size="65")
        == "glocal color photo.png --map=dark.cube --lut-size=65 -o photo_color.png"
    )
    given = {"color-photo": client.upload(pictures / "photo.png"), "color-map": look}
    given["color-reference"] = [client.upload(pictures / "painting.png")]
    assert "--map and --reference contradict each other" in client.event(("color-run", "click"), given)


def test_a_photo_with_a_noise_profile(run, tmp_path):
    rng = np.random.default_rng(0)
    for name, level in (("noisy.png", np.linspace(0.2, 0.8, 64)), ("flat.png", np.full(64, 0.5))):
        values = level[:, None, None] + 0.1 * rng.standard_normal((64, 64, 3))
        write_image(tmp_path / name, Picture((values.clip(0, 1) * 255).astype(np.uint8)))
    command = run("denoise", {"photo": [tmp_path / "noisy.png"], "profile": [tmp_path / "flat.png"]})
    assert "--noise-profile=flat.png" in command


def test_speech_with_another_sample_type(run, tmp_path):
    noise = np.random.default_rng(0).standard_normal(8000)
    soundfile.write(tmp_path / "voice.wav", 0.3 * np.sin(np.arange(8000) / 9) + 0.02 * noise, 8000)
    assert "--subtype=PCM_24" in run("speech", {"recording": [tmp_path / "voice.wav"]}, subtype="PCM_24")
    assert soundfile.info(tmp_path / "voice_speech.wav").subtype == "PCM_24"
    assert recipe_of(tmp_path / "voice_speech.wav")["command"] == "speech"


def test_a_picture_that_is_too_large_is_refused_when_it_is_run_too(client, tmp_path):
    write_image(tmp_path / "large.png", Picture(np.zeros((200, 250, 3), np.uint8)))
    answer = client.event(("denoise-run", "click"), {"denoise-photo": client.upload(tmp_path / "large.png")})
    assert "large.png): it has 250 x 200 pixels, more than 40,000" in answer
    assert "Download" not in answer
