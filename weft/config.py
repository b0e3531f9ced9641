"""TOML or JSON <-> settings, with `--set` overrides and the origin of every value.

A configuration is one flat file of sections; each part of the model is a section with a `kind`.
There is no inheritance, interpolation or include: what the file says is what runs.
"""

import copy
import datetime
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from weft import jsonio
from weft.errors import UserError, unknown_name
from weft.registry import check_types
from weft.untrusted import check_regular, parse_integer

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

NEURAL_SECTIONS = ("tokenizer", "embedder", "encoder", "pool", "head")
SEQ2SEQ_SECTIONS = ("tokenizer", "embedder", "encoder", "decoder")  # of what answers with a text
LM_SECTIONS = ("tokenizer", "decoder")  # of a language model
SETTING_SECTIONS = (
    *("recipe", "task", *NEURAL_SECTIONS, "pair", "target", "decoder", "attention", "generate"),
    *("classic", "data", "train"),
)
SECTIONS = (
    *SETTING_SECTIONS,
    "search",
)  # what `weft tune` may vary; the other verbs leave it alone
LISTED_SECTIONS = ("embedder", "encoder")  # may be several tables: side by side, and in a stack
RECIPES = Path(__file__).parent / "recipes"
# Settings by section. A setting is any TOML value: the registry checks its type against the
# constructor that takes it.
Sections: TypeAlias = Mapping[str, Any]
FilledSections: TypeAlias = dict[str, Any]  # with defaults, or one such section
Settings: TypeAlias = dict[str, Any]  # by dotted key, such as encoder.hidden


@dataclass(frozen=True)
class Config:
    """Sections of settings, and where each setting was written."""

    sections: Sections
    origins: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, section: str) -> Any:
        return self.sections.get(section, {})

    def __contains__(self, section: str) -> bool:
        return section in self.sections

    @check_types
    def with_values(self, changes: Sections, origin: str) -> "Config":
        """A copy in which dotted keys have new values: {'encoder.hidden': 100}."""
        sections = copy.deepcopy(dict(self.sections))
        origins = dict(self.origins)
        for key, value in changes.items():
            _set_value(sections, key, value)
            origins[key] = origin
        return Config(_check_sections(sections, origin), origins)

    def origin(self, key: str) -> str:
        return self.origins.get(key, "default")

    def origin_of(self, value: object) -> str:
        """Return where the first setting with this value was written."""
        for key, origin in self.origins.items():
            node: Any = self.sections
            for step in key.split("."):
                if isinstance(node, list):
                    number = parse_integer(step)
                    node = node[number] if number is not None and number < len(node) else None
                else:
                    node = node.get(step) if isinstance(node, Mapping) else None
            if node == value:
                return origin
        return ""


def as_config(source: object) -> Config:
    """Return a Config from a recipe's name, a .toml or .json file, a dict of sections or itself."""
    if isinstance(source, Config):
        return source
    if isinstance(source, Mapping):
        return from_sections(source, "the dict given")
    if isinstance(source, Path) or (
        isinstance(source, str) and source.endswith((".toml", ".json"))
    ):
        return load(source)
    if isinstance(source, str):
        return recipe(source)
    raise UserError(
        "A configuration is a recipe's name, a .toml or .json file, a dict of sections or a "
        f"weft.Config; got {type(source).__name__}."
    )


@check_types
def load(path: str | Path) -> Config:
    """Read a configuration file, TOML or JSON by its ending."""
    path = Path(path)
    check_regular(path)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such configuration file. `weft list recipes` shows those that are "
            f"built in (use --recipe NAME)."
        ) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; a configuration is a .toml or .json file.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from None
    try:
        sections = jsonio.parse(text, path) if path.suffix == ".json" else _parse_toml(text)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:  # an integer of 4,300 digits is a ValueError
        raise UserError(
            f"{path}: cannot be read as {path.suffix[1:] or 'toml'}: {error}."
        ) from None
    return from_sections(sections, str(path))


def _parse_toml(text: str) -> FilledSections:
    sections: FilledSections = tomllib.loads(text)
    if _is_deep(sections, jsonio.MAX_DEPTH):
        raise ValueError(f"nested more than {jsonio.MAX_DEPTH} levels deep")
    return sections


def _is_deep(value: object, levels: int) -> bool:
    """Return whether a value is nested deeper than `levels`."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deep(one, levels - 1) for one in inner)


@check_types
def recipe(name: str) -> Config:
    """A built-in configuration by name."""
    path = _recipe_files().get(name)
    if path is None:
        raise unknown_name("recipe", name, recipes(None))
    return from_sections(tomllib.loads(path.read_text("utf-8")), f"recipe {name}")


def _recipe_files() -> dict[str, Path]:
    """Return the files of the built-in configurations, by name."""
    return {path.stem: path for path in RECIPES.glob("*/*.toml")}


def recipes(task: str | None = "classify", pretrained: bool | str = False) -> list[str]:
    """The names of the built-in configurations for a task, or of all; from simple to deep.

    One that names no task answers for whole texts, by classes or numbers. Those that start from a
    checkpoint come with `pretrained`: all, or those for the kind of checkpoint there is.
    """
    wanted = {"regress": "classify", "pair-score": "pair-classify"}.get(task or "", task)
    orders = {}
    for path in _recipe_files().values():
        sections = tomllib.loads(path.read_text("utf-8"))
        start = sections["recipe"].get("pretrained")  # the kind of checkpoint it begins with
        if wanted is not None and start and pretrained not in (True, start):
            continue
        if wanted is None or sections.get("task", {}).get("kind", "classify") == wanted:
            orders[path.stem] = sections["recipe"].get("order", 99)
    return sorted(orders, key=lambda name: (orders[name], name))


def with_pretrained(config: Config, folder: str, origin: str = "--pretrained") -> Config:
    """Return the configuration with a pre-trained network where it names one, or as embedder.

    A language model has no embedder; it continues training the network.
    """
    if "classic" in config:
        raise UserError(f"{origin} {folder}: a classic model has no network to start from.")
    tables = config["embedder"]
    for i, spec in enumerate(tables if isinstance(tables, list) else [tables]):
        if spec.get("kind") == "pretrained":
            key = f"embedder.{i}" if isinstance(tables, list) else "embedder"
            return config.with_values({f"{key}.model": folder}, origin)
    part = "decoder" if _is_lm(config.sections) else "embedder"
    return config.with_values({part: {"kind": "pretrained", "model": folder}}, origin)


def from_sections(sections: Sections, origin: str) -> Config:
    """A configuration from values already read; every key is marked with its origin."""
    checked = _check_sections(sections, origin)
    return Config(checked, dict.fromkeys(setting_names(checked), origin))


def overrides(settings: Iterable[str]) -> Settings:
    """Parse `--set section.key=value` texts; values are TOML, and bare words are texts."""
    out = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or key.count(".") < 1:
            raise UserError(f"--set '{setting}' should look like section.key=value.")
        section = key.split(".")[0]
        if section not in SETTING_SECTIONS:
            raise unknown_name("section", section, SETTING_SECTIONS, f"--set '{setting}'")
        try:
            out[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            out[key] = value.strip()
        if isinstance(out[key], (datetime.date, datetime.time)):
            out[key] = value.strip()  # no setting is a date; a file may be called like one
    return out


def model_sections(sections: Sections) -> tuple[str, ...]:
    """The sections that a model of this configuration is made of."""
    if "ensemble" in sections:
        return ("ensemble",)
    if "classic" in sections:
        return ("tokenizer", "classic") if _is_lm(sections) else ("classic",)
    if _is_lm(sections):
        return LM_SECTIONS
    if "decoder" in sections:
        return SEQ2SEQ_SECTIONS
    two = (
        "pair" in sections
        or _task_kind(sections).startswith("pair-")
        or _task_kind(sections) == "span"
    )
    return (*NEURAL_SECTIONS, "pair") if two else NEURAL_SECTIONS


def section_kinds(section: Any) -> tuple[str, ...]:
    """The kind of each table of a section: one, or one per [[section]]."""
    tables = section if isinstance(section, list) else [section]
    return tuple(str(table.get("kind", "")) for table in tables)


def _is_lm(sections: Sections) -> bool:
    return _task_kind(sections) == "language"


def _task_kind(sections: Sections) -> str:
    kind = sections.get("task", {}).get("kind", "")
    return kind if isinstance(kind, str) else ""


def setting_names(sections: Sections, prefix: str = "") -> list[str]:
    """Dotted names of all settings."""
    out = []
    for name, value in sections.items():
        if isinstance(value, Mapping):
            out += setting_names(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for i, item in enumerate(value):
                out += setting_names(item, f"{prefix}{name}.{i}.")
        else:
            out.append(prefix + name)
    return out


def dumps(sections: Sections) -> str:
    """Sections as TOML; a value that is nothing, for which TOML has no word, is left out."""
    lines = []
    for name, section in sections.items():
        for table in section if isinstance(section, list) else [section]:
            lines.append(f"[[{name}]]" if isinstance(section, list) else f"[{name}]")
            some = {key: value for key, value in table.items() if value is not None}
            lines += [f"{key} = {to_toml(value)}" for key, value in some.items()]
            lines.append("")
    return "\n".join(lines)


def to_toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{to_toml(k)} = {to_toml(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(to_toml(v) for v in value) + "]"


def _check_sections(sections: Sections, origin: str) -> FilledSections:
    if not isinstance(sections, Mapping):
        kind = type(sections).__name__
        raise UserError(f"{origin}: a configuration holds sections with keys, found a {kind}.")
    for name, section in sections.items():
        if name not in SECTIONS:
            raise unknown_name("section", name, SECTIONS, origin)
        tables = section if name in LISTED_SECTIONS and isinstance(section, list) else [section]
        if not all(isinstance(table, Mapping) for table in tables):
            raise UserError(f"{origin}: [{name}] should be a section with keys, got {section!r}.")
    unused = ("embedder", "encoder", "pool", "head", "target")
    if _is_lm(sections) and (extra := [n for n in unused if n in sections]):
        reason = "a language model is a [tokenizer] and a [decoder], or [classic] in its place"
        raise UserError(f"{origin}: {reason}; remove [{'], ['.join(extra)}].")
    if "decoder" in sections and (extra := [n for n in ("pool", "head") if n in sections]):
        reason = "a [decoder] writes the answer itself"
        raise UserError(f"{origin}: {reason}; remove [{'], ['.join(extra)}].")
    # N-grams are counted of any tokens; all other classic models find words themselves.
    others = [
        n
        for n in (*NEURAL_SECTIONS, *SEQ2SEQ_SECTIONS, "pair", "attention")
        if not (n == "tokenizer" and _is_lm(sections))
    ]
    if "classic" in sections and (extra := [n for n in others if n in sections]):
        raise UserError(f"{origin}: [classic] stands alone; remove [{'], ['.join(extra)}].")
    return dict(sections)


def _set_value(sections: FilledSections, key: str, value: object) -> None:
    *path, last = key.split(".")
    node: Any = sections
    for step in path:
        if isinstance(node, list):
            number = parse_integer(step)
            if number is None or number >= len(node):
                raise UserError(f"'{key}': there are {len(node)} of these, numbered from 0.")
            node = node[number]
        elif isinstance(node, dict):
            node = node.setdefault(step, {})
    if isinstance(node, list):
        raise UserError(f"'{key}': say which one, as in {path[0]}.0.{last}.")
    if not isinstance(node, dict):
        raise UserError(f"'{key}': '{'.'.join(path)}' is a value, it has no settings of its own.")
    node[last] = value
