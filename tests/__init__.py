"""Tests. Weft comes before torch, as on the command line: how threads wait is set by then."""

import weft  # noqa: F401
