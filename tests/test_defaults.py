"""The default of every setting is pinned: a changed default changes what users get.

After an intended change, write the table again with `python -m tests.test_defaults` and look at
its diff; the commit says what was measured.
"""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import weft
from weft import registry
from weft.attend.settings import Attention
from weft.cli.main import app
from weft.decode.search.settings import SearchSettings
from weft.run.data import Data
from weft.train.settings import Settings
from weft.vectors.word2vec import Word2VecSettings as VectorSettings

TABLE = Path(__file__).parent / "fixtures" / "defaults.json"
REQUIRED = "(required)"
SECTIONS = {
    "train": Settings,
    "data": Data,
    "generate": SearchSettings,
    "vectors": VectorSettings,
    "attention": Attention,
}


def name_of(value: Any) -> str:
    return getattr(value, "__name__", str(value))


def defaults(target: Any) -> dict[str, Any]:
    """Return the parameters of a class or function with their defaults, as JSON has them."""
    found = {
        name: REQUIRED if p.default is p.empty else p.default
        for name, p in inspect.signature(target).parameters.items()
        if name not in registry.DERIVED and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    return json.loads(json.dumps(found, default=name_of))


def commands(command: Any, path: str = "weft") -> Iterator[tuple[str, Any]]:
    """Walk the command line: `weft vectors train` and its click command."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


def current() -> dict[str, dict[str, Any]]:
    """Return the table of this version: section, part, command or function -> its defaults."""
    table = {f"[{name}]": defaults(settings) for name, settings in SECTIONS.items()}
    for kind in registry.FOLDERS:
        for name, part in sorted(registry.parts(kind).items()):
            table[f"{kind} {name}"] = defaults(part.load())
    for path, command in commands(typer.main.get_command(app)):
        options = {p.name: REQUIRED if p.required else p.default for p in command.params}
        options.pop("help", None)
        table[path] = json.loads(json.dumps(options, default=name_of))
    for name in sorted(weft.__all__):
        value = getattr(weft, name)
        # weft.train, weft.compare and weft.tune are folders that can be called.
        if inspect.isfunction(value) or inspect.ismodule(value):
            table[f"weft.{name}()"] = defaults(value)
    return table


def test_defaults_are_those_of_the_table():
    before, now = json.loads(TABLE.read_text("utf-8")), current()
    changes = [
        f"{name}: {key} was {old!r}, is {new!r}"
        for name in sorted(before.keys() | now.keys())
        for key in sorted(before.get(name, {}).keys() | now.get(name, {}).keys())
        if (old := before.get(name, {}).get(key, "absent"))
        != (new := now.get(name, {}).get(key, "absent"))
    ]
    assert not changes, "\n".join([*changes, "Intended? Run `python -m tests.test_defaults`."])
    assert before.keys() == now.keys()


def write() -> None:
    TABLE.write_text(json.dumps(current(), indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write()
