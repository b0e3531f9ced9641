"""Jinja pages that open anywhere, offline: one environment, one look."""

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from weft.compare.format import (
    BRIEF,
    about,
    called,
    count,
    duration,
    figure,
    milliseconds,
    percent,
    size,
)
from weft.storage import cannot_write, write_text


def render(template: str, **values: Any) -> str:
    """A whole page; everything that came from the user is escaped by the template."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        about=about, count=count, duration=duration, milliseconds=milliseconds, size=size, name=name
    )
    templates.globals.update(figure=figure, called=called, briefly=BRIEF, is_share=percent, zip=zip)
    return templates.get_template(template).render(**values)


def save(path: Path, page: str) -> None:
    """Write a page; a UserError where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error.strerror or str(error)) from None
    write_text(path, page, errors="replace")


def name(text: str) -> Markup:
    """A label, which may be long: it is broken at its joints, and keeps its own direction."""
    # Not inside an escaped character such as &#39;.
    joints = re.sub(r"([_/.\-:])(?=\w)", r"\1<wbr>", str(escape(text)))
    return Markup(f"<bdi>{joints}</bdi>")
