"""weft config explain"""

from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.errors import UserError

app = typer.Typer(help="Inspect configurations.", no_args_is_help=True)


@app.callback()
def about() -> None:
    """Inspect configurations."""


@app.command("explain")
def explain(
    config: Annotated[Path | None, typer.Argument(help="A configuration file.")] = None,
    recipe: Annotated[str, typer.Option(help="Name of a built-in recipe.")] = "",
    sets: options.Sets = [],  # noqa: B006
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Print every setting with its value and where it was set."""
    from weft import config as configuration
    from weft.run.train import resolve_config

    if bool(config) == bool(recipe):
        raise UserError("Give a configuration file or --recipe NAME.")
    base = configuration.load(config) if config else configuration.recipe(recipe)
    base = options.apply(base, {}, sets)
    full = resolve_config(base)
    for name, section in full.items():
        for i, table in enumerate(section if isinstance(section, list) else [section]):
            prefix = f"{name}.{i}." if isinstance(section, list) else f"{name}."
            for key, value in table.items():
                origin = base.origin(prefix + key)
                shown = "(unset)" if value is None else configuration.to_toml(value)
                typer.echo(f"{prefix + key:<26} = {shown:<22} # {origin}")
