"""WAV files and log-mel spectra: every width of samples, an independent slow version, bad files."""

import itertools
import math
import struct
import wave

import numpy as np
import pytest

from weft.errors import UserError
from weft.metrics.generation.error_rates import CharacterErrors, WordErrors, count_edits
from weft.text.audio.log_mel import LogMel, log_mel
from weft.text.audio.wav import read_wav, write_wav
from weft.text.example import Example
from weft.text.formats.features import load_matrix


def write(path, values, size, rate=8000, channels=1):
    with wave.open(str(path), "wb") as stream:
        stream.setparams((channels, size, rate, 0, "NONE", ""))
        data = b""
        for value in values:
            whole = round(value * 2 ** (8 * size - 1))
            data += (whole + 128).to_bytes(1, "little") if size == 1 else whole.to_bytes(
                size, "little", signed=True)  # fmt: skip
        stream.writeframes(data)
    return path


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_samples_of_every_width_are_read(tmp_path, size):
    values = [0.0, 0.5, -0.5, -1.0, 0.25, -0.25]
    samples, rate = read_wav(write(tmp_path / "a.wav", values, size))
    assert (samples.tolist(), rate) == (values, 8000)
    samples, _ = read_wav(write(tmp_path / "b.wav", values, size, channels=2))
    assert samples.tolist() == [0.25, -0.75, 0.0]


def slow_log_mel(samples, rate, mels):
    """The definition, sample by sample and bin by bin."""
    size, hop = round(rate * 0.025), round(rate * 0.01)
    emphasised = [samples[0]] + [b - 0.97 * a for a, b in itertools.pairwise(samples)]
    bins = 1
    while bins < size:
        bins *= 2

    def mel(f): return 2595 * math.log10(1 + f / 700)  # fmt: skip

    def hertz(m): return 700 * (10 ** (m / 2595) - 1)  # fmt: skip

    edges = [hertz(mel(rate / 2) * k / (mels + 1)) for k in range(mels + 2)]
    edges = [max(edge, k * rate / bins * 0.5) for k, edge in enumerate(edges)]
    out = []
    for first in range(0, len(samples) - size + 1, hop):
        power = []
        for k in range(bins // 2 + 1):
            total = 0j
            for n in range(size):
                window = 0.5 - 0.5 * math.cos(2 * math.pi * n / size)
                angle = -2 * math.pi * k * n / bins
                total += emphasised[first + n] * window * complex(math.cos(angle), math.sin(angle))
            power.append(abs(total) ** 2)
        row = []
        for m in range(mels):
            low, middle, high = edges[m : m + 3]
            total = 0.0
            for k, value in enumerate(power):
                f = k * rate / bins
                if low < f < high:
                    up = (f - low) / (middle - low) if f <= middle else (high - f) / (high - middle)
                    total += value * up
            row.append(math.log(max(total, 1e-10)))
        out.append(row)
    return np.array(out)


def test_log_mel_is_its_definition():
    samples = np.random.default_rng(0).normal(size=1000) * 0.1
    expected = slow_log_mel(samples.tolist(), 4000, 13)
    np.testing.assert_allclose(log_mel(samples, 4000, 13), expected, atol=1e-4)


def test_vectors_are_standardised_stacked_and_resampled():
    samples = np.random.default_rng(0).normal(size=4000)
    one = LogMel(mels=7).vectors(samples, 8000)
    assert np.allclose(one.mean(0), 0, atol=1e-5)
    assert np.allclose(one.std(0), 1, atol=1e-3)
    whole = LogMel(mels=7, standardise="recording").vectors(samples, 8000)
    spectrum = log_mel(samples, 8000, 7)
    np.testing.assert_allclose(whole, (spectrum - spectrum.mean()) / spectrum.std(), atol=1e-4)
    two = LogMel(mels=7, stack=3).vectors(samples, 8000)
    assert two.shape == (-(-len(one) // 3), 21)
    assert two[0].tolist() == one[:3].ravel().tolist()
    assert len(LogMel(sample_rate=4000, mels=7).vectors(samples, 8000)) == len(one)
    assert LogMel(mels=7).vectors(samples[:3], 8000).shape == (1, 7)


def test_what_is_far_below_the_loudest_band_is_raised():
    samples = np.random.default_rng(0).normal(size=4000) * np.linspace(1e-4, 1, 4000)
    spectrum = log_mel(samples, 8000, 7)
    least = spectrum.max() - 30 * np.log(10) / 10
    raised = np.maximum(spectrum, least)
    assert 0.1 < (spectrum < least).mean() < 0.9
    found = LogMel(mels=7, standardise="recording", range_db=30).vectors(samples, 8000)
    np.testing.assert_allclose(found, (raised - raised.mean()) / raised.std(), atol=1e-4)
    for bad in (-1, 201, float("nan")):
        with pytest.raises(UserError, match="'range_db' should be from 0 to 200"):
            LogMel(range_db=bad)


def broken(path, kind):
    """Write a file that is wrong in one way."""
    write_wav(path, np.zeros(100), 8000)
    data = bytearray(path.read_bytes())
    if kind == "text":
        data = bytearray(b"no recording at all")
    elif kind == "empty":
        data = bytearray()
    elif kind == "cut":
        data = data[:30]
    elif kind == "claims":
        data[40:44] = struct.pack("<I", 2**31)
    elif kind == "short":
        data = data[:100]
    elif kind == "float":
        data[20:22] = struct.pack("<H", 3)
    elif kind == "rate":
        data[24:28] = struct.pack("<I", 10)
    elif kind == "silent":
        data[40:44] = struct.pack("<I", 0)
        data = data[:44]
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("kind", "message"),
    [("text", "not a readable WAV"), ("empty", "not a readable WAV"),
     ("cut", "not a readable WAV"), ("claims", "at most 600"), ("short", "promises"),
     ("float", "not a readable WAV"), ("rate", "sample rate of 10 Hz"), ("silent", "empty")],
)  # fmt: skip
def test_a_bad_recording_is_named(tmp_path, kind, message):
    broken(tmp_path / "a.wav", kind)
    with pytest.raises(UserError, match=message) as caught:
        read_wav(tmp_path / "a.wav")
    assert "a.wav" in str(caught.value)


def test_recordings_stay_in_the_folder_of_their_file(tmp_path):
    inside = tmp_path / "data"
    inside.mkdir()
    for place in (tmp_path / "out.wav", inside / "in.wav"):
        write_wav(place, np.zeros(900), 8000)
    (inside / "link.wav").symlink_to(tmp_path / "out.wav")
    file = str(inside / "train.tsv")
    audio = LogMel()
    assert load_matrix(Example("in.wav", file=file), frontend=audio).shape[1] == 40
    for name in ("../out.wav", str(inside / "in.wav"), "link.wav"):
        with pytest.raises(UserError, match=r"not in the folder of .*train\.tsv"):
            load_matrix(Example(name, file=file), frontend=audio)
    with pytest.raises(UserError, match="embedder 'log-mel'"):
        load_matrix(Example("in.wav", file=file))
    with pytest.raises(UserError, match=r"no\.wav"):
        load_matrix(Example("no.wav", file=file), frontend=audio)


@pytest.mark.parametrize(
    "options", [{"mels": 1}, {"hop_ms": 0}, {"stack": 0}, {"window_ms": -1}, {"sample_rate": 7}]
)
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(UserError, match="log-mel"):
        LogMel(**options)


def test_error_rates_count_edits():
    def slow(a, b):
        if not a or not b:
            return len(a) + len(b)
        return min(slow(a[1:], b[1:]) + (a[0] != b[0]), slow(a[1:], b) + 1, slow(a, b[1:]) + 1)

    draw = np.random.default_rng(1)
    for _ in range(30):
        a, b = (draw.integers(0, 3, draw.integers(0, 6)).tolist() for _ in range(2))
        assert count_edits(a, b) == slow(a, b)
    words, characters = WordErrors(), CharacterErrors()
    for metric in (words, characters):
        metric.add(["one three", "six"], [("one two three",), ("six",)])
    assert words.compute(0)["wer"].value == pytest.approx(1 / 4)
    assert characters.compute(0)["cer"].value == pytest.approx(4 / 16)
