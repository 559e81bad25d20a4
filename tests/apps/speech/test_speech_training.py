"""Training and data of the speech denoisers, on tiny folders of made-up speech."""

import numpy as np
import pytest
import soundfile

from glocal.apps.speech.data import SpeechData, load_speech, pack, unpack
from glocal.apps.speech.frames import FrameNet, FrameShape
from glocal.apps.speech.train import train_frames, train_samples
from glocal.errors import InputError

TINY = FrameShape(
    window=256, hop=64, hidden=6, layers=2, maps=3, grid_layers=2, neighbors=3, radius=9, reach=24, step=6
)


def tone(n, pitch):
    t = np.arange(n) / 16000
    return (0.3 * np.sin(2 * np.pi * pitch * t) * np.sin(2 * np.pi * 3 * t)).astype(np.float32)


@pytest.fixture
def listed(tmp_path):
    rows = ["file,split,start,length"]
    for i, split in enumerate(["train", "train", "val", "test"]):
        soundfile.write(tmp_path / f"{i}.flac", tone(40000, 1500 + 50 * i), 16000)
        rows += [f"{i}.flac,{split},{start},16000" for start in (0, 16000)]
    (tmp_path / "clips.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_a_list_of_clips(listed, tmp_path):
    data = load_speech(listed)
    assert (len(data.train), len(data.val), len(data.test), len(data.utterances)) == (4, 2, 2, 2)
    assert np.abs(data.train).max(1) == pytest.approx(np.ones(4))
    pack(data, tmp_path / "packed.npz")
    again = unpack(tmp_path / "packed.npz")
    np.testing.assert_allclose(again.train, data.train, atol=1e-4)
    np.testing.assert_array_equal(again.utterances[1], data.utterances[1])


def test_timit_s_layout(tmp_path):
    for part, speakers in (("TRAIN", 20), ("TEST", 2)):
        for speaker in range(speakers):
            folder = tmp_path / part / "DR1" / f"FAB{speaker}"
            folder.mkdir(parents=True)
            soundfile.write(folder / "SA1.WAV", tone(20000, 200), 16000, format="NIST", subtype="PCM_16")
    data = load_speech(tmp_path)
    assert (len(data.train), len(data.val), len(data.test)) == (5, 15, 2)


def test_any_tree_is_split_by_speaker(tmp_path):
    for speaker in range(30):
        (tmp_path / f"s{speaker}").mkdir()
        soundfile.write(tmp_path / f"s{speaker}" / "a.wav", tone(8000, 300), 8000)
    data = load_speech(tmp_path)
    assert len(data.train) + len(data.val) + len(data.test) == 30
    assert min(len(data.train), len(data.val), len(data.test)) > 0
    assert data.train.shape[1] == 16000


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("file,split\na.wav,train\n", "needs the columns file, split, start"),
        ("split,start,file\ntrain,0\n", "row 1 of clips.csv .*needs the columns file, split, start"),
        ("file,split,start\na.wav,\0{}\n".format("x" * 200_000), "cannot read clips.csv .*field larger than"),
        ("file,split,start\na.wav,dev,0\n", "names the split 'dev'. Choose one of train, val, test"),
        ("file,split,start\na.wav,train,0\n", "'a.wav' of clips.csv is not found"),
        ("file,start,split\na.wav\n", "needs the columns file, split, start"),
    ],
)
def test_lists_that_cannot_be_used(tmp_path, rows, text):
    (tmp_path / "clips.csv").write_text(rows)
    with pytest.raises(InputError, match=text):
        load_speech(tmp_path)


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match=r"is not a folder. Give the folder that holds"):
        load_speech(tmp_path / "none")
    with pytest.raises(InputError, match=r"holds no speech of a second or more. Supported: .wav"):
        load_speech(tmp_path)
    (tmp_path / "bad.wav").write_bytes(b"RIFF nonsense")
    with pytest.raises(InputError, match=r"cannot read .*bad.wav"):
        load_speech(tmp_path)


@pytest.mark.parametrize("kind", ["local", "nonlocal"])
def test_the_paper_s_training_learns_and_repeats(listed, kind):
    data = load_speech(listed)
    short = SpeechData(data.train[:, :1000], data.val[:, :1000], data.test, data.utterances)
    net, run = train_samples(short, kind, steps=30, every=30)
    assert run.records[-1].validation > run.records[0].validation + 0.1
    again, _ = train_samples(short, kind, steps=30, every=30)
    for a, b in zip(net.parameters(), again.parameters()):
        assert a.equal(b)


def test_training_on_frames_learns(listed):
    data = load_speech(listed)
    stages = ((12, 1e-2), (2, 1e-3))
    _, runs = train_frames(data, shape=TINY, stages=stages, batch=2, seconds=0.25, every=100)
    assert len(runs) == 2
    assert runs[-1].records[-1].validation > runs[0].records[0].validation + 1


def test_another_graph_can_be_trained_instead(listed):
    """What benchmarks/frames_graph.py does: a subclass with its own graph."""
    seen = []

    class Own(FrameNet):
        def graph(self, above):
            seen.append(above.shape)
            return super().graph(above)

    net, _ = train_frames(load_speech(listed), network=Own, shape=TINY, stages=((1, 1e-3),), batch=2, seconds=0.25)
    assert isinstance(net, Own)
    assert seen


def test_training_needs_data(listed):
    data = load_speech(listed)
    none = np.zeros((0, 16000), np.float32)
    with pytest.raises(InputError, match="the data hold no training clips"):
        train_samples(SpeechData(none, data.val, data.test), "local", steps=1)
    with pytest.raises(InputError, match=r"no training utterance is longer than 4.6 s. Add longer ones"):
        train_frames(data, shape=TINY, seconds=4.0)
