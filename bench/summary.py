"""bench/results/*.jsonl -> the pages of docs/benchmarks; none of their figures is typed by hand.

python bench/summary.py            # --check: only report whether the pages are up to date
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import headlines
import tables
import tables_compare
import tables_dialogue
import tables_encoding
import tables_export
import tables_finetune
import tables_generation
import tables_generation_speed
import tables_parallel
import tables_parsing
import tables_serve
import tables_structure
import tables_tasks
import tables_vectors
from tables import Figures, Row, Section, Table
from tables_vectors import Grid

ROOT = Path(__file__).parent.parent
PAGES, RESULTS = ROOT / "docs" / "benchmarks", Path(__file__).parent / "results"
MARK = "<!-- Written by bench/summary.py from bench/results. Do not edit. -->"
INTRO = ROOT / "bench" / "intro.md"  # the text around the tables of the first page
HEADLINE_COLUMNS = ("what", "promised", "result", "competitor", "script")


class Page(NamedTuple):
    """One page of the ledger."""

    name: str
    title: str
    sections: Sequence[Section]


LEDGER = (
    Page("training", "Classifiers and the training loop", tables.SECTIONS),
    Page("vectors", "Word vectors", tables_vectors.SECTIONS),
    Page("compare", "Compare, check, explain and report", tables_compare.SECTIONS),
    Page("tagging", "Taggers, CRF and tree networks", tables_structure.SECTIONS),
    Page("parsing", "Parsers and text processing", tables_parsing.SECTIONS),
    Page("tasks", "Coreference, speech, captions and annotation", tables_tasks.SECTIONS),
    Page(
        "language",
        "Language models and generation",
        (*tables_generation.SECTIONS, *tables_dialogue.SECTIONS),
    ),
    Page("decoding-speed", "Speed of training and decoding", tables_generation_speed.SECTIONS),
    Page("encoding-speed", "Speed of encoders on a CPU", tables_encoding.SECTIONS),
    Page("export", "Exports and pages", tables_export.SECTIONS),
    Page("serve", "Serving over HTTP", tables_serve.SECTIONS),
    Page("scaling", "Several processes and large files", tables_parallel.SECTIONS),
    Page("pretrained", "Pre-training and fine-tuning", tables_finetune.SECTIONS),
)


class Kept(NamedTuple):
    """A file of results: on what it was measured, and its lines."""

    head: Figures
    lines: list[Figures]


def results() -> list[Kept]:
    """Every file, in the order of their names."""
    found = []
    for path in sorted(RESULTS.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        head = lines[0] if lines and "machine" in lines[0] else {}
        where = device(lines)
        found.append(Kept(head, [tables_vectors.named({**where, **line}) for line in lines]))
    return found


def device(lines: list[Figures]) -> Figures:
    """On what a file was measured, where a line of it says so."""
    for line in lines:
        if line.get("question") == "device":
            processor = line["name"] == "processor"
            return {"device": f"{line['threads']} threads" if processor else line["name"]}
    return {}


def asks(line: Figures, names: Iterable[str]) -> bool:
    """Whether a line is of one of these questions; a name may end in "*" for many of them."""
    question = line.get("question", "")
    return any(fnmatchcase(question, name) for name in names)


def markdown(columns: Row, rows: Iterable[Row]) -> str:
    """Rows as a Markdown table."""
    cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(table: Table | Grid, files: list[Kept]) -> list[str]:
    """What a table is about and the table itself; with `by`, several under a heading each."""
    if isinstance(table, Grid):
        return spread_out(table, files)
    groups: dict[object, list[Row]] = {}
    for number, file in enumerate(files):
        for line in file.lines:
            if asks(line, (table.question,)):
                # The same data on another machine is another table.
                group = (number, line[table.by]) if table.by else None
                groups.setdefault(group, []).append(table.row(line))
    parts = [table.about] if table.about and groups else []
    for group, rows in groups.items():
        if isinstance(group, tuple):
            parts.append(f"### {group[1]}")
        if table.sort:
            rows.sort(key=lambda row: row[0])  # stable: recipes keep their order
        parts.append(markdown(table.columns, rows))
    return parts


def questions(table: Table | Grid) -> tuple[str, ...]:
    """Whose lines a table is made of."""
    return table.questions if isinstance(table, Grid) else (table.question,)


def spread_out(grid: Grid, files: list[Kept]) -> list[str]:
    """Tables whose rows need several lines, wherever they were kept."""
    lines = [line for file in files for line in file.lines if asks(line, grid.questions)]
    sheets = grid.sheets(lines) if lines else []
    parts = [grid.about] if grid.about and sheets else []
    for sheet in sheets:
        parts += [f"### {sheet.title}"] if sheet.title else []
        parts += [sheet.about] if sheet.about else []
        parts.append(markdown(sheet.columns, sheet.rows))
    return parts


def made(head: Figures) -> str:
    """How, when and where a file of results was made."""
    versions = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
    load = f"; load of the machine at the start {head['load']}" if "load" in head else ""
    return f"`{head['command']}`, {head['date']}: {head['machine']}; {versions}{load}."


def section(about: Section, files: list[Kept]) -> str:
    """Title, what was measured, the tables, and how each file was made; "" without figures."""
    asked = {question for table in about.tables for question in questions(table)}
    files = [file for file in files if any(asks(line, asked) for line in file.lines)]
    parts = [part for table in about.tables for part in shown(table, files)]
    if not parts:
        return ""
    heads = [made(file.head) for file in files if file.head]
    return "\n\n".join([f"## {about.title}", about.about, *parts, *heads])


def ledger_page(page: Page, files: list[Kept]) -> str:
    """One page of the ledger: a section for each question with results."""
    sections = list(filter(None, (section(about, files) for about in page.sections)))
    return "\n\n".join([f"# {page.title}", MARK, *(sections or ["No figures yet."])]) + "\n"


def first_page(files: list[Kept]) -> str:
    """The page to read in two minutes: introduction, headlines, and the ledger's contents."""
    lines = [
        {**line, "command": file.head.get("command", "")} for file in files for line in file.lines
    ]
    texts = {
        f"{{{name}}}": markdown(HEADLINE_COLUMNS, [headlines.row(one, lines) for one in group])
        for name, group in (("speed", headlines.SPEED), ("quality", headlines.QUALITY))
    }
    texts["{ledger}"] = "\n".join(
        f"- [{page.title}]({page.name}.md): {'; '.join(s.title for s in page.sections)}"
        for page in LEDGER
    )
    text = INTRO.read_text("utf-8")
    for name, content in texts.items():
        text = text.replace(name, content)
    return text


def pages() -> dict[Path, str]:
    """Every generated page with its contents."""
    files = results()
    ledger = {PAGES / f"{page.name}.md": ledger_page(page, files) for page in LEDGER}
    return {PAGES / "index.md": first_page(files), **ledger}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for path, text in pages().items():
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"Out of date: {names}. Run python bench/summary.py.")


if __name__ == "__main__":
    main()
