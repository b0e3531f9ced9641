"""Lines that say how far things are, where no terminal shows a bar."""

import re
import time

import pytest

from tests.fixtures.small import SMALL, file, splits
from weft import config, progress
from weft.progress import ProgressLines, counting, duration, with_progress
from weft.run import train


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines():
    said = []
    found = ProgressLines(said.append, Clock())
    found.heard = said
    yield found
    found.close()


def test_the_beginning_and_the_end_are_said(lines):
    with lines.during("tokenising train", "rows") as stage:
        assert lines.heard == ["tokenising train …"]
        lines.clock.now, stage.done = 4.2, 1234
    assert lines.heard[1:] == ["tokenising train: 1,234 rows in 4.2 s"]


def test_in_between_a_line_comes_every_half_minute(lines):
    with lines.during("training", "examples", announce=False) as stage:
        for second in range(0, 100):
            lines.clock.now, stage.done = second, 12 * second
            stage.share, stage.where = (0.1, 0.1 + second / 1000), f"update {second}"
            lines.say_if_due()
    assert lines.heard == [
        "training: update 30, 12 examples/s, 14 min left",
        "training: update 60, 12 examples/s, 14 min left",
        "training: update 90, 12 examples/s, 14 min left",
    ]


def test_other_lines_make_one_needless(lines):
    with lines.during("training", announce=False):
        for second in range(0, 100, 5):
            lines.clock.now = second
            if second % 20 == 0:
                lines.say(f"evaluation at {second}")
            lines.say_if_due()
    assert all("evaluation" in line for line in lines.heard)


def test_a_time_limit_ends_it_sooner(lines):
    with lines.during("training", "tokens", announce=False) as stage:
        stage.share, stage.left, stage.done = (0.0, 0.01), 45.0, 7000
        assert stage.describe(50.0) == "training: 7,000 tokens, 140 tokens/s, 45 s left"


def test_silent_stage_is_named_with_its_time(lines):
    with lines.during("training", announce=False) as outer:
        with lines.during("measuring dev", announce=False):
            lines.clock.now = 31.0
            lines.say_if_due()
        assert lines.heard == ["measuring dev: 31 s"]
        assert lines.stage is outer


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (31, "31 s"),
        (119, "119 s"),
        (120, "2 min"),
        (200, "3 min"),
        (3569, "59 min"),
        (3570, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_training_says_what_it_does(tmp_path, capsys, monkeypatch):
    """Reading, tokenising, and the training itself with its speed and how long it will take."""
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.01)
    changes = {**SMALL, "train.batch_size": 1, "train.epochs": 3, "data.train": str(file(tmp_path))}
    recipe = config.recipe("bag").with_values(changes, "test")
    train(recipe, tmp_path / "run")
    said = capsys.readouterr().err.splitlines()
    path = tmp_path / "train.tsv"
    rows = {}
    for what in (
        f"reading {path}",
        "learning the vocabulary",
        "tokenising train",
        "tokenising dev",
    ):
        begun = said.index(f"{what} …")
        ended = re.compile(re.escape(what) + r": (\d+) rows in \d+\.\d s")
        (rows[what],) = (int(m[1]) for m in map(ended.fullmatch, said[begun:]) if m)
    train_rows = rows.pop("tokenising dev") + rows["tokenising train"]
    assert set(rows.values()) == {rows["tokenising train"]}
    assert train_rows == 46
    during = [line for line in said if line.startswith("training: epoch ")]
    assert during
    assert all(" of 3, update " in line for line in during)
    assert any(" examples/s, " in line and line.endswith(" left") for line in during)
    logged = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert during[0] in logged


def test_a_quiet_training_says_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.05)
    recipe = config.recipe("bag").with_values(SMALL, "test")
    train(recipe, tmp_path / "run", splits=splits(), quiet=True)
    assert capsys.readouterr().err == ""


def test_compiling_is_said(tmp_path, capsys):
    changes = {**SMALL, "train.compile": True, "encoder.layers": 1, "encoder.hidden": 8}
    changes |= {"embedder.width": 8, "encoder.heads": 2}
    recipe = config.recipe("transformer").with_values(changes, "test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "weft.train.cuda_graphs.compile_blocks", lambda model: 1
        )  # no compiler is needed
        train(recipe, tmp_path / "run", splits=splits())
    said = capsys.readouterr().err.splitlines()
    begun = said.index("compiling …")
    assert any(line.startswith("compiling: done in ") for line in said[begun:])


def test_rows_are_read_as_they_are(capsys):
    rows = with_progress(iter(range(7)), "reading")
    assert list(rows) == list(range(7))
    assert capsys.readouterr().err.splitlines()[-1].startswith("reading: 7 rows in ")
    left = with_progress(iter(range(7)), "reading")
    assert next(left) == 0
    left.close()  # not read to the end: it does not say so
    assert capsys.readouterr().err == "reading …\n"


def test_verbs_that_take_long_say_how_far_they_are(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.02)
    with counting("texts") as count:
        for _ in range(50):
            count(100)
            time.sleep(0.005)
    said = capsys.readouterr().err.splitlines()
    assert said
    assert all(line.startswith("so far: ") and " texts, " in line for line in said)
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 30.0)
    with counting("texts") as count:
        count(100)
    assert capsys.readouterr().err == ""
