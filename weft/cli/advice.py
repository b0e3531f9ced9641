"""Adapt the options that a message suggests to the verb that prints it."""

import re

from weft.text.line_source import SKIP_HINT

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
HOMES = ("train", "predict", "evaluate", "explain", "check")  # where an option is looked for first
_NAMED = re.compile(r"(?:`weft |[Tt]rain (?:it )?with |weft )[^`.;]*$")  # the verb stands before it


def options_of(command: object) -> dict[str, frozenset[str]]:
    """Return the long options of every verb: {"train": {"--recipe", …}, "tokens train": {…}}."""
    out: dict[str, frozenset[str]] = {}
    for name, child in getattr(command, "commands", {}).items():
        for inner, found in options_of(child).items():
            out[f"{name} {inner}".strip()] = found
    if not out:
        given = [*getattr(command, "params", [])]
        names = {o for p in given for o in (*p.opts, *getattr(p, "secondary_opts", ()))}
        out[""] = frozenset(o for o in names if o.startswith("--")) | {"--help"}
    return out


def fit_advice(message: str, verb: str, offered: dict[str, frozenset[str]]) -> str:
    """Return a message that suggests no option which the verb lacks.

    Bad rows cannot be skipped by a verb without --on-bad-row; any other option is named with a verb
    that has it.
    """
    own = offered.get(verb)
    if own is None:
        return message
    if "--on-bad-row" not in own:
        message = message.replace(f", or {SKIP_HINT}", "").replace(
            f" {SKIP_HINT[0].upper()}{SKIP_HINT[1:]}.", ""
        )
    homes = (*HOMES, *offered)

    def replace_option(match: re.Match[str]) -> str:
        option = match[0]
        home = next((name for name in homes if option in offered.get(name, ())), None)
        if option in own or home is None or _NAMED.search(message[: match.start()]):
            return option
        return f"weft {home} {option}"

    return OPTION.sub(replace_option, message)


def verb_of(words: list[str], offered: dict[str, frozenset[str]]) -> str:
    """Return the verb that a command line calls, of one word or two; empty where it is none."""
    for count in (2, 1):
        if (name := " ".join(words[:count])) in offered:
            return name
    return ""
