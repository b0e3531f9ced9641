"""`weft tune` as a person types it."""

import json

import pytest

from tests.fixtures import small
from tests.fixtures.command import fails, ok, says

pytest.importorskip("optuna")


@pytest.fixture
def words(tmp_path):
    """The arguments of a small search."""
    data = small.file(tmp_path)
    given = ("tune", "--recipe", "tfidf", "--train", data, "-o", tmp_path / "out")
    return (*given, "--set", "data.dev_fraction=0.3", "--seeds", "2")


def test_a_search_from_the_command_line(words, tmp_path):
    data = small.file(tmp_path, "test.tsv", 31)
    search = ("--search", "classic.C=0.001,5", "--sampler", "grid", "--test", data)
    done = ok(*words, *search, "--set", "classic.C=0.001")
    says(done.err, "trial 1: complete", "classic.C=0.001", "trial 2:", "tuned, seed 2: dev")
    says(done.out, "trial", "C", "Tuned ", ", original ", "report: ")
    page = (tmp_path / "out/tune.html").read_text()
    assert "weft tune --recipe tfidf" in page
    assert len(json.loads((tmp_path / "out/tune.json").read_text())["trials"]) == 2
    ok("evaluate", tmp_path / "out/model", data)
    ok("train", tmp_path / "out/best.toml", "-o", tmp_path / "run", "--quiet")
    again = ok(*words, *search, "--set", "classic.C=0.001", "--quiet")
    assert again.err == ""
    assert again.out == done.out


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ((), ("Nothing to search", "--search", "classic.C")),
        (("--search", "classic.min_coutn=1,2"), ("Unknown option 'min_coutn'", "Did you mean")),
        (("--search", "C"), ("--search 'C' should look like",)),
        (("--preset", "tiny"), ("Unknown preset 'tiny'", "bert, small")),
        (("--search", "classic.C=0.1..5", "--sampler", "grid"), ("The grid has no end",)),
    ],
)
def test_mistakes_are_one_line(words, tmp_path, more, parts):
    says(fails(*words, *more), *parts)
    assert not (tmp_path / "out").exists()


def test_a_configuration_or_a_recipe(tmp_path):
    says(fails("tune", "-o", tmp_path / "out"), "Nothing to tune: pass a configuration file or")
    says(fails("tune", "a.toml", "--recipe", "bag", "-o", tmp_path), "Nothing to tune")
    says(fails("tune", "--preset", "bert", "-o", tmp_path / "out"), "pass --pretrained FOLDER")
    says(fails("tune", tmp_path / "no.toml", "-o", tmp_path), "no such configuration file")
