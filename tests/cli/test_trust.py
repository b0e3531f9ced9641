"""Nothing outside Weft is imported or called because a file says so, unless it is trusted."""

import json
import shutil
import sys

import pytest

import weft
from tests.fixtures.command import SMALL, fails, ok, says
from weft import registry
from weft.config import from_sections
from weft.errors import UserError

TWICE = "tests.fixtures.canary:Twice"


@pytest.fixture
def unimported(monkeypatch):
    """`tests.fixtures.canary` as a module that nobody has imported yet."""
    monkeypatch.delitem(sys.modules, "tests.fixtures.canary", raising=False)
    yield lambda: "tests.fixtures.canary" not in sys.modules
    sys.modules.pop("tests.fixtures.canary", None)


@pytest.fixture
def hostile(shared, tmp_path, monkeypatch):
    """Make copies of a model with a part replaced, and say whether anything was run."""
    (tmp_path / "evil_parts").mkdir()
    flag = tmp_path / "imported"
    code = f"from pathlib import Path\nPath({str(flag)!r}).touch()\nclass Evil: pass\n"
    (tmp_path / "evil_parts" / "__init__.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m weft` does with the working folder
    monkeypatch.chdir(tmp_path)

    def make(route, section="encoder", recipe="attention"):
        folder = tmp_path / f"{route}-{section}"
        shutil.copytree(shared / recipe / "model", folder)
        path = folder / "model.json"
        saved = json.loads(path.read_text("utf-8"))
        saved["config"][section] = specs(tmp_path)[route]
        path.write_text(json.dumps(saved), "utf-8")
        return folder

    def ran():
        return flag.exists() or (tmp_path / "called").exists() or "evil_parts" in sys.modules

    yield make, ran
    sys.modules.pop("evil_parts", None)


def specs(folder):
    return {
        "call": {"kind": "tests.fixtures.canary:touch", "path": str(folder / "called")},
        "library": {"kind": "torch.hub:load_state_dict_from_url", "url": "http://127.0.0.1:9/x"},
        "neighbour": {"kind": "evil_parts:Evil"},
    }


PACKAGES = {"call": "tests", "library": "torch", "neighbour": "evil_parts"}
VERBS = {
    "predict": lambda folder, data, out: ("predict", folder, data),
    "evaluate": lambda folder, data, out: ("evaluate", folder, data),
    "explain": lambda folder, data, out: ("explain", folder, "a good film"),
    "generate": lambda folder, data, out: ("generate", folder, "a good film"),
    "export": lambda folder, data, out: ("export", folder, "--to", "huggingface", "-o", out),
    "neighbours": lambda folder, data, out: (
        "vectors", "neighbours", folder, "good", "--texts", data
    ),
}  # fmt: skip


@pytest.mark.parametrize("route", PACKAGES)
def test_load_runs_nothing_that_a_model_names(hostile, unimported, route):
    make, ran = hostile
    folder, package = make(route), PACKAGES[route]
    with pytest.raises(UserError) as caught:
        weft.load(folder)
    name = specs(folder)[route]["kind"]
    says(str(caught.value), f"{folder / 'model.json'}: encoder '{name}' is code outside Weft",
         f'trust=["{package}"]', f"--trust {package}")  # fmt: skip
    assert not ran()
    assert unimported()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("route", PACKAGES)
def test_no_verb_runs_what_a_model_names(shared, hostile, unimported, verb, route, tmp_path):
    make, ran = hostile
    folder = make(route)
    message = fails(*VERBS[verb](folder, shared / "train.tsv", tmp_path / "out"))
    says(message, str(folder / "model.json"), "is code outside Weft", PACKAGES[route])
    assert not ran()
    assert unimported()


@pytest.mark.parametrize("section", ["task", "embedder", "pool", "head", "tokenizer", "classic"])
def test_every_section_is_guarded(shared, hostile, unimported, section):
    make, ran = hostile
    folder = make("call", section, "tfidf" if section == "classic" else "attention")
    if section == "tokenizer":  # the saved tokenizer is data; its kind is not looked at
        weft.load(folder)
    else:
        with pytest.raises(UserError, match="is code outside Weft"):
            weft.load(folder)
    assert not ran()
    assert unimported()


def test_names_inside_parts_are_guarded(shared, tmp_path, unimported):
    folder = tmp_path / "model"
    shutil.copytree(shared / "attention" / "model", folder)
    path = folder / "model.json"
    saved = json.loads(path.read_text("utf-8"))
    saved["config"]["pool"] = {"kind": "attention", "score": "tests.fixtures.canary:touch"}
    path.write_text(json.dumps(saved), "utf-8")
    with pytest.raises(UserError):
        weft.load(folder)
    assert unimported()


CONFIGS = {
    "train": ("train", "-o"),
    "tune": ("tune", "--search", "train.learning_rate=0.01,0.02", "-o"),
}


@pytest.mark.parametrize("verb", CONFIGS)
def test_configurations_are_guarded(shared, tmp_path, hostile, unimported, verb):
    _, ran = hostile
    path = tmp_path / "mine.toml"
    text = (shared / "bag" / "config.toml").read_text("utf-8")
    for kind in ("tests.fixtures.canary:touch", "evil_parts:Evil"):
        path.write_text(text.replace('kind = "bag"', f'kind = "{kind}"'), "utf-8")
        says(fails(*CONFIGS[verb], tmp_path / "out", path), str(path), "encoder", kind, "--trust")
        says(fails("config", "explain", path), kind, "--trust")
    named = ("--recipe", "bag", "--train", shared / "train.tsv", "-o", tmp_path / "out")
    says(fails("train", *named, "--set", f"encoder.kind={TWICE}"), "--set: encoder", "--trust")
    assert not ran()
    assert unimported()


def test_pretrained_folders_are_guarded(shared, tmp_path, hostile, unimported):
    make, ran = hostile
    folder = make("neighbour", "embedder")
    data = ("--train", shared / "train.tsv", "-o", tmp_path / "out")
    fails("train", "--recipe", "bert", "--pretrained", folder, *data)
    fails("train", "--recipe", "bag", "--set", f"data.parser={folder}", *data)
    assert not ran()


def test_a_parser_inside_a_model_is_guarded(hostile, shared, tmp_path):
    make, ran = hostile
    shutil.copytree(shared / "attention" / "model", tmp_path / "model")
    shutil.move(make("neighbour"), tmp_path / "model" / "parser")
    with pytest.raises(UserError, match=r"parser/model\.json: encoder 'evil_parts:Evil'"):
        weft.load(tmp_path / "model")
    assert not ran()


def test_compare_and_its_processes(shared, tmp_path, hostile, unimported, monkeypatch):
    _, ran = hostile
    files = ("compare", shared / "train.tsv", "--recipes", "bag", "--seeds", "1", "--quiet")
    set_own = ("--set", f"encoder.kind={TWICE}", "--minutes", "0", "--device", "cpu", *SMALL)
    # What a stranger's file in the working folder would do to processes started with `-m`.
    for name in ("torch", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("open('called', 'w')\nraise SystemExit(3)\n", "utf-8")
    sys.path.remove(str(tmp_path))
    says(fails(*files, "-o", tmp_path / "a", *set_own), TWICE, "--trust tests")
    assert unimported()
    done = ok(*files, "-o", tmp_path / "b", *set_own, "--trust", "tests")
    assert "bag" in done.out
    page = (tmp_path / "b" / "report.html").read_text("utf-8")
    assert "--trust tests" in page
    assert not ran()
    assert not registry.trusted_packages()


def test_trusted_part_is_accepted_by_every_verb(shared, tmp_path):
    data, run = shared / "train.tsv", tmp_path / "run"
    trust = ("--trust", "tests")
    own = ("--set", f"encoder.kind={TWICE}", *SMALL)
    ok("train", "--recipe", "bag", "--train", data, "-o", run, *own, *trust)
    assert f'kind = "{TWICE}"' in (run / "config.toml").read_text("utf-8")
    for verb, arguments in VERBS.items():
        given = arguments(run, data, tmp_path / "out")
        if verb in ("predict", "evaluate", "explain", "neighbours"):
            ok(*given, *trust)
        says(fails(*given), "is code outside Weft")
    for given in (["tests"], ["other", "tests.fixtures.canary"], ("tests",)):
        assert weft.load(run, trust=given)(["a good film"])
    for given in ([], ["test"], ["tests.can"], ["tests.fixtures.canary.more"]):
        with pytest.raises(UserError, match="is code outside Weft"):
            weft.load(run, trust=given)
    with pytest.raises(UserError, match=r"'\.\./x' is not the name of a package"):
        weft.load(run, trust=["../x"])
    assert not registry.trusted_packages()
    says(fails("train", "-o", run, "--resume"), "is code outside Weft")
    ok("train", "-o", run, "--resume", *trust)


def test_trust_covers_classes_of_the_package_only(shared):
    with registry.trusting(["tests"]):
        assert registry.find("encoder", TWICE).__name__ == "Twice"
        for name, message in {
            "tests.fixtures.canary:touch": "is not a class",
            "tests.fixtures.canary:Path": "'pathlib', pass|'pathlib', ",
            "tests.fixtures.canary:nn.Module": "should look like",
            "tests.fixtures.canary:": "should look like",
            "os\n:system": "should look like",
        }.items():
            with pytest.raises(UserError, match=message):
                registry.find("encoder", name)
    with pytest.raises(UserError, match="is code outside Weft"):
        registry.find("encoder", TWICE)


def test_trust_in_python(shared, tmp_path):
    sections = dict(weft.recipe("bag").sections) | {"encoder": {"kind": TWICE}}
    config = from_sections(sections, "mine.toml").with_values(
        {"train.epochs": 1, "train.threads": 1, "data.train": str(shared / "train.tsv")}, "test"
    )
    with pytest.raises(
        UserError, match=r"^mine\.toml: encoder 'tests\.fixtures\.canary:Twice' is code"
    ):
        weft.train(config, tmp_path / "run", quiet=True)
    weft.train(config, tmp_path / "run", quiet=True, trust=["tests"])
    assert not registry.trusted_packages()
