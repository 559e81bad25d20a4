"""One result for all jobs: the input's type and shape, `save` with everything that a file holds, pictures in notebooks."""

import io
import warnings

import imagecodecs
import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

import glocal
from glocal.cli.main import run
from glocal.errors import ArgumentError, InputError
from glocal.files.audio.audio_file import read_audio_recipe
from glocal.files.images.picture import Picture
from glocal.files.images.read import read_image, read_recipe
from glocal.files.images.write import write_image

PHOTO = np.random.default_rng(0).integers(0, 255, (20, 24, 3), np.uint8)
OTHER = Image.fromarray(PHOTO[::-1])  # `layout` is about arrays and tensors alone
PROFILE = bytes(imagecodecs.cms_profile("adobergb"))
QUICK = {"preset": "paper", "size": "keep", "iterations": 1}
CALLS = {
    "stylize": lambda image, **more: glocal.stylize(image, OTHER, **QUICK, **more),
    "recolor": lambda image, **more: glocal.recolor(image, OTHER, colors=4, **more),
    "denoise": lambda image, **more: glocal.denoise(image, 0.1, model="local", **more),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_type_and_shape_are_those_of_the_input(call):
    assert call(PHOTO).image.shape == PHOTO.shape
    tensor = torch.from_numpy(PHOTO)
    channels_last = call(tensor).image
    assert isinstance(channels_last, torch.Tensor)
    assert channels_last.dtype == torch.uint8
    np.testing.assert_array_equal(channels_last.numpy(), call(PHOTO).image)
    first = call(tensor.permute(2, 0, 1), layout="CHW").image
    assert first.shape == (3, 20, 24)
    assert torch.equal(first.permute(1, 2, 0), channels_last)
    assert isinstance(call(Image.fromarray(PHOTO)).image, Image.Image)


def test_gray_arrays_keep_their_two_axes():
    gray = PHOTO[..., 0]
    assert glocal.denoise(gray, 0.1, model="local").image.shape == gray.shape
    assert glocal.denoise(gray[..., None], 0.1, model="local").image.shape == (20, 24, 1)
    assert glocal.denoise(torch.from_numpy(gray), 0.1, model="local").image.shape == gray.shape
    assert glocal.stylize(gray, PHOTO, **QUICK, keep_color="luma").image.shape == gray.shape
    assert glocal.stylize(gray, PHOTO, **QUICK).image.shape == (20, 24, 3)  # the painting brings colour
    assert glocal.recolor(gray, PHOTO, colors=4).image.shape == (20, 24, 3)


@pytest.mark.parametrize(("call", "name"), list(zip(CALLS.values(), ["photo", "photo", "image"])), ids=CALLS)
def test_the_order_of_axes_is_never_guessed(call, name):
    text = rf"`{name}` is a tensor of shape \(3, 20, 24\), whose first axis may be rows or channels. Add layout=\"CHW\""
    with pytest.raises(ArgumentError, match=text):
        call(torch.zeros(3, 20, 24))
    with pytest.raises(ArgumentError, match=r"`layout` \(='NCHW'\) is unknown. Choose one of HWC, CHW"):
        call(PHOTO, layout="NCHW")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_it_was(dtype):
    tensor = torch.from_numpy(PHOTO).to(dtype) / 255
    result = CALLS["denoise"](tensor).image
    assert result.dtype == dtype
    full = CALLS["denoise"](tensor.float()).image
    assert torch.equal(result, full.to(dtype))
    if dtype == torch.float16:
        assert CALLS["denoise"](tensor.numpy()).image.dtype == np.float16
    assert glocal.denoise_speech(torch.zeros(2000, dtype=dtype), 16000).audio.dtype == dtype


def test_an_image_that_cannot_be_used_is_named():
    with pytest.raises(ArgumentError, match=r"recolor: `reference` \(shape \(20, 24, 3\)\) is not \(channels, h, w\)"):
        glocal.recolor(torch.zeros(3, 9, 9), PHOTO, layout="CHW")
    with pytest.raises(InputError, match=r"denoise: `image` has the shape \(3, 9, 9\), not \(h, w\)"):
        glocal.denoise(np.zeros((3, 9, 9)))


@pytest.mark.parametrize("call", [CALLS["recolor"], CALLS["denoise"]], ids=["recolor", "denoise"])
def test_a_mask_of_any_size_leaves_the_rest_alone(call):
    mask = np.zeros((4, 4), np.uint8)
    mask[:, :2] = 255
    done = call(PHOTO, mask=mask)
    h, w = PHOTO.shape[:2]
    assert f"the mask is scaled from 4 x 4 to {w} x {h}, the photo's size" in done.notes
    result = done.image
    np.testing.assert_array_equal(result[:, 18:], PHOTO[:, 18:])
    assert not np.array_equal(result[:, :6], PHOTO[:, :6])
    np.testing.assert_array_equal(call(PHOTO, mask=mask.repeat(5, 0).repeat(6, 1)).image[:, 12:], PHOTO[:, 12:])


COMMANDS = {
    "stylize": ["style", "a.tif", "b.png", "--preset", "paper", "--size", "keep", "--iterations", "1"],
    "recolor": ["color", "a.tif", "b.png", "--colors", "4"],
    "denoise": ["denoise", "a.tif", "--sigma", "0.1", "--model", "local"],
}
SAME_CALLS = {
    "stylize": lambda: glocal.stylize("a.tif", "b.png", **QUICK),
    "recolor": lambda: glocal.recolor("a.tif", "b.png", colors=4),
    "denoise": lambda: glocal.denoise("a.tif", 0.1, model="local"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_save_writes_the_same_bytes_as_the_command_line(tmp_path, monkeypatch, name):
    """Depth, profile, metadata and recipe: everything."""
    monkeypatch.chdir(tmp_path)
    write_image("a.tif", Picture(PHOTO.astype(np.uint16) * 257, icc=PROFILE))
    write_image("b.png", Picture(PHOTO[::-1].copy()))
    assert run([*COMMANDS[name], "-o", "command.tif", "--quiet"]) == 0
    SAME_CALLS[name]().save("call.tif")
    assert (tmp_path / "call.tif").read_bytes() == (tmp_path / "command.tif").read_bytes()
    assert (read_image("call.tif").depth, read_image("call.tif").icc) == ("16", PROFILE)
    assert run(["replay", "call.tif", "--quiet"]) == 0
    with pytest.raises(glocal.GlocalError, match="exists already"):
        SAME_CALLS[name]().save("call.tif")


def test_the_recipe_holds_the_hash_of_what_was_read(tmp_path, monkeypatch):
    """A file that changes while the work goes on must not get into the recipe."""
    import hashlib

    monkeypatch.chdir(tmp_path)
    write_image("a.png", Picture(PHOTO))
    before = hashlib.sha256((tmp_path / "a.png").read_bytes()).hexdigest()

    def replace_input(progress):
        write_image("a.png", Picture(PHOTO[::-1].copy()), overwrite=True)

    result = glocal.denoise("a.png", 0.1, model="local", progress=replace_input)
    assert result.recipe["inputs"] == [{"path": "a.png", "sha256": before}]
    result.save("out.png")
    assert read_recipe("out.png")["inputs"][0]["sha256"] == before


def test_a_recording_that_changes_meanwhile_is_refused(tmp_path, monkeypatch):
    from glocal.apps.speech.options import SpeechOptions
    from glocal.apps.speech.sound_files import denoise_file

    monkeypatch.chdir(tmp_path)
    soundfile.write("a.wav", np.random.default_rng(0).normal(0, 0.1, 16000), 16000)

    def change(progress):
        soundfile.write("a.wav", np.zeros(16000), 16000)

    with pytest.raises(glocal.GlocalError, match="it changed while it was read"):
        denoise_file("a.wav", "out.wav", SpeechOptions(), progress=change)
    assert not (tmp_path / "out.wav").exists()


def test_short_repr_and_a_picture_in_notebooks():
    result = glocal.denoise(PHOTO, 0.1, model="local")
    assert repr(result).startswith("Denoised(24 x 20, 8 bit, ")
    assert len(repr(result)) < 80
    assert "(24 x 20, float, " in repr(glocal.denoise(PHOTO.astype(np.float32) / 255, 0.1, model="local"))
    shown = Image.open(io.BytesIO(result._repr_png_()))
    np.testing.assert_array_equal(np.asarray(shown), result.image)


def test_speech_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = np.random.default_rng(0).normal(0, 0.05, 8000).astype(np.float32)
    soundfile.write("a.wav", samples, 16000, subtype="PCM_24")
    result = glocal.denoise_speech("a.wav")
    assert (result.audio.shape, result.rate, result.estimated) == ((8000,), 16000, True)
    assert repr(result).startswith("SpeechResult(0.5 s of sound, 16000 Hz, 1 channel(s), ")
    assert result._repr_html_().startswith('<audio controls src="data:audio/wav;base64,')
    result.save("b.wav")
    assert run(["speech", "a.wav", "-o", "c.wav", "--quiet"]) == 0
    assert (tmp_path / "b.wav").read_bytes() == (tmp_path / "c.wav").read_bytes()
    assert soundfile.info("b.wav").subtype == "PCM_24"
    assert run(["replay", "b.wav", "--quiet"]) == 0
    with pytest.raises(ArgumentError, match=r"`rate` \(=8000\) is not that of the file \(16000\). Leave it out"):
        glocal.denoise_speech("a.wav", 8000)
    memory = glocal.denoise_speech((samples * 32767).astype(np.int16), 16000)
    memory.save("d.wav")
    assert soundfile.info("d.wav").subtype == "PCM_16"
    np.testing.assert_array_equal(soundfile.read("d.wav", dtype="int16")[0], memory.audio)
    assert read_audio_recipe("d.wav")["arguments"]["rate"] == 16000
    assert memory.save("d.au") == ("AU has no place for the recipe: dropped",)


def test_a_mask_over_time_and_a_model_by_its_path():
    from glocal.files.model_files import MODELS

    samples = np.random.default_rng(0).normal(0, 0.05, 8000).astype(np.float32)
    whole = glocal.denoise_speech(samples, 16000, model="local").audio
    own = glocal.denoise_speech(samples, 16000, model=MODELS / "speech-local.safetensors").audio
    np.testing.assert_array_equal(own, whole)
    frames = glocal.denoise_speech(samples, 16000, model=str(MODELS / "speech-voice.safetensors")).audio
    np.testing.assert_array_equal(frames, glocal.denoise_speech(samples, 16000).audio)
    half = glocal.denoise_speech(samples, 16000, model="local", mask=[1, 1, 0, 0]).audio
    np.testing.assert_array_equal(half[6000:], samples[6000:])
    np.testing.assert_allclose(half[:2000], whole[:2000], atol=1e-6)
    with pytest.raises(ArgumentError, match="`mask` must be a list of numbers from 0 to 1"):
        glocal.denoise_speech(samples, 16000, mask=[2.0])
    with pytest.raises(glocal.GlocalError, match="it has no network for speech"):
        glocal.denoise_speech(samples, 16000, model=MODELS / "image-local.safetensors")


def test_a_speech_result_can_still_be_used_as_samples():
    samples = np.random.default_rng(0).normal(0, 0.05, 2000).astype(np.float32)
    result = glocal.denoise_speech(samples, 16000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert (result.shape, result.dtype, len(result)) == ((2000,), np.float32, 2000)
        np.testing.assert_array_equal(samples - result, samples - result.audio)
        np.testing.assert_array_equal(result / 2, result.audio / 2)
        np.testing.assert_array_equal(result[:5], result.audio[:5])
    with pytest.warns(DeprecationWarning, match="use the field `audio`"):
        _ = result.shape
    assert not hasattr(result, "nonsense")
