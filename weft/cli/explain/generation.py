"""Terminal output of `weft explain` for generated or scored text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from weft.explain import Explanation
    from weft.explain.generation import GenerationTrace

SURPRISE = (232, 119, 70)  # under black letters, on any terminal
ALTERNATIVES_SHOWN = 2  # choices beside each token
MAX_TABLE_ROWS = 60  # lines of a table
HYPOTHESES_SHOWN = 4  # hypotheses of a step
STEPS_AFTER_END = 3  # steps of a beam behind the end of its answer


def show_text(
    console: "Console", found: "GenerationTrace", one: "Explanation", wrong: object, *, close: bool
) -> None:
    """Print tokens coloured by surprisal; with `close`, every step."""
    from rich.text import Text

    summary = Text("  ").append(f"{one.answer.score:.3f}", "dim")
    if found.scored:
        summary = Text("  ").append(f"perplexity {one.answer.value:.4g} a token", "dim")
    console.print(colour_tokens(found, one.text).append_text(summary))
    if wrong is not None and not found.scored:
        right = " | ".join(wrong) if isinstance(wrong, tuple) else str(wrong)
        console.print(Text("right  ", "green").append(right, "not green"))
    if not close:
        return
    console.print()
    _table(console, found)
    if len(found.found) > 1:
        console.print()
        for text, score in found.found:
            console.print(Text(f"{score:8.3f}  ", "dim").append(text, "not dim"))
    if found.nodes:
        console.print()
        _steps(console, found)
    console.print()


def colour_tokens(found: "GenerationTrace", text: str) -> "Text":
    """Return the text, tokens coloured by surprisal."""
    from rich.text import Text

    from weft.explain.generation import END_SIGN
    from weft.report.drawings.generation import colour_depth

    out, at = Text(), 0
    pieces = any(token.text.startswith(" ") for token in found.tokens)  # that bring their spaces
    for k, token in enumerate(found.tokens):
        start, end = token.place
        shown = token.text
        if found.scored:
            shown = text[start:end]
            out.append(text[at:start])
            at = max(at, end)
        elif not k:
            shown = shown.lstrip() or shown
        elif not pieces or shown == END_SIGN:
            out.append(" ")
        deep = colour_depth(token.prob)
        ground = [round(255 - (255 - c) * deep) for c in SURPRISE]
        out.append(shown, f"black on rgb({','.join(map(str, ground))})" if deep else "")
    return out


def _table(console: "Console", found: "GenerationTrace") -> None:
    from rich.table import Table
    from rich.text import Text

    from weft.report.drawings.generation import token_rows

    rows = token_rows(found)
    table = Table(box=None, pad_edge=False, header_style="dim")
    named = any(row.others for row in rows)
    heads = ("token", "prob.", *(("alternatives",) if named else ()))
    for name in (*heads, *(("attends to",) if _has_attention(found) else ())):
        table.add_column(name, justify="right" if name == "prob." else "left")
    for row in rows[:MAX_TABLE_ROWS]:
        others = Text("  ").join(
            Text(name).append(f" {chance:.3f}", "dim")
            for name, chance in row.others[:ALTERNATIVES_SHOWN]
        )
        cells = [Text(row.text), Text(f"{row.prob:.3f}"), *([others] if named else [])]
        table.add_row(*cells, *([Text(row.attends_to)] if _has_attention(found) else []))
    console.print(table)
    if len(rows) > MAX_TABLE_ROWS:
        console.print(
            f"… and {len(rows) - MAX_TABLE_ROWS} tokens more (-o PAGE.html shows all)", style="dim"
        )


def _has_attention(found: "GenerationTrace") -> bool:
    return found.attention is not None and not found.scored


def _steps(console: "Console", found: "GenerationTrace") -> None:
    """Print the hypotheses of every step, best first, finished ones last; the output in bold."""
    from rich.text import Text

    console.print(
        "beams, step by step: log-probability so far; → ended with this score", style="dim"
    )
    steps = max(node.step for node in found.nodes) + 1
    # A beam looks on behind the end of the answer, sometimes for long.
    shown = min(
        steps,
        max((node.step for node in found.nodes if node.is_best), default=0) + STEPS_AFTER_END + 1,
    )
    for step in range(shown):
        line = Text(f"{step + 1:4}  ", "dim")
        here = [node for node in found.nodes if node.step == step]
        still = [n for n in here if n.status == "open"]
        ends = [n for n in here if n.status != "open"]
        for node in (
            *still[:HYPOTHESES_SHOWN],
            *(n for n in still[HYPOTHESES_SHOWN:] if n.is_best),
            *ends,
        ):
            line.append(node.token.strip() or "␣", "bold green" if node.is_best else "not dim")
            value = f" {node.total:.2f}" if node.score is None else f" → {node.score:.2f}"
            line.append(f"{value}   ", "dim")
        console.print(line)
    if shown < steps:
        console.print(f"… and {steps - shown} steps more (-o PAGE.html shows all)", style="dim")
