"""Build the documentation site: write the generated pages, then run `zensical build --strict`.

python docs/build.py             # into site/; --pages writes the generated pages only
"""

import argparse
import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import typer

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT_PAGES = (
    "CHANGELOG",
    "CONTRIBUTING",
    "SECURITY",
)  # kept at the root, where tools expect them
STYLE = (
    "svg{--paper:#fffdfa;--soft:#f4f2ec;--accent:#b4431f}"
    "text{fill:#1d2126;font:13px sans-serif;text-anchor:middle}"
    ".edge{fill:none;stroke:#646b75;stroke-width:1.2}.tip{fill:#646b75}"
    ".node{stroke:#646b75}.sign{font-size:11px;font-weight:600}.said,.label{font-size:11px}"
    ".halo{paint-order:stroke;stroke:#fffdfa;stroke-width:5px;stroke-linejoin:round}"
)
DECKS = {
    "000": "IIT Delhi",
    "001": "Charles University",
    "002": "LSTMs and attention",
    "003": "ENSAE",
    "004": "Bar-Ilan",
}
LECTURE_SECTIONS = {
    "W": "Words to vectors",
    "E": "Vectors in context",
    "A": "Attention",
    "D": "Vectors to answers",
    "P": "Pre-train, then fine-tune",
    "T": "Training and understanding",
    "N": "Beyond the lectures",
}
LECTURES_INTRO = """
Every model and method of five lectures on neural NLP: the equation on the slide, the file that
computes it, the command that runs it, and the test that writes the equation out and compares.
Commands run in an empty folder after these three, which write synthetic data:

```bash
weft demo --reviews reviews
weft demo --treebank treebank
weft demo --pairs pairs
```

Generated from `docs/lectures.toml`. `tests/test_lectures.py` checks every name in it and runs every
command.
""".strip()
MAX_COMMAND_CHARS = 84
# The colours of charts, which a report takes from its page.
CHART_STYLE = "svg{--ink:#1d2126;--muted:#646b75;--line:#dfdbd2;--accent:#b4431f;--paper:#fffdfa}"
COMMAND = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
Command = typer.core.TyperCommand | typer.core.TyperGroup


def write_pages(docs: Path) -> list[Path]:
    """Write the pages and pictures that are made from code and from files at the root."""
    reference = docs / "reference"
    pages = {
        reference / "cli.md": format_cli(),
        reference / "recipes.md": format_recipes(),
        reference / "built-in-parts.md": format_parts(),
        reference / "protocols.md": format_protocols(),
        docs / "concepts" / "lectures.md": format_lectures(),
    }
    for name in PROJECT_PAGES:
        text = (ROOT / f"{name}.md").read_text("utf-8")
        pages[docs / "project" / f"{name.lower()}.md"] = move_links(text)
    pages |= {docs / "pictures" / name: text for name, text in draw_pictures().items()}
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return list(pages)


def draw_pictures() -> dict[str, str]:
    """Return the drawings that pages show, as the reports draw them."""
    import numpy as np

    from weft.metrics.calibration import risk_coverage
    from weft.report.charts.histograms import plot_risk_coverage
    from weft.report.drawings.dependency_svg import draw_dependencies
    from weft.report.drawings.draw import lay_out
    from weft.report.drawings.tree_svg import draw_constituency, draw_sentiment
    from weft.text.annotation import trees

    arcs = draw_dependencies(
        ["Ana", "filmed", "the", "singer", "with", "a", "camera", "."],
        [2, 0, 4, 2, 7, 7, 2, 2],
        ["nsubj", "root", "det", "obj", "case", "det", "obl", "punct"],
        ["PROPN", "VERB", "DET", "NOUN", "ADP", "DET", "NOUN", "PUNCT"],
    )
    bracketed = "(S (NP (NNP Ana)) (VP (VBD filmed) (NP (DT the) (NN singer))) (. .))"
    brackets = lay_out(trees.parse(bracketed))
    rated = lay_out(trees.parse("(1 (3 (2 The) (2 dish)) (1 (2 is) (1 (2 never) (4 delightful))))"))
    scores = [(int(label) - 2) / 2 for label in rated.labels]
    rng = np.random.default_rng(0)
    confidences = 1 - 0.6 * rng.random(2000) ** 2
    curve = risk_coverage(confidences, rng.random(2000) < confidences)
    return {
        "risk-coverage.svg": format_svg(plot_risk_coverage(curve), CHART_STYLE),
        "dependencies.svg": format_svg(str(arcs)),
        "constituents.svg": format_svg(
            str(draw_constituency(brackets.words, brackets.parents, brackets.labels))
        ),
        "ratings.svg": format_svg(
            str(draw_sentiment(rated.words, rated.parents, scores, rated.labels))
        ),
    }


def format_svg(drawing: str, style: str = STYLE) -> str:
    """Return a drawing of a report as a file of its own, with the report's style."""
    start, _, rest = drawing.partition(">")
    size = '<rect width="100%" height="100%" rx="6" fill="#fffdfa"/>'
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    names = names if "xlink:" in rest else names.split()[0]
    return f"{start} {names}><style>{style}</style>{size}{rest}\n"


def move_links(text: str) -> str:
    """Return a page of the root with its links as seen from docs/project."""
    text = re.sub(r"\]\(docs/", "](../", text)
    for name in PROJECT_PAGES:
        text = text.replace(f"]({name}.md", f"]({name.lower()}.md")
    return text


def format_cli() -> str:
    """Return the reference of all verbs, read off the command line's own declarations."""
    from weft.cli.main import app

    command = typer.main.get_command(app)
    intro = "Generated from the command line itself; `weft VERB --help` prints the same."
    return "\n\n".join(["# Command line", intro, *format_command(command, "weft")]) + "\n"


def format_command(command: Command, name: str) -> list[str]:
    """Return the paragraphs of a verb and of the verbs below it."""
    context = typer.Context(command, info_name=name)
    children = getattr(command, "commands", {})
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [] if name == "weft" else [f"{'#' * (name.count(' ') + 1)} {name}"]
    parts += [re.sub(r"(?<!\n)\n(?!\n)", " ", (command.help or "").strip())]
    parts += [] if children else [f"```text\n{name} {usage}\n```"]
    rows = [record for param in command.params if (record := param.get_help_record(context))]
    rows = [row for row in rows if row[0] != "--help"]
    if rows:
        lines = [
            f"| `{escape(left)}` | {escape(right).replace('<', '&lt;')} |" for left, right in rows
        ]
        parts.append("\n".join(["| option | meaning |", "|---|---|", *lines]))
    for child, below in children.items():
        parts += format_command(below, f"{name} {child}")
    return parts


def format_recipes() -> str:
    """Return all recipes by task, with their cost and measured quality."""
    from weft import config, registry

    tasks: dict[str, list[str]] = {}
    for name in config.recipes(None):
        recipe = config.recipe(name)
        about = recipe["recipe"]
        scores = "; ".join(
            f"{one['data']}: {one['metric']} {one['value']} (n = {one['n']}"
            + (f", over {one['start']})" if "start" in one else ")")
            for one in about["scores"]
        )
        row = f"| `{name}` | {escape(about['summary'])} | {escape(about['cost'])} | {scores} |"
        tasks.setdefault(recipe["task"].get("kind", "classify"), []).append(row)
    head = "| recipe | model | cost | measured |\n|---|---|---|---|"
    intro = "Generated from the recipes; `weft list recipes` prints the same."
    parts = ["# Recipes", intro]
    for task, rows in tasks.items():
        summary = registry.parts("task")[task].summary
        parts += [f"## {task}", escape(summary), "\n".join([head, *rows])]
    return "\n\n".join(parts) + "\n"


def format_parts() -> str:
    """Return every built-in part with its options and defaults."""
    from weft import registry

    intro = (
        "Generated from the constructors; `weft list encoders` and the like print the same. "
        "Options go into the part's section: `[encoder]`, or `--set encoder.hidden=100`."
    )
    parts = ["# Built-in parts", intro]
    for kind in registry.FOLDERS:
        rows = []
        for name, part in sorted(registry.parts(kind).items()):
            options = ", ".join(
                f"`{option} = {default}`" if default else f"`{option}` (required)"
                for option, default in part.options
                if option not in registry.DERIVED
            )
            rows.append(f"| `{name}` | {escape(part.summary)} | {escape(options)} |")
        title = "classic models" if kind == "classic" else f"{kind}s"
        head = ["| kind | what it does | options and defaults |", "|---|---|---|"]
        parts += [f"## {title.capitalize()}", "\n".join([*head, *rows])]
    return "\n\n".join(parts) + "\n"


def format_protocols() -> str:
    """Return the page that has mkdocstrings describe every class of weft/protocols.py."""
    source = (ROOT / "weft" / "protocols.py").read_text("utf-8")
    intro = (
        "Every member that other code calls on a part is declared in `weft/protocols.py`. A part "
        "derives from the class of its kind and overrides what differs. Members without a value "
        "are required; the others have the default that suits most parts. "
        "[Extend Weft](../how-to/extend.md) shows a part of your own."
    )
    options = '    options:\n      show_if_no_docstring: true\n      filters: ["!^_"]'
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    parts = [f"::: weft.protocols.{name}\n{options}" for name in names]
    return "\n\n".join(["# Interfaces of parts", intro, *parts]) + "\n"


def read_lectures() -> list[dict[str, Any]]:
    """Return the rows of docs/lectures.toml."""
    rows: list[dict[str, Any]] = tomllib.loads(
        (ROOT / "docs" / "lectures.toml").read_text("utf-8")
    )["row"]
    return rows


def format_lectures() -> str:
    """Return the page of the lectures: one section a row, with equation, code, command and test."""
    rows = read_lectures()
    parts = ["# The lectures in Weft", LECTURES_INTRO]
    for letter, title in LECTURE_SECTIONS.items():
        section = [row for row in rows if row["id"].startswith(letter)]
        lines = [f"| [{row['id']}](#{row['id'].lower()}) | {row['title']} | "
                 f"{row.get('planned') or row['summary']} |" for row in section]  # fmt: skip
        table = "\n".join(["| row | method | in Weft |", "|---|---|---|", *lines])
        parts += [f"## {title}", table]
        parts += [part for row in section for part in format_lecture(row)]
    return "\n\n".join(parts) + "\n"


def format_lecture(row: dict[str, Any]) -> list[str]:
    """Return the paragraphs of one row."""
    heading = f"### {row['id']} · {row['title']} {{ #{row['id'].lower()} }}"
    parts = [heading, row["summary"] or f"*Planned.* {row.get('planned', '')}"]
    if row["equation"]:
        equation = map(wrap_equation, row["equation"].strip().splitlines())
        parts.append("\n".join(["```text", *equation, "```"]))
    if row["command"]:
        lines = row["command"].replace("\\\n", "").strip().splitlines()
        parts.append("\n".join(["```bash", *map(wrap_command, lines), "```"]))
    facts = {
        "decks": ", ".join(DECKS[deck] for deck in row["decks"]),
        "code": ", ".join(f"`{name}`" for name in row["file"]),
        "settings": ", ".join(f"`{name}`" for name in row["key"]),
        "tests": ", ".join(f"`{name}`" for name in row["test"]),
    }
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.items() if value))
    return parts


def wrap_equation(line: str) -> str:
    """Break a long line of equations after semicolons, and where it is still too long."""
    if len(line) <= MAX_COMMAND_CHARS:
        return line
    parts = (textwrap.wrap(part, MAX_COMMAND_CHARS) for part in line.split("; "))
    return "\n".join("\n  ".join(part) for part in parts)


def wrap_command(line: str) -> str:
    """Break a long command before options, as a shell reads it."""
    out, width = "", 0
    for word in re.findall(r"(?:\s+--?[\w-]+)?\s*(?:\"[^\"]*\"|\S+)", line):
        if width + len(word) > MAX_COMMAND_CHARS and word.lstrip().startswith("-"):
            out, width, word = f"{out} \\\n ", 2, f" {word.lstrip()}"
        out, width = out + word, width + len(word)
    return out


def escape(cell: str) -> str:
    """Return a cell of a Markdown table on one line."""
    return " ".join(cell.split()).replace("|", "\\|")


def build(root: Path = ROOT, pages_only: bool = False) -> None:
    """Build the site of a checkout, or of a copy of its docs/ and mkdocs.yml."""
    write_pages(root / "docs")
    if pages_only:
        return
    done = subprocess.run(COMMAND, cwd=root)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", action="store_true", help="only write the generated pages")
    build(pages_only=parser.parse_args().pages)


if __name__ == "__main__":
    main()
