"""Read untrusted WAV files with the standard library: PCM of 8, 16, 24 or 32 bits.

T samples   C channels
"""

import os
import wave
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.text.line_source import file_not_found
from weft.untrusted import check_regular

SAMPLE_BYTES = (1, 2, 3, 4)
MIN_RATE, MAX_RATE = 1_000, 384_000
MAX_SECONDS = 600


def read_wav(path: str | os.PathLike[str]) -> tuple[np.ndarray, int]:
    """Return the samples (T,) of a recording from -1 to 1, channels averaged, and its rate.

    A header is compared with the size of the file before anything is allocated.
    """
    name = os.fspath(path)
    check_regular(name)
    try:
        with wave.open(name, "rb") as stream:
            channels, size, rate, frames, *_ = stream.getparams()
            _check_header(name, channels, size, rate, frames)
            data = stream.readframes(frames)
    except UserError:  # a ValueError too
        raise
    except FileNotFoundError:
        raise file_not_found(name) from None
    except (wave.Error, EOFError, OSError, RuntimeError, ValueError) as error:
        reason = str(error) or "it ends too early"
        raise UserError(
            f"{name}: not a readable WAV file: {reason}. Convert it to 16-bit PCM."
        ) from None
    if len(data) < frames * channels * size:
        raise UserError(
            f"{name}: the header promises {frames:,} samples; the file ends after "
            f"{len(data) // (channels * size):,}. Copy it again."
        )
    return decode_pcm(data, size).reshape(frames, channels).mean(1, dtype=np.float32), rate


def write_wav(path: str | os.PathLike[str], samples: np.ndarray, rate: int) -> None:
    """Write samples (T,) from -1 to 1 as 16-bit mono PCM."""
    data = np.clip(np.round(np.asarray(samples, float) * 32768), -32768, 32767).astype("<i2")
    with wave.open(os.fspath(path), "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(rate)
        stream.writeframes(data.tobytes())


def decode_pcm(data: bytes, size: int) -> np.ndarray:
    """Return little-endian PCM of `size` bytes a sample as float32 from -1 to 1."""
    if size == 1:  # 8-bit samples are unsigned
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if size == 3:
        triples = np.frombuffer(data, np.uint8).reshape(-1, 3).astype(np.int32)
        values = (triples[:, 0] << 8 | triples[:, 1] << 16 | triples[:, 2] << 24) >> 8
        return values.astype(np.float32) / 2**23
    values = np.frombuffer(data, f"<i{size}")
    return (values / 2.0 ** (8 * size - 1)).astype(np.float32)


def _check_header(name: str, channels: int, size: int, rate: int, frames: int) -> None:
    """Raise UserError for a header that no usable recording has."""
    if size not in SAMPLE_BYTES or not 1 <= channels <= 64:
        raise UserError(
            f"{name}: {channels} channels of {8 * size} bits. Convert it to mono 16-bit PCM."
        )
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UserError(
            f"{name}: a sample rate of {rate:,} Hz; from {MIN_RATE:,} to {MAX_RATE:,} are read. "
            "Resample it."
        )
    if frames < 1:
        raise UserError(f"{name}: the recording is empty. Remove it.")
    if frames > MAX_SECONDS * rate:
        raise UserError(
            f"{name}: {frames / rate:,.0f} seconds; at most {MAX_SECONDS} are read. Cut it at "
            "pauses."
        )
    available = Path(name).stat().st_size
    if frames * channels * size > available:
        raise UserError(
            f"{name}: the header promises {frames * channels * size:,} bytes of samples; the file "
            f"has {available:,}. Copy it again."
        )
