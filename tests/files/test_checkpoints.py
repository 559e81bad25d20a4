import numpy as np
import pytest

from glocal.errors import ModelError
from glocal.files.checkpoints import INDEX, check_weights, load_weights, read_index, save_weights


@pytest.fixture
def folder(tmp_path):
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(2)}
    save_weights("tiny", arrays, folder=tmp_path, info={"psnr": 28.7})
    return tmp_path


def test_round_trip(folder):
    weights = load_weights("tiny", folder=folder)
    assert weights.info == {"psnr": 28.7}
    assert sorted(weights.arrays) == ["a", "b"]
    np.testing.assert_array_equal(weights.arrays["b"], np.arange(6).reshape(2, 3))
    assert weights.arrays["b"].dtype == np.float32
    own = load_weights(folder / "tiny.safetensors")
    assert (own.info, own.sha256) == (weights.info, weights.sha256)


def test_same_weights_same_bytes(folder, tmp_path):
    before = (folder / "tiny.safetensors").read_bytes()
    save_weights("tiny", dict(load_weights("tiny", folder=folder).arrays), folder=folder, info={"psnr": 28.7})
    assert (folder / "tiny.safetensors").read_bytes() == before


def test_unknown_model(folder):
    with pytest.raises(ModelError) as caught:
        load_weights("big", folder=folder)
    assert str(caught.value) == "load_weights: there is no model `big`. Use one of: tiny."


def test_damaged_and_missing_files(folder):
    path = folder / "tiny.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"the file is damaged: its SHA-256 is .*\. Install glocal again\.") as caught:
        load_weights("tiny", folder=folder)
    assert caught.value.exit_code == 6
    assert [check.ok for check in check_weights(folder)] == [False]
    path.unlink()
    with pytest.raises(ModelError) as caught:
        load_weights("tiny", folder=folder)
    assert str(caught.value) == f"load model tiny ({path}): no such file or directory. Install glocal again."


def test_file_that_is_no_safetensors(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError) as caught:
        load_weights(tmp_path / "a.safetensors")
    assert str(caught.value) == f"load model ({tmp_path / 'a.safetensors'}): it is no safetensors file. Save it again."


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
    assert check_weights(tmp_path) == []
