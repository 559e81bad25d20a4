import numpy as np
import pytest

from glocal.errors import ModelError
from glocal.files.model_files import INDEX, check_models, read_index, read_model, write_model


@pytest.fixture
def folder(tmp_path):
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(2)}
    write_model("tiny", arrays, folder=tmp_path, info={"psnr": 28.7})
    return tmp_path


def test_round_trip(folder):
    weights = read_model("tiny", folder=folder)
    assert weights.info == {"psnr": 28.7}
    assert sorted(weights.arrays) == ["a", "b"]
    np.testing.assert_array_equal(weights.arrays["b"], np.arange(6).reshape(2, 3))
    assert weights.arrays["b"].dtype == np.float32
    own = read_model(folder / "tiny.safetensors")
    assert (own.info, own.sha256) == (weights.info, weights.sha256)


def test_same_weights_same_bytes(folder, tmp_path):
    before = (folder / "tiny.safetensors").read_bytes()
    write_model("tiny", dict(read_model("tiny", folder=folder).arrays), folder=folder, info={"psnr": 28.7})
    assert (folder / "tiny.safetensors").read_bytes() == before


def test_unknown_model(folder):
    with pytest.raises(ModelError) as caught:
        read_model("big", folder=folder)
    assert str(caught.value) == "read_model: there is no model `big`. Use one of: tiny."


def test_damaged_and_missing_files(folder):
    path = folder / "tiny.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"the file is damaged: its SHA-256 is .*\. Install glocal again\.") as caught:
        read_model("tiny", folder=folder)
    assert caught.value.exit_code == 6
    assert [check.ok for check in check_models(folder)] == [False]
    path.unlink()
    with pytest.raises(ModelError) as caught:
        read_model("tiny", folder=folder)
    assert str(caught.value) == f"load model tiny ({path}): no such file or directory. Install glocal again."


def test_file_that_is_no_safetensors(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError) as caught:
        read_model(tmp_path / "a.safetensors")
    assert (
        str(caught.value) == f"load model ({tmp_path / 'a.safetensors'}): it is not a safetensors file. Save it again."
    )


@pytest.mark.parametrize(
    ("text", "why"), [("{", "the index is damaged"), ('{"tiny": {"file": "x"}}', "an entry lacks its file or sum")]
)
def test_damaged_index(folder, text, why):
    (folder / INDEX).write_text(text)
    with pytest.raises(ModelError) as caught:
        read_index(folder)
    assert str(caught.value) == f"read models ({folder / INDEX}): {why}. Install glocal again."


def test_no_index_no_models(tmp_path):
    assert read_index(tmp_path) == {}
    assert check_models(tmp_path) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers(tmp_path, value):
    write_model("tiny", {"good": np.ones(3), "bad": np.array([1.0, value])}, folder=tmp_path)
    path = tmp_path / "tiny.safetensors"
    for name, remedy in (("tiny", "Install glocal again"), (str(path), "Save it again")):
        with pytest.raises(ModelError) as caught:
            read_model(name, folder=tmp_path)
        assert str(caught.value) == f"load model ({path}): `bad` has values that are NaN or infinite. {remedy}."


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("patch", 100001, "`patch` (=100001) must be an odd whole number from 1 to 63. The paper uses 7."),
        ("patch", 4, "`patch` (=4) must be an odd whole number from 1 to 63."),
        ("maps", 10**12, "`maps` (=1000000000000) must be a whole number from 1 to 4096."),
        ("size", "3", "`size` (='3') must be an odd whole number from 1 to 31."),
        ("neighbors", -1, "`neighbors` (=-1) must be a whole number from 1 to 4096."),
        ("middle", "x", "`middle` (='x') is unknown."),
    ],
)
def test_sizes_that_no_network_for_pictures_has(tmp_path, field, value, why):
    from glocal.apps.denoise.models import load_model, save_model
    from glocal.apps.denoise.networks import ImageDenoiser
    from glocal.apps.denoise.options import Architecture

    path = save_model(ImageDenoiser(Architecture()), "mine", tmp_path, info={})
    weights = read_model(path)
    info = weights.info | {"architecture": weights.info["architecture"] | {field: value}}
    write_model("mine", weights.arrays, folder=tmp_path, info=info)
    with pytest.raises(ModelError) as caught:
        load_model(str(path), 0.1)
    assert f"'mine' does not hold a denoising network for pictures (Architecture: {why}" in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 10**9, "640", 1.5, None])
def test_sizes_that_no_network_for_speech_has(tmp_path, value):
    from glocal.apps.speech.frames import FrameNet, FrameShape
    from glocal.apps.speech.models import load_frames, save_trained

    net = FrameNet(FrameShape(window=64, hop=16, hidden=8, layers=2, maps=2, grid_layers=1, bands=8))
    path = save_trained(net, "mine", tmp_path, info={})
    weights = read_model(path)
    info = weights.info | {"shape": weights.info["shape"] | {"window": value}}
    write_model("mine", weights.arrays, folder=tmp_path, info=info)
    with pytest.raises(ModelError) as caught:
        load_frames(str(path))
    assert f"FrameShape: `window` (={value!r}) must be a whole number from 1 to 65536." in str(caught.value)
