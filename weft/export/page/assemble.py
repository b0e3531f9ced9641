"""Write a model as one HTML file that answers texts offline in a browser.

The files of the model stand in the page as base64 of gzip, so that no label or text
is ever read as markup. A Content-Security-Policy allows the page's own script, by its hash, and no
request of any kind.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from weft import __version__
from weft.export.page.bundle import bundle
from weft.jsonio import JsonObject
from weft.storage import write_text

HERE = Path(__file__).parent
POLICY = {
    "default-src": "'none'",
    "img-src": "data:",
    "base-uri": "'none'",
    "form-action": "'none'",
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_ENDS_SCRIPT = re.compile(r"</(?=script|style)|<!--", re.IGNORECASE)


@dataclass(frozen=True)
class PageText:
    """The words of a page about its model."""

    title: str
    lede: str
    facts: Sequence[tuple[str, str]] = ()  # a number and what it counts
    input_name: str = "Text"
    other_name: str = "Second text"
    generate_name: str = "Continue the text"
    generate_verb: str = "Continue"
    temperature: float = 1.0


def assemble(
    text: PageText,
    about: JsonObject,
    files: Mapping[str, bytes],
    modules: Sequence[str] = (),
    licences: Mapping[str, str] = {},
) -> str:
    """Return the page.

    `files` are those of the model by name; `modules` are scripts that run before the page's own.
    """
    scripts = [*modules, bundle(HERE / "js" / "app.js")]
    style = (HERE / "page.css").read_text("utf-8")
    packed = {"about.json": json.dumps(about, ensure_ascii=False).encode(), **files}
    values = {
        "version": escape(__version__),
        "policy": escape(_policy(scripts, style, with_wasm=bool(modules)), quote=True),
        "title": escape(text.title),
        "lede": escape(text.lede),
        "facts": "".join(f"<li><b>{escape(n)}</b> {escape(what)}</li>" for n, what in text.facts),
        "input_name": escape(text.input_name),
        "other_name": escape(text.other_name),
        "generate_name": escape(text.generate_name),
        "generate_verb": escape(text.generate_verb),
        "temperature": escape(f"{text.temperature:g}", quote=True),
        "style": style,
        "files": "\n".join(_embed(name, data) for name, data in packed.items()),
        "scripts": "\n".join(f'<script type="module">{script}</script>' for script in scripts),
        "licences": "".join(
            f"<details><summary>{escape(name)}</summary><pre>{escape(licence)}</pre></details>"
            for name, licence in licences.items()
        ),
    }
    template = (HERE / "page.html").read_text("utf-8")
    # One pass: what a value holds is never replaced again.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def write_page(path: Path, page: str) -> None:
    """Write a page, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)


def _policy(scripts: Sequence[str], style: str, with_wasm: bool) -> str:
    """Return the Content-Security-Policy: these scripts and this style, nothing else."""
    for code in (*scripts, style):
        assert not _ENDS_SCRIPT.search(code), "a script or style would end inside the page"
    hashes = " ".join(map(hash_source, scripts))
    wasm = " 'wasm-unsafe-eval'" if with_wasm else ""
    rules = {**POLICY, "script-src": hashes + wasm, "style-src": hash_source(style)}
    return "; ".join(f"{name} {sources}" for name, sources in rules.items())


def hash_source(code: str) -> str:
    """Return the hash of an inline script or style as a policy lists it."""
    digest = hashlib.sha256(code.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _embed(name: str, data: bytes) -> str:
    """Return a file as a block of data: base64 of gzip, without a date, so that pages repeat."""
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f'<script type="text/plain" data-file="{escape(name, quote=True)}">{packed}</script>'
