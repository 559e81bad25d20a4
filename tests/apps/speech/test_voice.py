"""The model for real noise: its laws, its shipped weights, its training."""

import dataclasses
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import soundfile
import torch

import glocal
from glocal import samples
from glocal.apps.speech import voice_training
from glocal.apps.speech.metrics import si_sdr
from glocal.apps.speech.mixing import Mixer, Recordings
from glocal.apps.speech.models import VoiceDenoiser, load_voice, network_in, save_trained
from glocal.apps.speech.options import SpeechOptions, SpeechTraining
from glocal.apps.speech.voice import VoiceNet, VoiceShape
from glocal.apps.speech.voice_loss import voice_loss
from glocal.apps.speech.voice_training import (
    VoicePlan,
    level,
    load_recordings,
    pack_recordings,
    train_voice,
)
from glocal.errors import ArgumentError, InputError
from glocal.files.model_files import write_model

TINY = VoiceShape(stem=4, channels=6, dilations=(1, 2), frame_maps=2, hidden=8, head=3, level_reach=5)


@pytest.fixture(scope="module")
def sentence():
    sound, rate = soundfile.read(samples.path("speech.wav"), dtype="float32")
    assert rate == 16000
    return sound


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    sounds = {"speech": 3, "noise": 2, "speech_val": 1, "noise_val": 1}
    return {k: [rng.integers(-9000, 9000, 20_000 + i).astype(np.int16) for i in range(n)] for k, n in sounds.items()}


def test_the_shipped_model_removes_white_noise_and_leaves_clean_speech(sentence):
    noise = np.random.default_rng(0).standard_normal(len(sentence)).astype(np.float32)
    noisy = sentence + noise * np.float32(sentence.std() * 10 ** (-5 / 20))
    clean = glocal.denoise_speech(noisy, 16000)
    truth = torch.from_numpy(sentence)
    assert clean.model == "voice"
    assert float(si_sdr(torch.from_numpy(clean.audio), truth)) > float(si_sdr(torch.from_numpy(noisy), truth)) + 7
    assert float(si_sdr(torch.from_numpy(glocal.denoise_speech(sentence, 16000).audio), truth)) > 30


@pytest.mark.parametrize("scale", [1e-3, 100])
def test_the_level_of_a_recording_does_not_matter(scale):
    torch.manual_seed(0)
    net = VoiceNet(TINY).eval()
    x = torch.randn(1, 4000)
    torch.testing.assert_close(net(scale * x) / scale, net(x), rtol=1e-3, atol=1e-3)


def test_blocks_equal_the_whole():
    torch.manual_seed(0)
    denoiser = VoiceDenoiser(VoiceNet(TINY))
    hop, context = TINY.hop, denoiser.plan.context
    sound = np.random.default_rng(1).standard_normal((3 * context, 2)).astype(np.float32)
    whole = denoiser(sound, 0, len(sound))
    first, last = context + 4 * hop, context + 9 * hop
    part = denoiser(sound[first - context : last + context], context, context + last - first)
    np.testing.assert_allclose(part, whole[first:last], atol=1e-5)


def test_results_on_two_grids_of_frames_are_averaged():
    torch.manual_seed(0)
    net, x = VoiceNet(TINY).eval().requires_grad_(False), torch.randn(1, 5000)
    later = net(torch.nn.functional.pad(x, (TINY.hop // 2, 0)))[:, TINY.hop // 2 :]
    found, _ = net.denoise_rows(x, 300, 4000)
    assert float((later - net(x)).abs().max()) > 0.01
    torch.testing.assert_close(found, ((net(x) + later) / 2)[:, 300:4000])


def test_one_mask_serves_both_channels():
    x = torch.randn(1, 5000)
    net = VoiceNet(TINY).eval()
    both, _ = net.denoise_rows(torch.cat([x, x]), 0, 5000)
    alone, gain = net.requires_grad_(False).denoise_rows(x, 0, 5000)
    torch.testing.assert_close(both, torch.cat([alone, alone]))
    assert gain.shape == (5000,)
    assert 0 <= float(gain.min()) <= float(gain.max()) <= 1 + 1e-6


def test_auto_takes_frames_where_the_noise_level_is_known():
    assert SpeechOptions().network == "voice"
    assert SpeechOptions(sigma=0.1).network == "frames"
    with pytest.raises(ArgumentError, match=r"`sigma` \(=0.1\) is not used by the model 'voice'"):
        SpeechOptions(model="voice", sigma=0.1)


@pytest.fixture
def few_pairs(monkeypatch):
    """Validate on three pairs, not on 48."""
    whole = voice_training.validation_set
    monkeypatch.setattr(voice_training, "validation_set", lambda speech, noise: whole(speech, noise, 3))


@pytest.mark.parametrize("device", ["cpu", *["cuda"] * torch.cuda.is_available()])
def test_a_training_that_stops_ends_as_one_that_does_not(tmp_path, data, few_pairs, device):
    plan = VoicePlan(steps=4, batch=2, seconds=0.3, warmup=2)
    train = partial(train_voice, data, device=device)
    whole = train(tmp_path / "whole", plan, TINY, every=2)
    train(tmp_path / "parts", plan, TINY, every=1, seconds=0)
    assert not (tmp_path / "parts" / "voice.jsonl").exists()  # no time at all: only the start is kept

    class StopError(Exception):
        pass

    def stop(line):
        if line["step"] == 2:
            raise StopError

    with pytest.raises(StopError):
        train(tmp_path / "parts", plan, TINY, every=2, callback=stop)
    parts = train(tmp_path / "parts", plan, TINY, every=2)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, parts.state_dict()[name]), name
    for other, shape in ((replace(plan, steps=5), TINY), (plan, replace(TINY, channels=5))):
        with pytest.raises(InputError, match="belongs to a training with other settings"):
            train(tmp_path / "parts", other, shape)


def test_a_step_and_a_seed_decide_the_mixture(data):
    mixers = [
        Mixer(Recordings(data["speech"], "cpu"), Recordings(data["noise"], "cpu"), 4000, seed) for seed in (0, 0, 1)
    ]
    (clean, noisy), (same, _), (other, _) = (mixer.draw(3, 7) for mixer in mixers)
    assert torch.equal(clean, same)
    assert not torch.equal(clean, other)
    assert torch.isfinite(noisy).all()
    assert float(noisy.abs().max()) <= 1.1


def test_every_kind_of_noise_is_finite_and_has_a_level(data):
    mixer = Mixer(Recordings(data["speech"], "cpu"), Recordings(data["noise"], "cpu"), 8000, 0)
    g = torch.Generator().manual_seed(0)
    for noise in (mixer.babble(3, g), mixer.notes(3, g), mixer.knocks(3, g), mixer.hum(3, g), mixer.noises(16, g)):
        assert torch.isfinite(noise).all()
        assert (noise.std(1) > 0.3).all()
    swells = mixer.swells(3, g)
    assert 1.5 < float(swells.max() / swells.min()) < 10 ** (24 / 20)


def test_faster_play_raises_the_pitch(data):
    time = np.arange(64_000) / 16000
    tone = Recordings([np.round(9000 * np.sin(2 * np.pi * 1000 * time)).astype(np.int16)], "cpu")
    mixer = Mixer(tone, Recordings(data["noise"], "cpu"), 16_000, 0)
    rows = mixer.stretched(tone, 8, (90, 95, 100, 110), torch.Generator().manual_seed(0), by_file=True)
    pitch = torch.fft.rfft(rows).abs().argmax(1)
    assert len(set(pitch.tolist())) > 2
    assert 900 <= int(pitch.min()) < int(pitch.max()) <= 1100
    torch.testing.assert_close(rows.std(1), torch.full((8,), 9000 / 32768 / 2**0.5), rtol=0.02, atol=0)


def test_a_training_may_start_from_a_trained_network(tmp_path, data, few_pairs):
    torch.manual_seed(3)
    start = VoiceNet(TINY)
    net = train_voice(data, tmp_path, VoicePlan(steps=1, batch=2, seconds=0.3, rate=1e-9), start=start)
    taken = (name for name in start.state_dict() if not name.startswith("mask"))  # the last layer is levelled
    assert all(torch.allclose(net.state_dict()[name], start.state_dict()[name], atol=1e-6) for name in taken)
    assert VoicePlan.of(steps=None, seed=1, fresh=False).rate < VoicePlan().rate
    with pytest.raises(ArgumentError, match=r"`start` \(='a.safetensors'\) is not used by the model 'frames'"):
        SpeechTraining(model="frames", start="a.safetensors")


def test_a_wider_output_starts_as_the_narrow_one(tmp_path, data, few_pairs):
    narrow = replace(TINY, refined=6, taps=3, side_taps=0)
    torch.manual_seed(0)
    first = VoiceNet(narrow)
    wider = voice_training.VoiceTraining(VoicePlan(seed=3), TINY, "cpu", first).net
    x = torch.randn(1, 3000)
    assert float(first(x).std()) > 0.1
    torch.testing.assert_close(wider(x), first(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="`start` has other sizes"):
        voice_training.VoiceTraining(VoicePlan(), narrow, "cpu", VoiceNet(TINY))
    with pytest.raises(ArgumentError, match="`start` has other sizes"):
        voice_training.VoiceTraining(VoicePlan(), replace(TINY, hidden=7), "cpu", first)


def test_files_that_do_not_say_the_sizes_of_the_output_are_read(tmp_path):
    narrow = replace(TINY, refined=2 * TINY.head, taps=3, side_taps=0)
    net = VoiceNet(narrow)
    old = {key: value for key, value in asdict(narrow).items() if key not in ("refined", "taps", "side_taps")}
    arrays = {key: value.numpy().astype(np.float16) for key, value in net.state_dict().items()}
    path = write_model("speech-voice", arrays, folder=tmp_path, info={"shape": old, "network": "voice", "rate": 16000})
    assert load_voice(path).shape == narrow


def test_the_loss_is_least_at_the_truth():
    clean = torch.randn(2, 8000)
    noisy = clean + 0.5 * torch.randn(2, 8000)
    at_truth, near, far = (voice_loss(x, clean, noisy) for x in (clean, 0.5 * (clean + noisy), noisy))
    assert at_truth < near < far


def test_weights_are_stored_with_their_sizes(tmp_path):
    net = VoiceNet(TINY)
    path = save_trained(net, "speech-voice", tmp_path, info={})
    assert network_in(str(path)) == "voice"
    assert load_voice(str(path)).shape == TINY


def test_recordings_come_from_folders(tmp_path, data):
    for folder in ("clean/train", "noise"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(InputError, match="has no recordings for speech, noise"):
        load_recordings(tmp_path)
    for i in range(30):
        soundfile.write(tmp_path / "clean" / "train" / f"speaker{i}_1.wav", np.full(1600, i, np.int16), 16000)
        soundfile.write(tmp_path / "noise" / f"noise{i}.wav", np.full(3200, i, np.int16), 16000)
    found = load_recordings(tmp_path)
    assert len(found["speech"]) + len(found["speech_val"]) == len(found["noise"]) + len(found["noise_val"]) == 30
    assert 0 < len(found["speech_val"]) < 6
    pack_recordings(found, tmp_path / "packed.npz")
    again = load_recordings(tmp_path / "packed.npz")
    assert all(np.array_equal(a, b) for k in found for a, b in zip(found[k], again[k], strict=True))


def test_clean_speech_keeps_its_level(sentence):
    out = glocal.denoise_speech(sentence, 16000).audio
    assert abs(20 * np.log10(float(out @ sentence) / float(sentence @ sentence))) < 0.1


def test_levelling_changes_the_gain_and_nothing_else():
    torch.manual_seed(0)
    net = VoiceNet(TINY).eval().requires_grad_(False)
    x = torch.randn(3, 6000)
    net.mask.filters.mul_(0.7)
    net.mask.bias.mul_(0.7)
    before = net(x)
    gain = level(net, x)
    assert 0.5 < gain < 0.9
    torch.testing.assert_close(net(x) * gain, before, rtol=1e-4, atol=1e-5)
    assert level(net, x) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("taps", [4, 5])
def test_the_gain_of_high_frequencies_counts_all_frames_of_a_bin(taps):
    net = VoiceNet(dataclasses.replace(TINY, taps=taps))
    with torch.no_grad():
        net.mask.filters.zero_()
        net.mask.bias.zero_()
        net.mask.bias[[side for _, side in net.shape.offsets].count(0) - 1] = 1.0  # the last frame
        _, gain = net.denoise_rows(torch.randn(1, 5000), 0, 5000)
    assert float(gain.mean()) == pytest.approx(1, abs=1e-3)
