"""The page in a real browser, from upload to download."""

import contextlib
import json

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from glocal.cli import main
from glocal.color_space import lab_from_rgb
from glocal.files.embedded import recipe_of
from glocal.files.images.colors import to_srgb
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image
from glocal.files.images.write import write_image
from glocal.graphs.patch import patch_graph

pytestmark = pytest.mark.xdist_group("studio")  # one studio and one browser for all
PIXEL = b"\x89PNG\r\n\x1a\n"


def paint(visitor, pictures, *, iterations, seeds):
    """Start a style transfer."""
    page = visitor.page
    visitor.tab("Style")
    if not page.locator("#style-photo-look figcaption").count():
        visitor.upload("style-photo", pictures / "photo.png")
        visitor.upload("style-painting", pictures / "painting.png")
        page.click("#style-preset input")
        page.get_by_role("option", name="painterly").click()
        page.wait_for_function("document.querySelector('#style-structure input').value == '0.7'")
        page.click("#style-more button")
        page.wait_for_function("document.querySelector('#style-iterations input')?.value == '120'")
        page.wait_for_timeout(
            1000
        )  # the page writes the values of a preset one after the other, and would write over others
        page.fill("#style-size textarea", "24")
    page.fill("#style-iterations input", str(iterations))
    page.fill("#style-seeds input[type=number]", str(seeds))
    page.keyboard.press("Tab")
    page.click("#style-run")


def test_style_paints_seeds_side_by_side_and_its_files_are_those_of_the_command(
    visitor, pictures, tmp_path, monkeypatch
):
    page = visitor.page
    paint(visitor, pictures, iterations=3, seeds=2)
    assert "photo.png: 32 x 24, 16 bit" in page.inner_text("#style-photo-look")
    visitor.status("style", "Seed 1.")
    page.wait_for_function("document.querySelectorAll('#style-gallery .thumbnail-item').length == 2")
    page.locator("#style-gallery .thumbnail-item").first.click()
    visitor.status("style", "Seed 0.")
    command = "glocal style photo.png painting.png --preset=painterly --size=24 --iterations=3 -o photo_style.png"
    assert (
        visitor.value("style-command", command) == command
    )  # the page writes the parts of an answer one after the other
    made = visitor.download("style-download", tmp_path)
    assert read_image(made).depth == "16"
    assert Image.open(made).getexif()[0x010F] == "A camera"
    assert read_image(made).icc == read_image(pictures / "photo.png").icc is not None
    assert recipe_of(made)["inputs"][0]["path"] == "photo.png"
    for name in ("photo.png", "painting.png"):
        (tmp_path / name).symlink_to(pictures / name)
    monkeypatch.chdir(tmp_path)
    assert main.run([*command.split()[1:-1], "by_hand.png"]) == 0
    assert (tmp_path / "by_hand.png").read_bytes() == made.read_bytes()
    # Another strength needs no new run, and its file is the one that the command makes.
    page.fill("#style-strength input[type=number]", "0.25")
    page.keyboard.press("Tab")
    page.wait_for_function("document.querySelector('#style-command textarea').value.includes('--strength=0.25')")
    weaker = visitor.download("style-download", tmp_path)
    assert recipe_of(weaker)["options"]["strength"] == 0.25
    assert main.run([*page.input_value("#style-command textarea").split()[1:-1], "weak_by_hand.png"]) == 0
    assert (tmp_path / "weak_by_hand.png").read_bytes() == weaker.read_bytes()


def test_a_run_shows_its_picture_stops_and_goes_on_while_another_session_waits(visitor, phone, pictures, tmp_path):
    page = visitor.page
    other = phone
    paint(visitor, pictures, iterations=100_000, seeds=1)
    page.wait_for_selector("#style-live img")
    # Another person recolours meanwhile.
    other.tab("Colour")
    other.upload("color-photo", pictures / "photo.png")
    other.upload("color-reference", pictures / "painting.png")
    other.page.click("#color-run")
    other.status("color", "Waiting: 1 job(s) first.")
    page.click("#style-stop")
    visitor.status("style", "Stopped; this is the best so far.")
    assert recipe_of(visitor.download("style-download", tmp_path))["stopped"] is True
    shown = page.locator("#style-gallery .thumbnail-item").count()
    page.click("#style-go-on")
    page.wait_for_selector("#style-live img")
    page.click("#style-stop")
    visitor.status("style", "Stopped; this is the best so far.")
    _color_ends(other, tmp_path)
    assert page.locator("#style-gallery .thumbnail-item").count() == shown  # in the place of what was stopped
    assert other.page.locator("#style-gallery .thumbnail-item").count() == 0


def _color_ends(visitor, folder):
    """Follow a colour transfer to its palettes, its LUT and another strength."""
    page = visitor.page
    assert "differs from the map by" in visitor.status("color", "Done.")
    page.wait_for_selector("#color-palettes img")
    lut = visitor.download("color-lut", folder)
    assert lut.read_text().count("\n") > 33**3
    page.fill("#color-strength input[type=number]", "0.5")
    page.keyboard.press("Tab")
    page.wait_for_function("document.querySelector('#color-command textarea').value.includes('--strength=0.5')")
    visitor.status("color", "Done.")
    made = visitor.download("color-download", folder)
    assert recipe_of(made)["options"]["strength"] == 0.5
    assert read_image(made).depth == "16"


def test_a_photo_is_denoised_with_a_level_that_can_be_changed(visitor, tmp_path):
    rng = np.random.default_rng(1)
    values = np.linspace(0.2, 0.8, 40 * 48 * 3).reshape(40, 48, 3) + 0.08 * rng.standard_normal((40, 48, 3))
    write_image(tmp_path / "noisy.tif", Picture((values.clip(0, 1) * 65535).astype(np.uint16)))
    page = visitor.page
    visitor.tab("Photo")
    visitor.upload("denoise-photo", tmp_path / "noisy.tif")
    page.click("#denoise-run")
    assert "(found), model small" in visitor.status("denoise", "Done.")
    page.wait_for_selector("#denoise-residual img")
    assert _one_to_one(page, "#denoise-compare") == [[48, 40, True]] * 2
    level = page.locator("#denoise-level input[type=number]")
    assert 10 < float(level.input_value()) < 30
    level.fill("12")
    page.keyboard.press("Tab")
    visitor.status("denoise", "Noise level 12.0 of 255 (given)")
    made = visitor.download("denoise-download", tmp_path)
    assert (made.name, read_image(made).depth) == ("noisy_denoise.tif", "16")
    assert recipe_of(made)["options"]["sigma"] == pytest.approx(12 / 255, abs=1e-4)


def _one_to_one(page, where):
    """Sizes of the pictures, and whether each is shown with one pixel of the screen for a pixel, where there is room."""
    script = """all => all.map(one => [one.naturalWidth, one.naturalHeight, getComputedStyle(one).objectFit == 'none'
        && one.clientWidth >= one.naturalWidth && one.clientHeight >= one.naturalHeight])"""
    loaded = "where => [...document.querySelectorAll(where)].every(one => one.complete && one.naturalWidth > 0)"
    page.wait_for_function(loaded, arg=f"{where} img")
    return page.eval_on_selector_all(f"{where} img", script)


def test_speech_with_the_keyboard_alone(visitor, tmp_path):
    page = visitor.page
    page.get_by_role("tab", name="Photo").focus()
    page.keyboard.press("Tab")
    for _ in range(3):
        if page.get_by_role("tab", name="Speech").get_attribute("aria-selected") == "true":
            break
        page.get_by_role("tab", name="Speech").focus()
        page.keyboard.press("Enter")
    _walk_to(page, "speech-samples")
    page.keyboard.press("Enter")
    page.wait_for_selector("#speech-recording-look figcaption")
    _walk_to(page, "speech-run")
    page.keyboard.press("Enter")
    visitor.status("speech", "Noise level")
    for name in ("before", "after", "residual"):
        page.wait_for_selector(f"#speech-spectrum-{name} img")
        page.wait_for_selector(f"#speech-{name} button[aria-label*=Play]")
    _walk_to(page, "speech-download")
    with page.expect_download() as found:
        page.keyboard.press("Enter")
    found.value.save_as(tmp_path / "clean.wav")
    assert recipe_of(tmp_path / "clean.wav")["command"] == "speech"
    assert soundfile.info(tmp_path / "clean.wav").frames > 0


def _walk_to(page, name):
    """Press Tab until something has the focus."""
    for _ in range(120):
        if page.evaluate("document.activeElement.id || document.activeElement.parentElement.id") == name:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"the keyboard does not reach {name}")


def test_a_click_shows_the_nearest_patches_of_a_pixel_and_of_a_moment(visitor, pictures, tmp_path):
    page = visitor.page
    visitor.tab("Graph")
    page.set_input_files("#graph-file input[type=file]", str(pictures / "photo.png"))
    visitor.status("graph", "shown with 32 x 24. Click into it.")
    page.fill("#graph-k input[type=number]", "4")
    page.keyboard.press("Tab")
    visitor.status("graph", "4 nearest patches of (16, 12)")
    from playwright.sync_api import TimeoutError as NotYet

    moved = "() => document.getElementById('graph-status').innerText.includes('patches of (8, ')"
    for _ in range(5):  # a click is lost if it meets the old picture while the page replaces it
        box = page.locator("#graph-picture img").bounding_box()
        page.click("#graph-picture img", position={"x": 0.27 * box["width"], "y": 0.52 * box["height"]})
        with contextlib.suppress(NotYet):
            page.wait_for_function(moved, timeout=4000)
            break
    found = visitor.status("graph", "4 nearest patches of (8, ")
    shown = [line.split() for line in page.inner_text("#graph-table").splitlines()[1:]]
    x, y = 8, int(found.split("(8, ")[1].split(")")[0])
    lab = lab_from_rgb(torch.from_numpy(to_srgb(read_image(pictures / "photo.png"))))
    graph = patch_graph(lab, k=4, patch=3, coords=1.0)
    neighbors = graph.neighbors[32 * y + x].tolist()
    assert [(int(row[1]), int(row[2])) for row in shown] == [(n % 32, n // 32) for n in neighbors]
    assert [float(row[3]) for row in shown] == pytest.approx(graph.distances[32 * y + x].tolist(), abs=0.01)
    assert sum(float(row[4]) for row in shown) == pytest.approx(4, abs=0.01)  # equation 8
    # The same with sound, and with the keyboard.
    soundfile.write(tmp_path / "tone.wav", np.sin(np.arange(1200) / 9), 8000)
    visitor.clear("graph-file")
    page.set_input_files("#graph-file input[type=file]", str(tmp_path / "tone.wav"))
    visitor.status("graph", "tone.wav: 0.1 s, 8000 Hz")
    page.fill("#graph-x input", "100")
    page.focus("#graph-run")
    page.keyboard.press("Enter")
    visitor.status("graph", "4 nearest patches of (200, 0)")
    page.wait_for_selector("#graph-patches img")


def test_wrong_files_are_refused_with_words(phone, tmp_path):
    phone.tab("Style")
    (tmp_path / "note.png").write_bytes(b"no picture")
    (tmp_path / "cut.png").write_bytes(PIXEL + b"\0\0\0\rIHDR")
    write_image(tmp_path / "large.png", Picture(np.zeros((200, 250, 3), np.uint8)))
    visitor = phone
    for name, text in (
        ("note.png", "note.png): its content"),
        ("cut.png", "cut.png)"),
        ("large.png", "large.png): it has 250 x 200 pixels, more than 40,000"),
    ):
        visitor.page.set_input_files("#style-photo input[type=file]", str(tmp_path / name))
        shown = visitor.status("style", text)
        assert "Try:" in shown
        assert "/served/" not in shown  # no path of this machine
        visitor.clear("style-photo")
        visitor.status("style", "Choose the files")
    visitor.page.click("#style-run")
    assert visitor.status("style", "error:") == "error: style: there is no photo. Try: upload one."
    assert visitor.page.get_attribute("#style-status .status", "role") == "alert"


def test_the_page_fits_a_phone_and_is_dark_where_the_system_is(phone):
    for title in ("Colour", "Photo", "Speech", "Graph", "Style"):
        phone.tab(title)
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 360
    red, green, blue = json.loads(
        phone.page.evaluate("'[' + getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3) + ']'")
    )
    assert max(red, green, blue) < 80
