"""Small data and settings that tests share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.run import Splits
from weft.text.example import Example

SMALL = {
    "train.epochs": 2,
    "train.batch": 5,
    "train.threads": 1,
    "train.patience": 0,
    "train.average": 0.0,
}
WORDS = ("film", "plot", "cast", "score", "scene", "dinner", "phone")


def examples(count: int = 46) -> list[Example]:
    """Texts of different lengths whose label is decided by one word."""
    out = []
    for i in range(count):
        good = i % 2 == 0
        filler = " ".join(WORDS[(i * 3 + k) % len(WORDS)] for k in range(1 + i % 6))
        text = f"the {filler} was {'good' if good else 'bad'} {i}"
        out.append(Example(text, "positive" if good else "negative", file="small.tsv", line=i + 1))
    return out


def splits(count: int = 46) -> Splits:
    whole = examples(count)
    train, dev, test = whole[: count - 18], whole[count - 18 : count - 8], whole[count - 8 :]
    return Splits(lambda: iter(train), lambda: iter(dev), lambda: iter(test))


def file(folder: Path, name: str = "train.tsv", count: int = 46) -> Path:
    path = folder / name
    rows = [f"{e.label}\t{e.text}\n" for e in examples(count)]
    path.write_text("".join(rows), "utf-8")
    return path


class Killed(BaseException):
    """What stands for a kill in the middle of a training."""


@contextmanager
def killed(step: int) -> Iterator[None]:
    """The training inside is killed after it has kept its state at this update or a later one."""
    from weft.train import checkpoint

    written = checkpoint.write

    def killing(path, trainee, *rest):
        written(path, trainee, *rest)
        if trainee.step >= step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write", killing)
        with pytest.raises(Killed):
            yield
