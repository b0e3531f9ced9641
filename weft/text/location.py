"""Names of tables where a path is expected, and the locations of rows for messages."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.text.tables.table import Table

MEMORY_PREFIX = "<memory: "  # of the name of a table in a saved configuration
HUB_PREFIX = "hf:"
SPOOL_ENDING = ".memory.jsonl"  # of a file with the rows of a table: train.memory.jsonl


class TableName(str):
    """The name of a table in memory, which it carries.

    Paths are strings from the configuration to the reader; a table travels the same way.
    """

    table: "Table"
    label: str  # "train", in the locations of its rows

    def __new__(cls, value: str, table: "Table", label: str) -> "TableName":
        name = super().__new__(cls, value)
        name.table, name.label = table, label
        return name

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str.__str__(self), self.table, self.label

    def __deepcopy__(self, memo: dict[int, object]) -> "TableName":
        return self  # a copied configuration refers to the same table


def is_table(path: object) -> bool:
    """Return whether a name stands for a table, not for a file."""
    return isinstance(path, TableName) or (isinstance(path, str) and path.startswith(HUB_PREFIX))


def format_location(file: str, line: int) -> str:
    """Return 'file:line', or 'train[17]' for the row of a table; rows count from 0."""
    if isinstance(file, TableName):
        return f"{file.label}[{line - 1}]{file.table.describe_index(line - 1)}"
    if file.endswith(SPOOL_ENDING):
        return f"{file.replace(chr(92), '/').rpartition('/')[2][: -len(SPOOL_ENDING)]}[{line - 1}]"
    return f"{file}[{line - 1}]" if file.startswith(HUB_PREFIX) else f"{file}:{line}"
