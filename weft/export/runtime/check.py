"""Check an ONNX file from anywhere before onnxruntime sees it.

The file is walked in its wire format, field by field, and nothing is copied: only standard
operators of one version, weights inside the file and of the size that they claim, no functions.
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft.errors import UserError
from weft.export.runtime.operators import IR_VERSION, OPERATORS, OPSET

MAX_DEPTH = 4  # graphs inside nodes of graphs
MAX_CREATED = 1 << 24  # numbers of a tensor that a constant shape asks for
# Types of tensors: bytes of a number, and NumPy's name where the values are looked at.
DTYPE_BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
INT64 = 7
# Operators that make a tensor of any size, and which input has it.
CREATING = {"Expand": 1, "ConstantOfShape": 0, "Pad": 1}
STANDARD_DOMAINS = (b"", b"ai.onnx")
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    """One field of a message: a number, or the range of its bytes."""

    number: int
    value: int
    start: int = 0
    stop: int = 0


class DamagedGraph(UserError):
    """A graph that is not what Weft writes."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"{path}: damaged ({reason}). Export the model again.")


class _Walker:
    def __init__(self, path: Path, data: memoryview):
        self.path, self.data = path, data
        self.constants: dict[bytes, np.ndarray] = {}  # shapes that creating operators read

    def fail(self, reason: str) -> DamagedGraph:
        return DamagedGraph(self.path, reason)

    def fields(self, start: int, stop: int) -> Iterator[Field]:
        """Yield the fields of a message."""
        at = start
        while at < stop:
            key, at = self.varint(at, stop)
            number, kind = key >> 3, key & 7
            if kind == VARINT:
                value, at = self.varint(at, stop)
                yield Field(number, value)
                continue
            if kind == BYTES:
                size, at = self.varint(at, stop)
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
            else:
                raise self.fail(f"no ONNX at byte {at}")
            if size > stop - at:
                raise self.fail(f"cut short at byte {at}")
            yield Field(number, 0, at, at + size)
            at += size

    def varint(self, at: int, stop: int) -> tuple[int, int]:
        value = shift = 0
        while at < stop and shift < 70:
            byte = self.data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at
        raise self.fail(f"cut short at byte {at}")

    def bytes_of(self, field: Field) -> bytes:
        return bytes(self.data[field.start : field.stop])

    def model(self) -> None:
        """Check a ModelProto."""
        graphs = versions = 0
        for field in self.fields(0, len(self.data)):
            if field.number == 1 and field.value > IR_VERSION:
                raise self.fail(f"IR version {field.value}, this Weft reads {IR_VERSION}")
            if field.number == 7:
                self.graph(field, 0)
                graphs += 1
            if field.number == 8:
                self.opset(field)
                versions += 1
            if field.number in (20, 25):
                raise self.fail("functions or training graphs, which Weft does not write")
        if graphs != 1 or versions != 1:
            raise self.fail("not one graph with one version of operators")

    def opset(self, field: Field) -> None:
        """Check the version of the operators."""
        domain, version = b"", 0
        for one in self.fields(field.start, field.stop):
            if one.number == 1:
                domain = self.bytes_of(one)
            if one.number == 2:
                version = one.value
        if domain not in STANDARD_DOMAINS:
            raise self.fail(f"operators of the domain {domain.decode(errors='replace')!r:.60}")
        if version != OPSET:
            raise self.fail(f"operators of version {version}, this Weft reads {OPSET}")

    def graph(self, field: Field, depth: int) -> None:
        """Check a GraphProto: its weights, then its nodes."""
        if depth > MAX_DEPTH:
            raise self.fail("graphs inside graphs")
        nodes = []
        for one in self.fields(field.start, field.stop):
            if one.number == 1:
                nodes.append(one)
            elif one.number == 5:
                self.tensor(one)
            elif one.number == 15:
                raise self.fail("sparse weights, which Weft does not write")
        for one in nodes:
            self.node(one, depth)

    def node(self, field: Field, depth: int) -> None:
        """Check a NodeProto."""
        inputs, kind = [], b""
        for one in self.fields(field.start, field.stop):
            if one.number == 1:
                inputs.append(self.bytes_of(one))
            elif one.number == 4:
                kind = self.bytes_of(one)
            elif one.number == 5:
                self.attribute(one, depth)
            elif one.number == 7 and self.bytes_of(one) not in STANDARD_DOMAINS:
                raise self.fail("an operator of another domain than the standard one")
        name = kind.decode(errors="replace")
        if name not in OPERATORS:
            raise self.fail(f"the operator {name!r:.60}, which Weft does not write")
        shape_input = CREATING.get(name)
        if shape_input is not None and shape_input < len(inputs):
            sizes = self.constants.get(inputs[shape_input])
            if sizes is not None and prod(max(abs(int(n)), 1) for n in sizes) > MAX_CREATED:
                raise self.fail(f"an operator {name} that makes a tensor of {sizes.tolist()}")

    def attribute(self, field: Field, depth: int) -> None:
        """Check an AttributeProto."""
        for one in self.fields(field.start, field.stop):
            if one.number in (5, 10):
                self.tensor(one)
            elif one.number in (6, 11):
                self.graph(one, depth + 1)
            elif one.number in (22, 23):
                raise self.fail("sparse weights, which Weft does not write")

    def tensor(self, field: Field) -> None:
        """Check a TensorProto: its bytes are in the file, as many as its shape claims."""
        sizes, kind, raw, name = [], 0, Field(0, 0), b""
        for one in self.fields(field.start, field.stop):
            if one.number == 1 and one.stop:  # packed
                at = one.start
                while at < one.stop:
                    size, at = self.varint(at, one.stop)
                    sizes.append(size)
            elif one.number == 1:
                sizes.append(one.value)
            elif one.number == 2:
                kind = one.value
            elif one.number == 8:
                name = self.bytes_of(one)
            elif one.number == 9:
                raw = one
            elif one.number == 13 or (one.number == 14 and one.value):
                raise self.fail("weights in another file, which Weft does not write")
            elif one.number in (3, 4, 5, 6, 7, 10, 11):
                raise self.fail("weights that are not raw bytes")
        if kind not in DTYPE_BYTES:
            raise self.fail(f"weights of type {kind}")
        there = raw.stop - raw.start
        if prod(sizes) * DTYPE_BYTES[kind] != there:
            raise self.fail(f"a weight of the shape {sizes} in {there:,} bytes")
        if kind == INT64 and len(sizes) == 1 and sizes[0] <= 16:
            self.constants[name] = np.frombuffer(self.data, "<i8", sizes[0], raw.start)


def check_graph(path: Path, data: bytes) -> None:
    """Raise UserError for a file that is not a graph as Weft writes it."""
    _Walker(path, memoryview(data)).model()
