"""Render the Jinja templates as self-contained HTML pages."""

import functools
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from weft.compare.format import (
    SHORT_NAMES,
    format_count,
    format_duration,
    format_metric,
    format_milliseconds,
    format_size,
    human_count,
    is_percent,
    metric_name,
)
from weft.storage import cannot_write, write_text


def render(template: str, **values: object) -> str:
    """Render a whole page; templates escape everything that comes from the user."""
    return _templates().get_template(template).render(**values)


@functools.cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        human_count=human_count,
        count=format_count,
        duration=format_duration,
        milliseconds=format_milliseconds,
        size=format_size,
        name=break_label,
    )
    templates.globals.update(
        format_metric=format_metric,
        metric_name=metric_name,
        short_names=SHORT_NAMES,
        is_percent=is_percent,
        zip=zip,
    )
    return templates


def save(path: Path, page: str) -> None:
    """Write a page; raise UserError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error.strerror or str(error)) from None
    write_text(path, page, errors="replace")


def break_label(text: str) -> Markup:
    """Return a label with line-break opportunities and its own text direction."""
    # Not inside an escaped character such as &#39;.
    joints = re.sub(r"([_/.\-:])(?=\w)", r"\1<wbr>", str(escape(text)))
    return Markup(f"<bdi>{joints}</bdi>")
