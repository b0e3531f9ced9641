"""Every option and setting that a message suggests exists, and the verb that prints it takes it."""

import ast
import functools
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from tests.fixtures import small
from tests.fixtures.command import SMALL, command, ok
from weft import registry
from weft.cli.advice import OPTION, fit_advice, options_of
from weft.cli.main import app
from weft.config import NEURAL_SECTIONS
from weft.decode.search.settings import SearchSettings as Search
from weft.run.data import Data
from weft.train.settings import Settings

ROOT = typer.main.get_command(app)
OFFERED = options_of(ROOT)
EVERY = frozenset().union(*OFFERED.values(), *(p.opts for p in ROOT.params))
SOURCES = sorted(Path("weft").rglob("*.py"))
PAGES = ("report", "report/drawings/highlight.py")  # --accent there is a colour of a page
FILES = re.compile(r"(?:py|csv|tsv|txt|jsonl?|toml|conllu?|html|en|de|lo|npz?|wav|gz|ptb|md)\b")


@functools.cache
def literals(path):
    """Return (line, text) of each string of a file, f-strings with a gap for each value."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
            found.append((node.lineno, "".join(parts)))
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            found.append((node.lineno, node.value if isinstance(node.value, str) else ""))
    return found


OF_OTHERS = {"--signatures", "--head"}  # in a text of the minhash library; of `ray start`


def test_options_in_messages_exist():
    unknown = [
        f"{path}:{line}: {option}"
        for path in SOURCES
        if not any(part in path.as_posix() for part in PAGES)
        for line, text in literals(path)
        for option in OPTION.findall(text)
        if option not in {*EVERY, *OF_OTHERS}
    ]
    assert not unknown


@pytest.mark.parametrize("verb", [name for name in OFFERED if " " not in name and name != "list"])
def test_verb_messages_name_only_its_options(verb):
    """Strings of the verb's module, fitted as an error is: no option is left that it lacks."""
    folder = Path("weft/cli")
    homes = (folder, folder / verb, folder / "models")
    path = next(home / f"{verb}.py" for home in homes if (home / f"{verb}.py").is_file())
    for line, text in literals(path):
        for option in OPTION.findall(text):
            named = re.search(rf"weft \w+(?: \w+)?[^`]*{option}", text)
            assert option in OFFERED[verb] or named, f"{path}:{line}: {option}"


def keys(section):
    """The settings that a section may have."""
    known = {"data": Data, "train": Settings, "generate": Search}
    if section in known:
        return {field.name for field in fields(known[section])}
    found = {"kind"}
    for name in registry.parts(section):
        part = registry.find(section, name)
        found |= set(inspect.signature(part).parameters)
    return found | ({"path"} if section == "tokenizer" else set())


@pytest.mark.parametrize(
    "section", ["data", "train", "task", "generate", "classic", "decoder", "pair", *NEURAL_SECTIONS]
)
def test_settings_in_messages_exist(section):
    known = keys(section)
    pattern = re.compile(rf"(?<![\w./{{-]){section}\.([a-z_]+)(?![\w./(-])")
    for path in SOURCES:
        for line, text in literals(path):
            for key in pattern.findall(text):
                if not FILES.fullmatch(key) and " " in text:
                    assert key in known, f"{path}:{line}: {section}.{key}"


@pytest.mark.parametrize(
    ("message", "verb", "expected"),
    [
        ("Mend it, or pass --on-bad-row skip to leave such rows out.", "tokens decode", "Mend it."),
        ("For tags, use --recipe crf.", "compare", "For tags, use weft train --recipe crf."),
        ("For tags, use --recipe crf.", "train", "For tags, use --recipe crf."),
        (
            "`weft check FILE --fix FOLDER` mends it.",
            "train",
            "`weft check FILE --fix FOLDER` mends it.",
        ),
        ("load it (--no-replay).", "export", "load it (weft predict --no-replay)."),
    ],
)
def test_advice_is_rewritten_for_the_verb(message, verb, expected):
    assert fit_advice(message, verb, OFFERED) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Bad files of many kinds, and a model."""
    place = tmp_path_factory.mktemp("advice")
    data = small.file(place)
    ok("train", "--recipe", "tfidf", "--train", data, "-o", place / "model")
    ok("train", "--recipe", "bag", "--train", data, "-o", place / "bag", *SMALL)
    good = data.read_text("utf-8")
    (place / "latin.tsv").write_bytes(good.encode() + b"positive\tcaf\xe9\n")
    (place / "latin.txt").write_bytes(b"a text\ncaf\xe9\nanother text\n" * 3)
    (place / "ragged.tsv").write_text(good + "positive\ta\tb\n", "utf-8")
    header = "text,one,two\n"
    rows = "".join(f"text number {i},{'ab'[i % 2]},{'xyz'[i * 7 % 11 % 3]}\n" for i in range(60))
    (place / "two.csv").write_text(header + rows, "utf-8")
    (place / "record.jsonl").write_text('{"text": {"name": "A"}, "label": "x"}\n' * 3, "utf-8")
    (place / "unlabelled.txt").write_text("a text\nanother\n", "utf-8")
    (place / "several.jsonl").write_text('{"text": "a", "label": ["x", "y"]}\n', "utf-8")
    words = "".join(f"w{n} {'NVA'[n % 3]} {'xyz'[n * 7 % 11 % 3]}\n" for n in range(60))
    (place / "tags.conll").write_text(words, "utf-8")
    (place / "roles.conll").write_text("a (ARG0*)\nb (V*)\n" * 20, "utf-8")
    return place


TRAIN = ("train", "--recipe", "tfidf", "-o", "{folder}/out", "--train")
TUNE = (
    "tune",
    "--recipe",
    "tfidf",
    "-o",
    "{folder}/tuned",
    "--search",
    "classic.min_count=1,2",
    "--train",
)
COMPARE = ("compare", "-o", "{folder}/compared", "--recipes", "tfidf")
PROVOKED = [
    *[(*start, f"{{folder}}/{name}") for start in (TRAIN, COMPARE, TUNE) for name in (
        "latin.tsv", "ragged.tsv", "two.csv", "record.jsonl", "unlabelled.txt", "tags.conll"
    )],
    *[(verb, "{folder}/model", f"{{folder}}/{name}") for verb in ("evaluate", "predict", "explain")
      for name in ("latin.tsv", "ragged.tsv", "record.jsonl", "unlabelled.txt", "several.jsonl")],
    ("train", "--recipe", "crf", "-o", "{folder}/out", "--train", "{folder}/roles.conll"),
    ("train", "--recipe", "crf", "-o", "{folder}/out", "--train", "{folder}/tags.conll"),
    ("train", "-o", "{folder}/out"),
    ("train", "--recipe", "tfidf", "-o", "{folder}/out"),
    ("train", "--recipe", "bert", "-o", "{folder}/out", "--train", "{folder}/train.tsv"),
    ("compare", "{folder}/train.tsv", "--recipes", "crf", "-o", "{folder}/compared"),
    ("compare", "{folder}/train.tsv", "--task", "tag", "-o", "{folder}/compared"),
    ("tune", "--recipe", "tfidf", "--train", "{folder}/train.tsv", "-o", "{folder}/tuned"),
    ("check", "{folder}/two.csv"),
    ("check", "{folder}/tags.conll"),
    ("check", "{folder}/roles.conll"),
    ("export", "{folder}/bag", "--to", "huggingface", "-o", "{folder}/exported"),
    ("generate", "{folder}/model", "a prompt"),
    ("explain", "{folder}/model", "a text", "--layer", "1"),
    *[("tokens", "train", f"{{folder}}/{name}", "-o", "{folder}/tokens.json")
      for name in ("latin.txt", "latin.tsv", "record.jsonl")],
    ("vectors", "neighbours", "{folder}/bag", "a text", "--texts", "{folder}/latin.txt"),
]  # fmt: skip


def suggestions(message):
    """(verb or "", option, value) of everything a message says to pass."""
    for match in re.finditer(r"(--[a-z][a-z-]*)(?: ([^\s.,;:)'`]+))?", message):
        before = message[: match.start()]
        named = re.search(r"(?:`?weft |[Tt]rain )([a-z]+(?: [a-z]+)?)[^`.;]*$", before)
        verb = (
            next((v for v in (named[1], named[1].split()[0]) if v in OFFERED), "train")
            if named
            else ""
        )
        yield verb, match[1], match[2] or ""


@pytest.mark.parametrize("words", PROVOKED, ids=lambda words: " ".join(words))
def test_suggested_fixes_work(words, folder):
    arguments = [str(word).format(folder=folder) for word in words]
    done = command(*arguments)
    if done.status != 2:
        pytest.skip("this is no error of the verb")
    message = done.err.splitlines()[-1].replace(str(folder), "")
    verb = " ".join(words[:2]) if " ".join(words[:2]) in OFFERED else words[0]
    for named, option, value in suggestions(message):
        assert option in OFFERED[named or verb], message
        values = {"--on-bad-row": "skip", "--label": value, "--text": value}
        if not named and values.get(option):
            again = command(*arguments, option, values[option])
            assert "No such option" not in again.err
            assert message not in again.err or again.status != 2, again.err


@pytest.mark.parametrize("name", ["latin.tsv", "ragged.tsv", "record.jsonl", "two.csv"])
def test_check_suggests_only_existing_options(name, folder):
    done = command("check", folder / name)
    text = done.out.replace(str(folder), "")
    for named, option, _ in suggestions(text):
        assert option in OFFERED[named or "check"], text


def test_tokens_skip_bad_rows_and_blank_lines(folder, tmp_path):
    done = ok(
        "tokens", "train", folder / "latin.txt", "-o", tmp_path / "t.json", "--on-bad-row", "skip"
    )
    assert "3 undecodable bytes" in done.err
    (tmp_path / "blank.txt").write_text("a text\n\nanother\n", "utf-8")
    ok("tokens", "train", tmp_path / "blank.txt", "-o", tmp_path / "b.json")
    # Labels are none of its business: two columns that could be one do not stop it.
    ok("tokens", "train", folder / "two.csv", "-o", tmp_path / "c.json")
