"""Log-mel spectra of recordings, in NumPy.

T frames   W samples of a window   M mel bands
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from weft.errors import UserError

FLOOR = 1e-10  # of power, so that silence has a logarithm
PRE_EMPHASIS = 0.97
MAX_RANGE = 200  # decibels

Standardise = Literal["bands", "recording"]


@dataclass(frozen=True)
class LogMel:
    """Settings of log-mel vectors: windows of `window_ms` every `hop_ms`, `mels` bands.

    Recordings of another rate are resampled to `sample_rate`; 0 keeps the rate of each. `stack`
    neighbouring frames are one vector. Every band has mean 0 and deviation 1 in each recording, so
    that the microphone and the loudness count less; with `standardise = "recording"` all bands
    together have, which keeps their balance: of a single word it says more than of a sentence.
    What is more than `range_db` decibels below the loudest band of the recording is raised to that
    level, so that a quiet room and a noisy one sound alike; 0 changes nothing.
    """

    sample_rate: int = 0
    mels: int = 40
    window_ms: float = 25.0
    hop_ms: float = 10.0
    stack: int = 1
    standardise: Standardise = "bands"
    range_db: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("mels", 2, 512), ("window_ms", 1, 1000), ("hop_ms", 0.5, 1000), ("stack", 1, 64)
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high:
                raise UserError(f"log-mel: '{name}' should be from {low} to {high}, got {value}.")
        if not 0 <= self.range_db <= MAX_RANGE:
            raise UserError(
                f"log-mel: 'range_db' should be from 0 to {MAX_RANGE}, got {self.range_db}."
            )
        if self.sample_rate and not 1_000 <= self.sample_rate <= 384_000:
            raise UserError(
                "log-mel: 'sample_rate' should be 0 or from 1000 to 384000, got "
                f"{self.sample_rate}."
            )

    @property
    def width(self) -> int:
        """The numbers of a vector."""
        return self.mels * self.stack

    def vectors(self, samples: np.ndarray, rate: int) -> np.ndarray:
        """Return the vectors (T, mels · stack) of a recording's samples."""
        if self.sample_rate and rate != self.sample_rate:
            samples, rate = resample(samples, rate, self.sample_rate), self.sample_rate
        spectrum = log_mel(samples, rate, self.mels, self.window_ms, self.hop_ms)  # (T, M)
        if self.range_db:
            spectrum = spectrum.clip(spectrum.max() - self.range_db * math.log(10) / 10)
        axis = 0 if self.standardise == "bands" else None
        return stack_frames(standardise(spectrum, axis), self.stack)


def log_mel(
    samples: np.ndarray, rate: int, mels: int = 40, window_ms: float = 25.0, hop_ms: float = 10.0
) -> np.ndarray:
    """Return the log-mel spectrum (T, M) of samples: pre-emphasis, Hann windows, power, mel bands.

    A recording shorter than a window is padded with silence.
    """
    size, hop = max(2, round(rate * window_ms / 1000)), max(1, round(rate * hop_ms / 1000))
    samples = np.asarray(samples, np.float64)
    samples = np.append(samples[:1], samples[1:] - PRE_EMPHASIS * samples[:-1])
    samples = np.pad(samples, (0, max(0, size - len(samples))))
    windows = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop]  # (T, W)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    bins = 1 << math.ceil(math.log2(size))
    power = np.abs(np.fft.rfft(windows * hann, bins)) ** 2
    out: np.ndarray = np.log(np.maximum(power @ mel_filters(rate, bins, mels), FLOOR))
    return out.astype(np.float32)


@lru_cache(maxsize=8)
def mel_filters(rate: int, bins: int, mels: int) -> np.ndarray:
    """Return triangular filters (bins / 2 + 1, M), evenly spaced in mel from 0 to half the rate."""
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, mels + 2) / 2595) - 1)  # in Hz
    # A band narrower than a bin would hear nothing: edges keep at least one bin between them.
    edges = np.maximum(edges, edges[0] + np.arange(mels + 2) * (rate / bins) * 0.5)
    frequency = np.fft.rfftfreq(bins, 1 / rate)[:, None]
    rising = (frequency - edges[:-2]) / np.maximum(edges[1:-1] - edges[:-2], 1e-9)
    falling = (edges[2:] - frequency) / np.maximum(edges[2:] - edges[1:-1], 1e-9)
    filters: np.ndarray = np.maximum(0, np.minimum(rising, falling))
    filters.flags.writeable = False
    return filters


def standardise(vectors: np.ndarray, axis: int | None = 0) -> np.ndarray:
    """Return vectors (T, M) with mean 0 and deviation 1 of each number over time, or of all."""
    centred = vectors - vectors.mean(axis)
    out: np.ndarray = centred / np.maximum(centred.std(axis), 1e-3)
    return out.astype(np.float32)


def stack_frames(vectors: np.ndarray, stack: int) -> np.ndarray:
    """Return vectors of `stack` neighbours side by side; zeros fill up the last."""
    if stack == 1:
        return vectors
    missing = -len(vectors) % stack
    whole = np.pad(vectors, ((0, missing), (0, 0)))
    return whole.reshape(len(whole) // stack, -1)


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Return samples at another rate, by a polyphase filter."""
    from scipy.signal import resample_poly

    factor = math.gcd(rate, wanted)
    out: np.ndarray = resample_poly(samples, wanted // factor, rate // factor)
    return out.astype(np.float32)
