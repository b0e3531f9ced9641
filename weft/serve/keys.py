"""Bearer keys with names and rate limits, compared in constant time."""

import hashlib
import hmac
import time
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import UserError
from weft.serve.http_error import HttpError

MIN_KEY_CHARACTERS = 16
ADMIN = "admin"  # the name of the key that may reload models


@dataclass
class Key:
    """A client's key: its hash, and how many requests it may send per second."""

    name: str
    digest: bytes
    rate: float = 0.0  # 0: no limit
    tokens: float = 0.0  # of the token bucket
    refilled_at: float = field(default_factory=time.monotonic)

    def take(self, now: float) -> float:
        """Take one request from the bucket; return the seconds to wait if it is empty, else 0.

        The bucket holds the requests of one second, so that a client can send them at once.
        """
        if not self.rate:
            return 0.0
        size = max(self.rate, 1.0)
        self.tokens = min(size, self.tokens + (now - self.refilled_at) * self.rate)
        self.refilled_at = now
        if self.tokens < 1:
            return (1 - self.tokens) / self.rate
        self.tokens -= 1
        return 0.0


class Keys:
    """The keys of a server."""

    def __init__(self, keys: list[Key]):
        self._keys = keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    def authenticate(self, authorization: str) -> Key | None:
        """Return the key of an Authorization header; all keys are compared, whichever fits."""
        scheme, _, secret = authorization.partition(" ")
        digest = _hash(secret.strip())
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found if scheme.lower() == "bearer" else None


def check_rate(key: Key) -> None:
    """Raise a 429 if the key has sent more than its requests per second."""
    if wait := key.take(time.monotonic()):
        seconds = max(1, round(wait + 0.5))
        raise HttpError(
            429,
            f"The key '{key.name}' may send {key.rate:g} requests per second.",
            {"retry-after": str(seconds)},
        )


def read_keys(path: Path, workers: int = 1) -> Keys:
    """Read a key file: NAME KEY [REQUESTS_PER_SECOND] on each line, # for comments.

    Each of several workers allows its part of the requests per second.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: no such key file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read the key file ({error}).") from None
    keys: dict[str, Key] = {}
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        if len(fields) not in (2, 3):
            raise UserError(
                f"{path}:{number}: expected NAME KEY [REQUESTS_PER_SECOND], found "
                f"{len(fields)} {'field' if len(fields) == 1 else 'fields'}."
            )
        name, secret, *rest = fields
        if len(secret) < MIN_KEY_CHARACTERS:
            raise UserError(
                f"{path}:{number}: the key of '{name}' has fewer than {MIN_KEY_CHARACTERS} "
                "characters. Make one with `openssl rand -hex 24`."
            )
        if name in keys:
            raise UserError(f"{path}:{number}: a second key called '{name}'. Rename it.")
        rate = _parse_rate(rest[0], f"{path}:{number}") / workers if rest else 0.0
        keys[name] = Key(name, _hash(secret), rate, tokens=max(rate, 1.0))
    if not keys:
        raise UserError(f"{path}: no key in it. Write NAME KEY on a line.")
    return Keys(list(keys.values()))


def _parse_rate(text: str, where: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 < rate < 1e9:
        raise UserError(f"{where}: requests per second should be a number above 0, got '{text}'.")
    return rate


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
