"""House rules that hold for every file: import direction, devices in one place, no junk drawers."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft import config

ROOT = Path(weft.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LOWEST = {
    "callable_module",
    "errors",
    "terminal",
    "storage",
    "untrusted",
    "jsonio",
    "tensorfile",
    "machine",
    "notebook",
    "progress",
    "registry",
    "config",
    "protocols",
    "runtime",
    "jobs",
}
ORDER = (
    LOWEST,
    {"text"},
    {"doctor", "metrics"},
    {"tokens"},
    {"batch"},
    {"kernels"},
    {"embed", "attend"},
    {"encode"},
    {"decode"},
    {"tasks"},
    {"model"},
    {"inference"},
    {"train"},
    {"predict", "convert", "classic", "vectors"},
    {"export"},
    {"explain", "annotate"},
    {"run"},
    {"tune", "compare", "loading", "hub"},
    {"report", "estimators"},
    {"lab", "serve"},
    {"cli"},
)
RANK = {room: i for i, rooms in enumerate(ORDER) for room in rooms}
TOGETHER = (LOWEST, {"embed", "attend"})  # may import each other
FRONT = {"__init__.py", "__main__.py"}  # of the package: they lead into every room
LIGHT = (*(LOWEST - {"runtime"}), "text", "doctor", "metrics", "tasks", "classic", "cli")
MAX_MODULES = 20  # in a folder

# weft.train(config) and weft.compare(files) are verbs, so these folders can be called. Values of
# every stage show themselves in notebooks by the drawings of the report. weft.generate(path) loads
# any kind of model.
ALLOWED = {
    ("train", "run"),
    ("compare", "report"),
    ("notebook", "report"),
    ("predict", "loading"),
}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path, top: bool = False) -> Iterator[tuple[str, int]]:
    """Dotted names that a file imports, with their lines; with `top`, only when it is loaded."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in _loaded(tree) if top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            named = node.args[0]
            yield (str(named.value) if isinstance(named, ast.Constant) else ""), node.lineno


def _loaded(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run on import: not in functions, not under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _loaded(child)


def allowed(here: str, there: str) -> bool:
    same = here == there or any({here, there} <= rooms for rooms in TOGETHER)
    return same or RANK[there] < RANK[here] or (here, there) in ALLOWED


def test_imports_run_along_the_sentence():
    wrong = []
    for path in FILES:
        if path.parent == ROOT and path.name in FRONT:
            continue
        assert room(path) in RANK, f"{path}: a room that has no place in the order"
        for name, line in imports(path, top=path.name == "protocols.py"):  # it names types only
            first, _, rest = name.partition(".")
            there = rest.partition(".")[0]
            if first != "weft" or there == "__version__":
                continue
            if there not in RANK or not allowed(room(path), there):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {room(path)} imports {there}")
    assert not wrong, "\n".join(wrong)


def test_the_direction_is_really_checked():
    assert allowed("encode", "embed")
    assert allowed("attend", "embed")
    assert not allowed("embed", "encode")
    assert not allowed("classic", "predict")
    assert not allowed("report", "serve")
    assert ("weft.run.train", 0) not in imports(ROOT / "errors.py")
    lazy = {name for name, _ in imports(ROOT / "run" / "train.py")}
    assert any(name.startswith("weft.run.neural.") for name in lazy)  # inside a function


def test_prediction_does_not_depend_on_training():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in FILES
        if room(path) in ("predict", "inference")
        for name, line in imports(path)
        if name.startswith("weft.train")
    ]
    assert not found, "\n".join(found)


DEVICE_FILES = ("runtime.py", "train/parallel.py", "train/shards.py")


def test_devices_live_in_few_files():
    wrong = []
    for path in FILES:
        if path.relative_to(ROOT).as_posix() not in DEVICE_FILES:
            tree = ast.parse(path.read_text("utf-8"))
            wrong += [f"{path}:{n.lineno}" for n in ast.walk(tree) if _names_a_device(n)]
    assert not wrong, "\n".join(wrong)


def _names_a_device(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("cuda", "mps") or ast.unparse(node) == "torch.distributed"
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.split(":")[0] in ("cuda", "mps")
    if isinstance(node, ast.Import):
        return any(alias.name.startswith("torch.distributed") for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(("torch.distributed", "torch.cuda"))
    return False


def test_a_folder_holds_a_page_of_modules():
    for folder in {path.parent for path in FILES}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MAX_MODULES, folder


def test_a_file_says_what_it_is():
    junk = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
    for path in FILES:
        text = path.read_text("utf-8")
        assert path.stem not in junk, path
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{path}: no sentence at the top"


def test_names_are_plain():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ClassDef):
                assert not node.name.startswith("Base"), where
                assert not node.name.endswith(("Manager", "Helper", "Utils")), where
            if isinstance(node, ast.FunctionDef):
                theirs = room(path) == "estimators" and node.name == "get_params"  # scikit-learn's
                assert theirs or not node.name.startswith("get_"), where


def test_light_rooms_do_not_import_torch():
    heavy = {"torch", "sklearn", "scipy", "matplotlib", "tokenizers", "pyarrow"}
    for path in FILES:
        if room(path) in LIGHT or (path.parent == ROOT and path.name in FRONT):
            for name, line in imports(path, top=True):
                assert name.split(".")[0] not in heavy, f"{path}:{line}: {name}"


def test_light_rooms_stay_light_when_loaded():
    """What they import must be light too."""
    modules = [
        ".".join(["weft", *path.relative_to(ROOT).with_suffix("").parts])
        for path in FILES
        if room(path) in LIGHT and path.stem != "__init__"
    ]
    code = (
        f"import importlib, sys\nfor name in {modules!r}:\n"
        "    importlib.import_module(name)\n    assert 'torch' not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", config.recipes())
def test_every_recipe_parses_and_builds(name):
    from weft.model import build_model
    from weft.run.train import resolve_config

    recipe = config.recipe(name)
    assert recipe["recipe"]["summary"]
    assert isinstance(recipe["recipe"]["order"], int)
    full = resolve_config(recipe)
    named = [s for s in recipe.sections if s in config.NEURAL_SECTIONS]
    assert all(kind for s in named for kind in config.section_kinds(full[s]))
    if "classic" not in recipe:
        model = build_model(full, vocabulary_size=13, outputs=3)
        assert sum(p.numel() for p in model.parameters()) > 13


def test_recipes_have_places_of_their_own():
    orders = [config.recipe(name)["recipe"]["order"] for name in config.recipes()]
    assert orders == sorted(set(orders))


def test_every_public_name_is_there():
    for name in weft.__all__:
        assert getattr(weft, name) is not None, name
        assert name in dir(weft)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        weft.nothing  # noqa: B018


def test_documents_are_there():
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE",
        "SECURITY.md",
        "docs/index.md",
    ):
        assert (ROOT.parent / name).is_file(), name


def test_test_files_share_code_through_fixtures():
    """A test file that imports another runs its module code twice and breaks when it moves."""
    for path in sorted((ROOT.parent / "tests").rglob("*.py")):
        for name, line in imports(path):
            shared = name.startswith("tests.") and ".test_" in name
            assert not shared, f"{path}:{line}: move {name} to tests/fixtures"
