"""The model card of a model folder: README.md in the format of the Hugging Face Hub.

It is made of model.json, record.json and the sizes of the weights alone, without times and dates:
the same model has the same card. Folders of files are left out, since a card is made to be shared.
"""

import html
import math
import ntpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import __version__, jsonio
from weft import config as configuration
from weft.predict.members import SECTION
from weft.protocols import Saved, Section
from weft.storage import write_text

CARD = "README.md"
# Tasks of the Hub; a task that it has no name for is left out.
PIPELINE_TAGS = {
    "classify": "text-classification",
    "pair-classify": "text-classification",
    "pair-score": "sentence-similarity",
    "span": "question-answering",
    "tag": "token-classification",
    "parse": "token-classification",
    "seq2seq": "text2text-generation",
    "language": "text-generation",
    "masked": "fill-mask",
    "embed": "feature-extraction",
}
FEW_ROWS = 10  # training rows of a class below which the card warns
MAX_LABELS = 50  # listed with their counts
MAX_NAMED = 10  # names in a sentence
DATA_FILES = ("train", "dev", "test")
_MARKDOWN = re.compile(r"([\\`*_\[\]|~#$])")
_FENCE = re.compile(r"`{3,}")
_GOLDEN_LINE = re.compile(r"^- \d+ texts with their answers \(`golden\.jsonl`\).*\n", re.MULTILINE)
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/][^\s'\"]*[\\/]")  # folders of an absolute path


@dataclass(frozen=True)
class Comparison:
    """The place of a model in a comparison, and its latency."""

    place: int  # from 1
    recipes: int
    metric: str
    quality: float
    spread: float | None
    trials: int
    command: Sequence[str]
    p50_ms: float | None = None
    p95_ms: float | None = None
    texts_per_second: float | None = None
    device: str = ""


def write_card(folder: Path, comparison: Comparison | None = None) -> None:
    """Write README.md of a model folder, whose other files are written."""
    write_text(folder / CARD, render_card_of(folder, comparison), errors="replace")


def without_golden(card: str) -> str:
    """Return a card without the line on recorded texts."""
    return _GOLDEN_LINE.sub("", card)


def render_card_of(folder: Path, comparison: Comparison | None = None) -> str:
    """Return the card of a model folder."""
    saved: Saved = jsonio.read(folder / "model.json")
    path = folder / "record.json"
    record: Saved = jsonio.read(path) if path.is_file() else {}
    size = sum(file.stat().st_size for file in sorted(folder.rglob("*.safetensors")))
    return render_card(saved["config"], record, size, saved.get("golden", 0), comparison)


def render_card(
    config: Section,
    record: Saved,
    weight_bytes: int,
    golden: int = 0,
    comparison: Comparison | None = None,
) -> str:
    """Return the card of a model: YAML front matter, then Markdown."""
    names = {name: config.get("data", {}).get(name, "") for name in DATA_FILES}
    parts = [
        _front_matter(config, record, names),
        f"# {escape_markdown(_model_name(config, names))}",
        _summary(config),
        _usage(config),
        _results(record),
        _describe_comparison(comparison),
        _data(record, names),
        _limits(config, record, names),
        _size(config, record, weight_bytes, golden),
        _reproduction(config, record, comparison),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def architecture_name(config: Section) -> str:
    """Return the kind of a model: a classic model, or its encoders or decoder."""
    if SECTION in config:
        return f"ensemble of {len(config[SECTION]['weights'])}"
    encoder = configuration.section_kinds(config.get("encoder", config.get("decoder", {})))
    kind: str = config.get("classic", {}).get("kind", "+".join(encoder))
    return kind


def quote_yaml(text: str) -> str:
    """Return a text as a double-quoted YAML string on one line."""
    out = []
    for sign in text:
        code = ord(sign)
        if sign in '"\\':
            out.append(f"\\{sign}")
        elif 0xD800 <= code <= 0xDFFF:  # half a surrogate pair, which no file can hold
            out.append("\ufffd")
        elif sign.isprintable():
            out.append(sign)
        else:
            out.append(f"\\x{code:02x}" if code < 256 else f"\\U{code:08x}")
    return f'"{"".join(out)}"'


def escape_markdown(text: str) -> str:
    """Return a text on one line that Markdown and HTML show as it is."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return html.escape(_MARKDOWN.sub(r"\\\1", flat), quote=False)


def fence(text: str, language: str = "") -> str:
    """Return a block of code that its text cannot end."""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def _model_name(config: Section, names: Mapping[str, str]) -> str:
    source = _file_name(names["train"])
    return architecture_name(config) + (f" trained on {source}" if source else "")


def _front_matter(config: Section, record: Saved, names: Mapping[str, str]) -> str:
    task = config["task"]["kind"]
    tag = PIPELINE_TAGS.get(task)
    lines = ["---", "library_name: weft"]
    if tag:
        lines.append(f"pipeline_tag: {tag}")
    lines += ["tags:", *(f"- {quote_yaml(one)}" for one in ("weft", task))]
    results = []
    for split, figures in record.get("figures", {}).items():
        source = _split_source(record, names, split)
        results += [
            "  - task:",
            f"      type: {quote_yaml(tag or task)}",
            "    dataset:",
            f"      name: {quote_yaml(source)}",
            f"      type: {quote_yaml(re.sub(r'[^A-Za-z0-9._-]+', '-', source) or 'data')}",
            f"      split: {quote_yaml(split)}",
            "    metrics:",
        ]
        for name, one in figures.items():
            if math.isfinite(one["value"]):
                results += [f"    - type: {quote_yaml(name)}", f"      value: {one['value']!r}"]
    if any("value:" in line for line in results):
        lines += ["model-index:", f"- name: {quote_yaml(_model_name(config, names))}"]
        lines += ["  results:", *results]
    return "\n".join([*lines, "---"])


def _summary(config: Section) -> str:
    task = config["task"]["kind"]
    return (
        f"A model of the task {escape_markdown(task)}, made with Weft {__version__}. "
        f"Architecture: {escape_markdown(architecture_name(config))}."
    )


def _usage(config: Section) -> str:
    writes = config["task"]["kind"] == "language"
    verb = 'weft generate MODEL "Once upon a time"' if writes else "weft predict MODEL texts.txt"
    text = '[("first text", "second text")]' if "pair" in config else '["a text"]'
    python = 'import weft\n\nmodel = weft.load("MODEL")\n'
    python += (
        'print(weft.generate(model, "Once upon a time"))' if writes else f"print(model({text}))"
    )
    note = "`MODEL` is this folder, or `hf:ORGANISATION/NAME` where it is on the Hub."
    return "\n\n".join(["## Use", note, fence(verb, "sh"), fence(python, "python")])


def _results(record: Saved) -> str:
    rows = []
    for split, figures in record.get("figures", {}).items():
        for name, one in figures.items():
            interval = f"{one['low']:.4f} to {one['high']:.4f}"
            rows.append((split, name, f"{one['value']:.4f}", interval, f"{one['n']:,}"))
    if not rows:
        return "## Results\n\nNothing was measured."
    table = _table(("split", "metric", "value", "95 % interval", "n"), rows)
    return f"## Results\n\n{table}"


def _describe_comparison(found: Comparison | None) -> str:
    if found is None:
        return ""
    spread = "" if found.spread is None else f" ± {found.spread:.4f}"
    runs = f"{found.trials} run{'' if found.trials == 1 else 's'}"
    lines = [
        f"Place {found.place} of {found.recipes} recipes by {escape_markdown(found.metric)}: "
        f"{found.quality:.4f}{spread} over {runs}. This folder holds one of them."
    ]
    if found.p50_ms is not None and found.p95_ms is not None:
        fast = "" if found.texts_per_second is None else (
            f", {found.texts_per_second:,.0f} texts per second in batches"
        )  # fmt: skip
        lines.append(
            f"Latency on {escape_markdown(found.device)}: {found.p50_ms:.2f} ms per text (median), "
            f"{found.p95_ms:.2f} ms (95th percentile){fast}."
        )
    return "\n\n".join(["## Comparison", *lines])


def _data(record: Saved, names: Mapping[str, str]) -> str:
    data = record.get("data", {})
    rows = data.get("rows")
    if not names["train"] and rows is None:
        return ""
    lines = [
        f"- train: {escape_markdown(_file_name(names['train']) or 'rows from memory')}"
        + ("" if rows is None else f", {rows:,} rows")
    ]
    for split in ("dev", "test"):
        if source := data.get(split):
            lines.append(f"- {split}: {escape_markdown(_display_source(source))}")
    parts = ["## Data", "\n".join(lines)]
    labels = data.get("labels", {})
    if labels:
        total = sum(labels.values())
        shown = [
            (label, f"{count:,}", f"{100 * count / total:.1f} %")
            for label, count in list(labels.items())[:MAX_LABELS]
        ]
        parts.append(_table(("label", "training rows", "share"), shown))
        if len(labels) > MAX_LABELS:
            parts.append(f"… {len(labels) - MAX_LABELS:,} more labels")
    return "\n\n".join(parts)


def _limits(config: Section, record: Saved, names: Mapping[str, str]) -> str:
    data = config.get("data", {})
    lines = []
    if tokens := data.get("max_tokens"):
        lines.append(f"Reads at most {tokens:,} tokens of a text ({data.get('truncate')}).")
    elif characters := data.get("max_characters"):
        lines.append(f"Reads at most {characters:,} characters of a text.")
    few = [
        f"{label} ({count})"
        for label, count in record.get("data", {}).get("labels", {}).items()
        if count < FEW_ROWS
    ]
    if few:
        lines.append(
            f"Classes with fewer than {FEW_ROWS} training rows: {_join_names(few)}. Their answers "
            "are unreliable."
        )
    lines += [_strip_folders(note, names.values()) for note in record.get("notes", ())]
    if not lines:
        return ""
    return "\n\n".join(["## Limits", "\n".join(f"- {escape_markdown(line)}" for line in lines)])


def _size(config: Section, record: Saved, weight_bytes: int, golden: int) -> str:
    lines = []
    if "parameters" in record:
        lines.append(f"- {record['parameters']:,} parameters")
    lines.append(f"- {weight_bytes:,} bytes of weights")
    if golden:
        lines.append(
            f"- {golden} texts with their answers (`golden.jsonl`), replayed when it is loaded"
        )
    return "\n\n".join(["## Size", "\n".join(lines)])


def _reproduction(config: Section, record: Saved, comparison: Comparison | None) -> str:
    paths = [config.get("data", {}).get(name, "") for name in DATA_FILES]
    parts = ["## Reproduce"]
    if comparison is not None:
        parts += [
            "It was chosen by",
            fence(_strip_folders(shlex.join(comparison.command), paths), "sh"),
        ]
    command = record.get("command", "")
    if " " in command:
        parts += ["It was made by", fence(_strip_folders(command, paths), "sh")]
    if "completed" in record and SECTION not in config:  # trained here
        train = "weft train config.toml -o RUN"
        parts.append("Save these settings as `config.toml`; the data files belong beside it.")
        parts += [fence(train, "sh"), fence(configuration.dumps(_without_folders(config)), "toml")]
    if "versions" in record:
        listed = ", ".join(f"{name} {one}" for name, one in record["versions"].items())
        parts.append(f"Versions: {escape_markdown(listed)}.")
    return "\n\n".join(parts) if len(parts) > 1 else ""


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *([escape_markdown(c) for c in r] for r in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _split_source(record: Saved, names: Mapping[str, str], split: str) -> str:
    """Return where the examples of a split come from."""
    source = record.get("data", {}).get(split) or names.get(split) or split
    return _display_source(source)


def _display_source(source: str) -> str:
    held_out = "held out from "
    if source.startswith(held_out):
        return held_out + (_file_name(source.removeprefix(held_out)) or "the training rows")
    return _file_name(source)


def _file_name(path: str) -> str:
    """Return the names of a file, or of parallel files, without their folders."""
    return ",".join(ntpath.basename(one.rstrip("/\\")) for one in path.split(","))


def _strip_folders(text: str, paths: Iterable[str] = ()) -> str:
    """Return a text without the folders of these paths and of absolute ones."""
    for path in filter(None, paths):
        for one in path.split(","):
            text = text.replace(one, _file_name(one))
    return _PATH.sub("", text)


def _without_folders(value: Any) -> Any:
    """Return settings in which every path is a file name."""
    if isinstance(value, Mapping):
        return {
            key: _file_name(one) if key in DATA_FILES and isinstance(one, str)
            else _without_folders(one)
            for key, one in value.items()
        }  # fmt: skip
    if isinstance(value, (list, tuple)):
        return [_without_folders(one) for one in value]
    if isinstance(value, str) and _PATH.match(value):
        return _file_name(value)
    return value


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
