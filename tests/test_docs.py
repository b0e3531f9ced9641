"""Every block of the README and the tour runs, as written, with the training made short."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from weft import config
from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.M | re.S)


def blocks(name: str) -> list[tuple[str, str]]:
    text = (ROOT / name).read_text("utf-8")
    return [
        (kind, re.sub(rf"^{pad}", "", body, flags=re.M)) for pad, kind, body in BLOCK.findall(text)
    ]


@pytest.fixture
def short(monkeypatch, tmp_path):
    """One epoch of small nets, in a folder where `make demo` has been."""
    recipe = config.recipe
    small = {"width": 13, "hidden": 12, "buckets": 1009}

    def shortened(name):
        found = recipe(name)
        changes = {"train.epochs": 1, "train.threads": 1}
        for key in config.setting_names(found.sections):
            if key.split(".")[-1] in small and "classic" not in found:
                changes[key] = small[key.split(".")[-1]]
        return found.with_values(changes, "test")

    monkeypatch.setattr(config, "recipe", shortened)
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "demo" / "data"
    data.mkdir(parents=True)
    for split, examples in generate_reviews().items():
        write(examples[:300], data / f"{split}.tsv")


def run_command(line: str, monkeypatch) -> None:
    from weft.cli.main import app

    words = shlex.split(line, comments=True)
    if not words or words[0] == "make":
        return  # `make` is what is running this test
    assert words[0] == "weft", line
    monkeypatch.setattr(sys, "argv", words)
    app(words[1:], standalone_mode=False)


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md", "docs/guide.md"])
def test_every_block_runs(page, short, monkeypatch, capsys):
    names: dict = {}
    found = blocks(page)
    assert len([kind for kind, _ in found if kind in ("bash", "python")]) >= 3
    for kind, body in found:
        if kind == "bash":
            for line in body.splitlines():
                run_command(line, monkeypatch)
        elif kind == "python":
            exec(compile(body, page, "exec"), names)
    assert capsys.readouterr().out


def test_the_encoder_of_the_contributors_guide_works(tmp_path):
    import torch

    (body,) = (body for kind, body in blocks("CONTRIBUTING.md") if kind == "python")
    names: dict = {}
    exec(body, names)
    out = names["Mine"](input_size=5)(
        names["Padded"].from_rows([[1], [2, 3]]).with_data(torch.ones(2, 2, 5))
    )
    assert out.data.shape == (2, 2, 64)


def test_links_lead_somewhere():
    for page in ("README.md", "docs/tour.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text("utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md", "docs/tour.md", "CHANGELOG.md"])
def test_promises_that_do_not_hold_stay_away(name: str) -> None:
    """Not every architecture has gradients, and language models have no gradient health."""
    text = " ".join((ROOT / name).read_text("utf-8").split()).lower()
    for claim in (
        "every architecture has",
        "weights for every architecture",
        "after every neural training",
        "nothing is lost in silence",
        "every part is interchangeable",
        "in any recipe",
        "tested for every recipe",
    ):
        assert claim not in text, claim


def test_what_the_guide_says_about_explanations_holds(tmp_path) -> None:
    """As the guide has it: exact sums and occlusion of tfidf and fasttext, and no gradients."""
    import weft
    from tests.fixtures import small
    from weft.explain import methods

    for name in ("tfidf", "fasttext"):
        run = weft.train(name, tmp_path / name, splits=small.splits(), quiet=True)
        assert set(methods(run.predictor)) == {"linear", "occlusion"}
