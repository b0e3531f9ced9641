"""Join ES modules into one script: a page opened from the disk may not import files."""

import re
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (async function\*?|function\*?|class|const) (\w+)", re.MULTILINE)


def bundle(entry: Path) -> str:
    """Return a script that runs a module after everything it imports, each in its own scope."""
    order: list[Path] = []
    _collect(entry.resolve(), order, ())
    names = {path: f"$module{i}" for i, path in enumerate(order)}
    modules = "\n".join(_wrap(path, names) for path in order)
    return f'"use strict";\n{modules}\n'


def _collect(path: Path, order: list[Path], importing: tuple[Path, ...]) -> None:
    """Append the modules that `path` imports, then itself."""
    assert path not in importing, f"{path.name} imports itself"
    if path in order:
        return
    for _, target in _IMPORT.findall(path.read_text("utf-8")):
        _collect((path.parent / target).resolve(), order, (*importing, path))
    order.append(path)


def _wrap(path: Path, names: dict[Path, str]) -> str:
    """Return a module as a constant that holds its exports."""
    source = path.read_text("utf-8")

    def import_line(match: re.Match[str]) -> str:
        wanted = re.sub(r"\s+", " ", match[1]).strip()
        return f"const {{ {wanted} }} = {names[(path.parent / match[2]).resolve()]};\n"

    exported = [match[2] for match in _EXPORT.finditer(source)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(import_line, source))
    assert not re.search(r"^(import|export)\b", body, re.MULTILINE), f"{path.name}: unread import"
    returned = f"return {{ {', '.join(exported)} }};\n" if exported else ""
    return f"const {names[path]} = (() => {{\n{body}{returned}}})();"
