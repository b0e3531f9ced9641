"""Griffe extension: the comment behind a field is its description in the reference."""

import ast
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Describes attributes without a docstring by the comment behind them."""

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **kwargs: Any
    ) -> None:
        if attr.docstring or attr.lineno is None or not attr.parent or not attr.parent.is_class:
            return
        line = attr.lines_collection[attr.filepath][(attr.endlineno or attr.lineno) - 1]
        _, mark, comment = line.partition("  # ")
        if mark:
            attr.docstring = griffe.Docstring(comment[:1].upper() + comment[1:], parent=attr)
