"""The playground: one offline page of plain JavaScript that trains small sequence models."""

import re
from pathlib import Path

from markupsafe import Markup

from weft.errors import UserError
from weft.export.page.assemble import POLICY, hash_source
from weft.export.page.bundle import bundle
from weft.report.html import render, save

HERE = Path(__file__).parent
MAX_PAGE_BYTES = 1_000_000
_CHARSET = '<meta charset="utf-8">'


def write_playground(path: Path) -> Path:
    """Write the page to a file; an earlier one is replaced."""
    if path.is_dir():
        raise UserError(f"{path} is a folder. Name a file: -o {path / 'playground.html'}.")
    save(path, build_page())
    return path


def build_page() -> str:
    """Return the page, with a policy that allows its own scripts and no request."""
    page = render(
        "playground.html",
        style=Markup((HERE / "page.css").read_text("utf-8")),
        script=Markup(bundle(HERE / "js" / "page.js")),
    )
    rules = {
        **POLICY,
        "script-src": _hash_inline(page, "script"),
        "style-src": _hash_inline(page, "style"),
    }
    policy = "; ".join(f"{name} {sources}" for name, sources in rules.items())
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    # Before the first style: a policy holds only for what comes after it.
    page = page.replace(_CHARSET, f"{_CHARSET}\n{meta}", 1)
    assert len(page.encode()) < MAX_PAGE_BYTES
    return page


def _hash_inline(page: str, element: str) -> str:
    """Return the hashes of a page's inline styles or scripts."""
    sources = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    return " ".join(map(hash_source, sources))
