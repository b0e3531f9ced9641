"""One exception for mistakes a user can fix; everything else is a bug and may crash."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Says what was found, where, and what to do about it."""


class UndecidedError(UserError):
    """Several columns of a file fit, or none does: the user has to name one."""


class UserNote(UserWarning):
    """What a user should know, though nothing has gone wrong."""


def near_miss(name: str, known: Iterable[str]) -> str:
    """' Did you mean 'x'?' when something close is known, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """The error for a name that is not among the known ones."""
    options = sorted(known)
    place = f" in {where}" if where else ""
    listed = ", ".join(options) if options else "none"
    return UserError(f"Unknown {what} '{name}'{place}.{near_miss(name, options)} Known: {listed}.")
