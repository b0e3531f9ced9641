"""The notebooks in examples/: built from their sources, and executed from first cell to last.

Sizes are small here: WEFT_EXAMPLES_QUICK=1 shortens data and epochs, and nothing else.
"""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.fixtures.processes import ForkedKernel

FOLDER = Path(__file__).parent.parent / "examples"
SECONDS = 100  # of a cell
GUARD = """
import os, socket

connect = socket.socket.connect


def connect_locally(self, address):
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        with open(os.environ["WEFT_REQUESTS"], "a") as file:
            file.write(f"{address}\\n")
        raise OSError("no network in tests")
    return connect(self, address)


socket.socket.connect = connect_locally
"""


def load_builder():
    spec = importlib.util.spec_from_file_location("examples_build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILDER = load_builder()
SOURCES = BUILDER.sources()
NAMES = [path.stem for path in SOURCES]


def test_there_are_ten_notebooks_and_nothing_else():
    assert len(SOURCES) == 10
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_what_its_source_builds(name):
    built = BUILDER.build_notebook((FOLDER / "sources" / f"{name}.py").read_text("utf-8"))
    assert (FOLDER / f"{name}.ipynb").read_text("utf-8") == built, "run python examples/build.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_teaches(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert texts[0].startswith("# ")
    assert "**Question.**" in "\n".join(texts)
    assert texts[-1].startswith("## Try next\n")
    assert "plt.show()" in code
    assert not re.search(r"https?://", code)
    assert all(not cell.get("outputs") for cell in cells)


def test_cells_are_split_at_their_markers():
    source = "# %% [markdown]\n# # Title\n#\n# text\n\n# %%\na = 1\n\nb = 2\n"
    assert BUILDER.split_cells("\n" + source) == [
        ("markdown", "# Title\n\ntext"),
        ("code", "a = 1\n\nb = 2"),
    ]
    with pytest.raises(AssertionError, match="not a comment"):
        BUILDER.split_cells("\n# %% [markdown]\n# text\ncode = 1\n")


def test_the_cell_that_installs_is_python_but_for_the_magic():
    ast.parse(BUILDER.INSTALL.replace("%pip install --quiet weft", "pass"))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_offline(name, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")

    def launch(words, *, cwd, env, **_):
        return ForkedKernel(words, cwd, env, GUARD)

    monkeypatch.setattr("jupyter_client.provisioning.local_provisioner.launch_kernel", launch)
    monkeypatch.setenv("WEFT_REQUESTS", str(tmp_path / "requests.txt"))
    monkeypatch.setenv("WEFT_EXAMPLES_QUICK", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(
        notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert not (tmp_path / "requests.txt").exists()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    kinds = {kind for one in outputs for kind in one.get("data", {})}
    assert {"image/png", "text/html"} <= kinds
    assert "Warning" not in "".join(one.get("text", "") for one in outputs)
