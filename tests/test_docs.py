"""The documentation: its code runs, its links lead somewhere, and what it names exists."""

import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.fixtures.documented_commands import run_command, settings, shorten_training
from weft import config
from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r'^( *)```(\w+)(?: title="([^"]+)")?\n(.*?)^\1```', re.M | re.S)
GENERATED = ("docs/project/", "docs/benchmarks/", "docs/concepts/lectures.md")
GENERATED += tuple(
    f"docs/reference/{name}.md" for name in ("cli", "recipes", "built-in-parts", "protocols")
)
FILE_ENDINGS = {"json", "jsonl", "en", "lo"}  # train.en is a file, not a setting


def pages() -> list[str]:
    """The pages that people write: README and docs/, without generated ones."""
    found = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.md"))]
    return ["README.md", *(page for page in found if not page.startswith(GENERATED))]


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Language, file name and contents of each code block."""
    return [
        (kind, title, re.sub(rf"^{pad}", "", body, flags=re.M))
        for pad, kind, title, body in BLOCK.findall(text_of(page))
    ]


def commands(body: str) -> list[str]:
    """The lines of a shell block, with continuation lines joined."""
    return body.replace("\\\n", " ").splitlines()


def runs_code(page: str) -> bool:
    return any(kind in ("bash", "python") for kind, _, _ in blocks(page))


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder with the files that `make demo` writes, shortened."""
    shorten_training(monkeypatch)
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "demo" / "data"
    data.mkdir(parents=True)
    for split, examples in generate_reviews().items():
        write(examples[:300], data / f"{split}.tsv")
    return tmp_path


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A place for models that several pages use."""
    return tmp_path_factory.mktemp("saved")


def provide_encoder(page: str, folder: Path, saved: Path, monkeypatch) -> None:
    """Put the encoder of the page about pre-training where other pages expect it."""
    text = text_of(page)
    if "runs/bert" not in text or "-o runs/bert " in text:
        return
    if not (saved / "bert").exists():
        code = [body for kind, _, body in blocks("docs/how-to/pretrain.md") if kind == "bash"]
        lines = [line for body in code for line in commands(body)]
        for line in lines[:2]:  # the corpus and the encoder
            run_command(line, monkeypatch)
        shutil.move(folder / "runs" / "bert", saved / "bert")
        shutil.rmtree(folder / "pairs")
    shutil.copytree(saved / "bert", folder / "runs" / "bert")


@pytest.mark.parametrize("page", [page for page in pages() if runs_code(page)])
def test_code_blocks_of_a_page_run(page, folder, saved, monkeypatch, capsys):
    provide_encoder(page, folder, saved, monkeypatch)
    names: dict = {}
    for kind, title, body in blocks(page):
        if title:
            (folder / title).write_text(body, "utf-8")
        elif kind == "bash":
            for line in commands(body):
                run_command(line, monkeypatch)
        elif kind == "python":
            exec(compile(body, page, "exec"), names)
    output = capsys.readouterr()
    assert output.out or output.err


def test_pages_about_a_task_have_code():
    silent = {"docs/how-to/index.md"}
    assert {page for page in pages() if "/how-to/" in page and not runs_code(page)} == silent


def test_encoder_of_the_contributors_guide_keeps_the_interface():
    import torch

    (body,) = (body for kind, _, body in blocks("CONTRIBUTING.md") if kind == "python")
    names: dict = {"__name__": "weft.encode.mine"}
    exec(body, names)
    out = names["Mine"](input_size=5)(
        names["Padded"].from_rows([[1], [2, 3]]).with_data(torch.ones(2, 2, 5))
    )
    assert out.data.shape == (2, 2, 64)


@pytest.fixture(scope="module")
def build():
    """The script docs/build.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(build, tmp_path_factory):
    """The site, built from a copy of its sources."""
    pytest.importorskip("zensical")
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", root / "docs")
    shutil.copy(ROOT / "mkdocs.yml", root)
    build.write_pages(root / "docs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(build.COMMAND, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
    return root / "site"


def html_pages(site: Path) -> dict[Path, str]:
    return {path.resolve(): path.read_text("utf-8") for path in sorted(site.rglob("*.html"))}


def test_site_builds_without_warnings_and_has_every_page(site):
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    nav = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)["nav"]

    def leaves(node):
        if isinstance(node, str):
            return [node]
        values = node.values() if isinstance(node, dict) else node
        return [leaf for value in values for leaf in leaves(value)]

    listed = leaves(nav)
    sources = {
        p.relative_to(site.parent / "docs").as_posix() for p in site.parent.glob("docs/**/*.md")
    }
    assert sorted(listed) == sorted(sources)
    for page in listed:
        assert (site / page).with_suffix(".html").is_file(), page


def test_site_loads_nothing_from_the_network(site):
    for path, text in html_pages(site).items():
        assets = re.findall(r'<(?:script|img|source|iframe)[^>]+src="([^"]+)"', text)
        assets += re.findall(r'<link(?![^>]*rel="canonical")[^>]+href="([^"]+)"', text)
        assert [a for a in assets if a.startswith(("http", "//"))] == [], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", path.read_text("utf-8")), path


def test_links_and_anchors_of_the_site_exist(site):
    texts = html_pages(site)
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in texts.items()}
    for path, text in texts.items():
        if path.name == "404.html":
            continue  # its links start at the root of a server
        for link in re.findall(r'<(?:a|img|link|script)[^>]+(?:href|src)="([^"]*)"', text):
            target, _, anchor = unquote(html.unescape(link)).partition("#")
            if target.startswith(("http:", "https:", "mailto:")):
                continue
            found = (path.parent / target).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            assert found.exists(), f"{path.name}: {link}"
            if anchor and not anchor.startswith("__") and found in anchors:
                assert anchor in anchors[found], f"{path.name}: {link}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_a_page_at_the_root_exist(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text_of(page)):
        if not target.startswith("https:"):
            assert (ROOT / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("script", ["summary.py", "simulate.py"])
def test_pages_match_the_recorded_results(script):
    command = [sys.executable, ROOT / "bench" / script, "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pictures_are_what_the_code_draws(build):
    for name, drawing in build.draw_pictures().items():
        assert (ROOT / "docs" / "pictures" / name).read_text("utf-8") == drawing, name


def test_settings_that_pages_name_exist():
    known = settings()
    sections = {key.split(".")[0] for key in known}
    pattern = re.compile(r"(?:`|--set '?|changes=\{\")([a-z]+)\.(?:\d\.)?([A-Za-z]\w*)(?=[`=\"])")
    for page in pages():
        for section, name in pattern.findall(text_of(page)):
            if section in sections and name not in FILE_ENDINGS:
                assert f"{section}.{name}" in known, f"{page}: no setting {section}.{name}"


def test_options_that_pages_name_exist(build):
    known = set(re.findall(r"--[a-z0-9-]+", build.format_cli()))
    for page in [*pages(), "SECURITY.md"]:
        for line in text_of(page).splitlines():
            if not re.search(r"\b(pip|python|torchrun) ", line):
                unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", line)) - known
                assert not unknown, f"{page}: {line}"


def test_recipes_that_pages_name_exist():
    overview = text_of("docs/how-to/index.md")
    named = set(re.findall(r"`([a-z0-9-]+)`", overview.split("For any task")[0]))
    assert named == set(config.recipes(None))


def test_source_files_that_the_tour_names_exist():
    for page in ("docs/concepts/tour.md", "docs/reference/glossary.md"):
        for name in re.findall(r"`([a-z_]+/[a-z_/{},]+?)(?:\.py)?/?`", text_of(page)):
            start, brace, rest = name.partition("{")
            ends = rest.rstrip("}").split(",") if brace else [""]
            for end in ends:
                path = ROOT / "weft" / f"{start}{end}"
                assert path.exists() or path.with_suffix(".py").exists(), f"{page}: {name}"


@pytest.mark.parametrize("page", [*pages(), "CHANGELOG.md"])
def test_pages_make_no_promise_that_does_not_hold(page: str) -> None:
    """Not every architecture has gradients, and language models have no gradient health."""
    text = " ".join(text_of(page).split()).lower()
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


def test_linear_models_explain_as_the_page_says(tmp_path) -> None:
    """`tfidf` and `fasttext` have exact linear sums and occlusion, and no gradients."""
    import weft
    from tests.fixtures import small
    from weft.explain import methods

    for name in ("tfidf", "fasttext"):
        run = weft.train(name, tmp_path / name, splits=small.splits(), quiet=True)
        assert set(methods(run.predictor)) == {"linear", "occlusion"}
