"""weft list"""

from collections.abc import Mapping
from typing import Annotated

import typer

from weft import config, registry
from weft.errors import unknown_name


def show(
    what: Annotated[
        str, typer.Argument(help="recipes, tasks, tokenizers, embedders, encoders, pools, …")
    ] = "recipes",
    names: Annotated[bool, typer.Option("--names", help="Print names only, one per line.")] = False,
) -> None:
    """List recipes and parts with their options and defaults."""
    kind = what.removesuffix("s")
    if kind == "recipe":
        task = ""
        for name in config.recipes(None):
            found = config.recipe(name)
            about, own = found["recipe"], found["task"].get("kind", "classify")
            if own != task and not names:
                typer.echo(f"{own}: {registry.parts('task')[own].summary}")
            task = own
            typer.echo(name if names else f"{name:<18} {about['summary']}")
            if not names:
                scores = ", ".join(_describe_score(score) for score in about["scores"])
                reached = f"reaches {scores}; " if scores else ""
                typer.echo(f"{'':<18} {reached}{about['cost']}")
        return
    if kind not in registry.FOLDERS:
        raise unknown_name("list", what, [f"{k}s" for k in registry.FOLDERS] + ["recipes"])
    for name, part in sorted(registry.parts(kind).items()):
        if names:
            typer.echo(name)
            continue
        typer.echo(f"{name:<18} {part.summary}")
        for option, default in part.options:
            if option not in registry.DERIVED:
                typer.echo(f"    {option} = {default or '(required)'}")
    for name, value in registry.declared_parts(kind).items():
        package = value.partition(".")[0].partition(":")[0]
        typer.echo(name if names else f"{name:<18} {value} (installed; needs --trust {package})")


def _describe_score(score: Mapping[str, object]) -> str:
    """Describe a score: the metric, the data and the number of runs."""
    start = f", over {score['start']}" if "start" in score else ""
    words = f"{score['metric']} {score['value']} on {score['data']}"
    return f"{words} (n = {score['n']}{start})"
