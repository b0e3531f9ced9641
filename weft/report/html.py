"""Jinja pages that open anywhere, offline: one environment, one look."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from weft.report.words import count, duration, figure, milliseconds, size


def render(template: str, **values: Any) -> str:
    """A whole page; everything that came from the user is escaped by the template."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(count=count, duration=duration, milliseconds=milliseconds, size=size)
    templates.globals.update(figure=figure, zip=zip)
    return templates.get_template(template).render(**values)
