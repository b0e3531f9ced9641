"""Progress in notebooks, and the help of verbs that are also folders."""

import inspect
import pydoc
import sys
import types

import pytest

import weft
from tests.fixtures.small import SMALL, splits
from weft import config, notebook
from weft.notebook import NotebookBar, in_notebook
from weft.progress import counting, following, open_bar, with_progress
from weft.run import train


class Handle:
    def __init__(self, pages):
        self.pages = pages

    def update(self, page):
        self.pages.append(page)


@pytest.fixture
def kernel(monkeypatch):
    """A kernel in the place of IPython, with the signatures of IPython 9; yields each output."""
    outputs = []  # one list of pages an output

    def display(*objs, display_id=None, **options):
        outputs.append(list(objs))
        return Handle(outputs[-1]) if display_id else None

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    shown = types.ModuleType("IPython.display")
    shown.display, shown.HTML = display, str
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return outputs


def test_only_a_kernel_is_a_notebook(kernel, monkeypatch):
    assert in_notebook()
    terminal = types.ModuleType("IPython")
    terminal.get_ipython = lambda: types.SimpleNamespace()  # IPython on a terminal
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert not in_notebook()
    terminal.get_ipython = lambda: None  # imported by a script
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_a_bar_is_one_output_that_is_updated(kernel):
    now = [0.0]
    bar = NotebookBar("trials", 4, clock=lambda: now[0])
    bar.advance(1)
    assert kernel == []  # quick work shows nothing
    for now[0] in (1.0, 1.05, 2.0):
        bar.advance(1)
    assert len(kernel) == 1
    assert len(kernel[0]) == 2  # the middle one came too soon
    assert 'value="0.5000"' in kernel[0][0]
    assert "1.0 s left" in kernel[0][0]
    now[0] = 9.0
    bar.close()
    assert kernel[0][-1] == '<div style="opacity:.7">trials 4/4: 9.0 s</div>'


def test_a_bar_counts_without_a_total_and_escapes_its_text(kernel):
    now = [0.0]
    bar = NotebookBar("<b>words</b>", clock=lambda: now[0])
    now[0] = 1.0
    bar.advance(12345)
    assert "12,345 &lt;b&gt;words&lt;/b&gt;" in kernel[0][0]
    assert "<progress" not in kernel[0][0]
    assert "?" in NotebookBar("trials", 0)._words()


def test_lines_come_under_the_bar(kernel, capsys):
    bar = open_bar("trials", 3)
    assert isinstance(bar, NotebookBar)
    bar.say("tfidf: 93.1")
    assert len(kernel) == 1
    assert capsys.readouterr() == ("tfidf: 93.1\n", "")  # standard error would look like an error


def test_long_work_uses_the_bar_of_the_notebook(kernel, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(notebook, "DELAY_SECONDS", 0.0)
    with counting("texts") as count:
        count(7)
    with following("GloVe") as follow:
        follow("epoch 1 of 2", 0.5)
    assert [pages[-1].split(": ")[0] for pages in kernel] == [
        '<div style="opacity:.7">7 texts',
        '<div style="opacity:.7">GloVe',
    ]
    heard = []
    with counting("texts", heard.append) as count:
        count(3)
    assert heard == [3]
    assert len(kernel) == 2
    train(config.recipe("bag").with_values(SMALL, "test"), tmp_path / "run", splits=splits())
    assert len(kernel) == 3
    assert "training: " in kernel[2][-1]
    out, err = capsys.readouterr()
    assert "model saved in" in out
    assert "model saved in" not in err


def test_reading_rows_shows_a_bar(kernel, monkeypatch):
    monkeypatch.setattr(notebook, "DELAY_SECONDS", 0.0)
    assert list(with_progress(range(2500), "reading a.tsv")) == list(range(2500))
    assert len(kernel) == 1
    assert "2,000 rows, reading a.tsv" in kernel[0][-1]


def test_check_shows_progress_unless_quiet(kernel, monkeypatch, tmp_path):
    monkeypatch.setattr(notebook, "DELAY_SECONDS", 0.0)
    (tmp_path / "a.tsv").write_text("good\ta film\nbad\tanother\n" * 3)
    weft.check(str(tmp_path / "a.tsv"), quiet=True)
    assert kernel == []
    weft.check(str(tmp_path / "a.tsv"))
    assert len(kernel) == 1


@pytest.mark.parametrize("name", ["train", "compare", "tune", "load", "evaluate", "check", "push"])
def test_help_has_signature_description_and_example(name):
    page = pydoc.render_doc(getattr(weft, name), renderer=pydoc.plaintext)
    verb = getattr(weft, name)
    last = list(inspect.signature(verb).parameters)[-1]
    head = page[: page.find("PACKAGE CONTENTS")]
    assert f"{name}(" in head
    assert f"{last}: " in head
    assert ">>> " in head
    assert f"weft.{name}(" in head.split("Examples:")[1]


@pytest.mark.parametrize("name", ["train", "compare", "tune"])
def test_a_callable_module_describes_its_function(name):
    verb = getattr(weft, name)
    function = getattr(verb, name)
    assert inspect.signature(verb) == inspect.signature(function)
    first = inspect.getdoc(function).partition("\n")[0]
    assert inspect.getdoc(verb).startswith(first + "\n\nweft." + name + "(\n    ")
    assert verb.__name__ == f"weft.{name}"  # still the package
