"""A graph builder: a part of a model writes its ONNX nodes one by one, through `Graph`.

Values overload the arithmetic operators, so that the nodes of a part read like its equations. Each
value knows its element type; shapes are known when the graph runs.

B rows   T steps   E embedding width   H hidden width
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from torch import Tensor

from weft import registry
from weft.errors import UserError
from weft.export.runtime.operators import IR_VERSION, OPERATORS, OPSET

try:
    import onnx
except ModuleNotFoundError:
    raise UserError(
        "Writing ONNX graphs needs the package onnx. Install it: pip install 'weft[onnx]'."
    ) from None

MASKED = -1e30  # added to the score of a masked step: its weight is 0 in single precision
MIN_QUANTISED = 1024  # numbers of a matrix that is worth quantising
Scalar = int | float | bool
Operand: TypeAlias = "Value | Scalar"
V = TypeVar("V")
FLOAT, INT, BOOL, INT32 = map(np.dtype, (np.float32, np.int64, np.bool_, np.int32))


@dataclass(frozen=True, eq=False)
class Value:
    """The output of a node, an input of the graph, or a weight."""

    graph: "Graph" = field(repr=False)
    name: str
    dtype: np.dtype[Any]

    def __add__(self, other: Operand) -> "Value":
        return self.graph.op("Add", self, self.like(other))

    def __sub__(self, other: Operand) -> "Value":
        return self.graph.op("Sub", self, self.like(other))

    def __rsub__(self, other: Scalar) -> "Value":
        return self.like(other) - self

    def __mul__(self, other: Operand) -> "Value":
        return self.graph.op("Mul", self, self.like(other))

    def __truediv__(self, other: Operand) -> "Value":
        return self.graph.op("Div", self, self.like(other))

    def __mod__(self, other: Operand) -> "Value":
        return self.graph.op("Mod", self, self.like(other))

    def __xor__(self, other: Operand) -> "Value":
        return self.graph.op("BitwiseXor", self, self.like(other))

    def __matmul__(self, other: "Value") -> "Value":
        return self.graph.op("MatMul", self, other)

    def __neg__(self) -> "Value":
        return self.graph.op("Neg", self)

    def __and__(self, other: "Value") -> "Value":
        return self.graph.op("And", self, other)

    def __or__(self, other: "Value") -> "Value":
        return self.graph.op("Or", self, other)

    def __invert__(self) -> "Value":
        return self.graph.op("Not", self)

    def __lt__(self, other: Operand) -> "Value":
        return self.graph.op("Less", self, self.like(other), dtype=BOOL)

    def __le__(self, other: Operand) -> "Value":
        return self.graph.op("LessOrEqual", self, self.like(other), dtype=BOOL)

    def __gt__(self, other: Operand) -> "Value":
        return self.graph.op("Greater", self, self.like(other), dtype=BOOL)

    def __ge__(self, other: Operand) -> "Value":
        return self.graph.op("GreaterOrEqual", self, self.like(other), dtype=BOOL)

    def equals(self, other: Operand) -> "Value":
        """Return True where both are equal."""
        return self.graph.op("Equal", self, self.like(other), dtype=BOOL)

    def like(self, other: Operand) -> "Value":
        """Return a number as a constant of this element type."""
        return other if isinstance(other, Value) else self.graph.constant(other, self.dtype)

    def to(self, dtype: np.dtype[Any]) -> "Value":
        """Return the value in another element type."""
        kind = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        return self if dtype == self.dtype else self.graph.op("Cast", self, dtype=dtype, to=kind)

    def tanh(self) -> "Value":
        return self.graph.op("Tanh", self)

    def sigmoid(self) -> "Value":
        return self.graph.op("Sigmoid", self)

    def relu(self) -> "Value":
        return self.graph.op("Relu", self)

    def abs(self) -> "Value":
        return self.graph.op("Abs", self)

    def softmax(self, axis: int = -1) -> "Value":
        return self.graph.op("Softmax", self, axis=axis)

    def sum(self, axis: int, keepdims: bool = False) -> "Value":
        """Return the sum over one axis."""
        return self.graph.op("ReduceSum", self, self.graph.shape(axis), keepdims=int(keepdims))

    def max(self, axis: int, keepdims: bool = False) -> "Value":
        """Return the maximum over one axis."""
        return self.graph.op("ReduceMax", self, self.graph.shape(axis), keepdims=int(keepdims))

    def transpose(self, *order: int) -> "Value":
        """Return the value with its axes in another order."""
        return self.graph.op("Transpose", self, perm=list(order))

    def reshape(self, *shape: "int | Value") -> "Value":
        """Return the value in another shape: 0 keeps a size, -1 is what is left."""
        return self.graph.op("Reshape", self, self.graph.shape(*shape))

    def expand(self, *shape: "int | Value") -> "Value":
        """Return the value repeated along axes of size 1."""
        return self.graph.op("Expand", self, self.graph.shape(*shape))

    def unsqueeze(self, *axes: int) -> "Value":
        """Return the value with new axes of size 1."""
        return self.graph.op("Unsqueeze", self, self.graph.shape(*axes))

    def squeeze(self, *axes: int) -> "Value":
        """Return the value without axes of size 1."""
        return self.graph.op("Squeeze", self, self.graph.shape(*axes))

    def slice(self, axis: int, start: Operand, stop: Operand, step: int = 1) -> "Value":
        """Return part of an axis; like Python, negative numbers count from the end."""
        ends = (self.graph.shape(one) for one in (start, stop))
        return self.graph.op("Slice", self, *ends, self.graph.shape(axis), self.graph.shape(step))

    def gather(self, index: "Value", axis: int = 0) -> "Value":
        """Return entries of an axis by number."""
        return self.graph.op("Gather", self, index, axis=axis)

    def size(self, axis: int) -> "Value":
        """Return the size (1,) of an axis."""
        shape = self.graph.op("Shape", self, dtype=INT, start=axis, end=axis + 1 or None)
        return shape

    def clamp_min(self, lowest: Scalar) -> "Value":
        """Return the larger of the value and a number."""
        return self.graph.op("Max", self, self.like(lowest))


class Graph:
    """An ONNX graph under construction; with `int8`, its large matrices are quantised by row."""

    def __init__(self, int8: bool = False) -> None:
        self.int8 = int8
        self._named = 0
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, tuple[np.dtype[Any], tuple[str | int, ...]]] = {}
        self.outputs: dict[str, tuple[Value, tuple[str | int, ...]]] = {}
        self.initialisers: list[onnx.TensorProto] = []
        self._constants: dict[tuple[object, ...], Value] = {}
        self._quantised_tables: dict[object, tuple[Value, Value]] = {}
        self._kept: list[object] = []  # tensors whose address names a weight
        self._cached: dict[object, Any] = {}  # values that several parts need

    def run(self, part: object, *inputs: Any, **options: Any) -> Any:
        """Write the nodes of a part, and return its output."""
        return emitter_of(part)(self, part, *inputs, **options)

    def add_input(self, name: str, dtype: np.dtype[Any], *shape: str | int) -> Value:
        """Declare an input of the graph; named sizes may differ from call to call."""
        self.inputs[name] = (dtype, shape)
        return Value(self, name, dtype)

    def add_output(self, name: str, value: Value, *shape: str | int) -> None:
        """Declare an output of the graph."""
        self.nodes.append(onnx.helper.make_node("Identity", [value.name], [name]))
        self.outputs[name] = (replace(value, name=name), shape)

    def op(
        self,
        kind: str,
        *inputs: "Value | None",
        dtype: np.dtype[Any] | None = None,
        **attributes: Any,
    ) -> Value:
        """Write a node with one output, of the element type of its first input if not named."""
        (value,) = self.ops(kind, *inputs, outputs=1, dtype=dtype, **attributes)
        return value

    def ops(
        self,
        kind: str,
        *inputs: "Value | None",
        outputs: int,
        dtype: np.dtype[Any] | None = None,
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Write a node with several outputs."""
        assert kind in OPERATORS, f"{kind} is not among the operators that the runtime accepts"
        names = [self._name() for _ in range(outputs)]
        attributes = {name: value for name, value in attributes.items() if value is not None}
        node = onnx.helper.make_node(
            kind, ["" if one is None else one.name for one in inputs], names, **attributes
        )
        self.nodes.append(node)
        first = next(one for one in inputs if one is not None)
        return tuple(Value(self, name, dtype or first.dtype) for name in names)

    def scan(
        self,
        step: Callable[[Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]],
        states: Sequence[Value],
        inputs: Sequence[Value],
    ) -> tuple[list[Value], list[Value]]:
        """Run a step over the first axis of the inputs, from the states of one step to the next.

        `step` takes the states and the slices of the inputs and returns the next states and
        outputs. Return the last states, and the outputs of all steps side by side.
        """
        outer, self.nodes = self.nodes, []
        before = [Value(self, self._name(), one.dtype) for one in states]
        slices = [Value(self, self._name(), one.dtype) for one in inputs]
        after, outputs = step(before, slices)
        results = [self.op("Identity", one) for one in (*after, *outputs)]
        body = onnx.helper.make_graph(
            self.nodes, "step",
            [_describe(one.name, one.dtype, None) for one in (*before, *slices)],
            [_describe(one.name, one.dtype, None) for one in results],
        )  # fmt: skip
        self.nodes = outer
        made = self.ops(
            "Scan", *states, *inputs, outputs=len(results), body=body, num_scan_inputs=len(inputs)
        )
        return list(made[: len(states)]), list(made[len(states) :])

    def _name(self) -> str:
        self._named += 1
        return f"v{self._named}"

    def constant(self, value: object, dtype: np.dtype[Any] | None = None) -> Value:
        """Return a constant; equal small ones are stored once."""
        given = np.asarray(value, dtype)
        array = np.ascontiguousarray(given).reshape(given.shape)  # a number stays one
        key = (array.dtype, array.shape, array.tobytes())
        if array.nbytes > 1024 or key not in self._constants:
            name = f"c{len(self.initialisers)}"
            self.initialisers.append(onnx.numpy_helper.from_array(array, name))
            self._constants[key if array.nbytes <= 1024 else (name,)] = Value(
                self, name, array.dtype
            )
            return Value(self, name, array.dtype)
        return self._constants[key]

    def shape(self, *sizes: "int | float | Value") -> Value:
        """Return sizes as one vector of integers."""
        if all(not isinstance(one, Value) for one in sizes):
            return self.constant(list(sizes), INT)
        parts = [one if isinstance(one, Value) else self.constant([one], INT) for one in sizes]
        return parts[0] if len(parts) == 1 else self.concat(parts, 0)

    def weight(self, tensor: Tensor, transpose: bool = False) -> Value:
        """Return a trained tensor, stored once however often it is read."""
        key = ("weight", tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), transpose)
        if key not in self._constants:
            self._kept.append(tensor)
            array = tensor.detach().float().cpu().numpy()
            if self.int8 and array.ndim > 1 and array.size >= MIN_QUANTISED:
                value = self._quantised(array)
                if transpose:
                    value = value.transpose(*range(array.ndim - 2), array.ndim - 1, array.ndim - 2)
            else:
                value = self.constant(np.swapaxes(array, -1, -2) if transpose else array)
            self._constants[key] = value
        return self._constants[key]

    def _quantised(self, array: np.ndarray) -> Value:
        """Return a matrix stored as int8 with a scale for each row; the runtime unfolds it once."""
        rows, scale = quantise_rows(array)
        return self.constant(rows).to(FLOAT) * self.constant(scale)

    def embed(self, table: Tensor, ids: Value) -> Value:
        """Return rows of a table by number."""
        if not self.int8 or table.numel() < MIN_QUANTISED:
            return self.weight(table).gather(ids)
        key = ("table", table.data_ptr(), tuple(table.shape))
        if key not in self._quantised_tables:
            self._kept.append(table)
            quantised = quantise_rows(table.detach().float().cpu().numpy())
            self._quantised_tables[key] = (self.constant(quantised[0]), self.constant(quantised[1]))
        rows, scale = self._quantised_tables[key]
        return rows.gather(ids).to(FLOAT) * scale.gather(ids)

    def linear(self, x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
        """Return W x + b, W (outputs, inputs) as PyTorch has it."""
        product = x @ self.weight(weight, transpose=True)
        return product if bias is None else product + self.weight(bias)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Return values side by side along an axis."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis)

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Return the first value where a condition holds, else the second."""
        of = yes if isinstance(yes, Value) else no
        assert isinstance(of, Value)
        return self.op("Where", condition, of.like(yes), of.like(no), dtype=of.dtype)

    def range(self, stop: Value, start: int = 0) -> Value:
        """Return the whole numbers from `start` up to a size (1,)."""
        one = self.constant(1, INT)
        return self.op("Range", self.constant(start, INT), stop.squeeze(0), one)

    def steps(self, data: Value) -> Value:
        """Return the numbers (T,) of the steps of rows (B, T, ...)."""
        return self.range(data.size(1))

    def cache(self, key: object, make: Callable[[], V]) -> V:
        """Return a value that is written once, however many parts need it."""
        if key not in self._cached:
            self._cached[key] = make()
        found: V = self._cached[key]
        return found

    def to_model(self, metadata: dict[str, str]) -> "onnx.ModelProto":
        """Return the checked model."""
        inputs = [_describe(name, dtype, shape) for name, (dtype, shape) in self.inputs.items()]
        outputs = [_describe(n, value.dtype, shape) for n, (value, shape) in self.outputs.items()]
        used = set(_names_read(self.nodes))
        weights = [one for one in self.initialisers if one.name in used]
        graph = onnx.helper.make_graph(self.nodes, "weft", inputs, outputs, weights)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="weft"
        )
        model.ir_version = IR_VERSION
        onnx.helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return model


def _names_read(nodes: Iterable["onnx.NodeProto"]) -> Iterator[str]:
    """Yield the names that nodes read, those in their own graphs among them."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _names_read(attribute.g.node)


def _describe(
    name: str, dtype: np.dtype[Any], shape: Sequence[str | int] | None
) -> "onnx.ValueInfoProto":
    kind = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return onnx.helper.make_tensor_value_info(name, kind, None if shape is None else list(shape))


def quantise_rows(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return int8 rows and the float32 scale of each, the largest of a row being ±127."""
    scale = np.abs(array).max(-1, keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.round(array / scale).astype(np.int8), scale


@dataclass(frozen=True, eq=False)
class Steps:
    """Rows of steps, padded on the right: what `Padded` is to PyTorch. No row is empty."""

    data: Value  # (B, T, ...)
    lengths: Value  # (B,)
    second: Value | None = None  # (B,) the step where a second text begins

    @property
    def graph(self) -> Graph:
        return self.data.graph

    @cached_property
    def mask(self) -> Value:
        """(B, T) True at real steps."""
        graph = self.graph
        return graph.cache(
            ("mask", self.lengths.name),
            lambda: graph.steps(self.data) < self.lengths.unsqueeze(1),
        )

    @cached_property
    def bias(self) -> Value:
        """(B, 1, T) what is added to attention scores: nothing at real steps."""
        graph = self.graph
        return graph.cache(
            ("bias", self.lengths.name),
            lambda: graph.where(self.mask, graph.constant(0.0, FLOAT), MASKED).unsqueeze(1),
        )

    def with_data(self, data: Value, axes: int = 3) -> "Steps":
        """Same rows, new contents (B, T, ...) of so many axes; padding is zero."""
        mask = self.mask.unsqueeze(*range(2, axes)) if axes > 2 else self.mask
        return replace(self, data=self.graph.where(mask, data, 0))


def reverse_steps(x: Steps) -> Steps:
    """Reverse the real steps of each row (B, T, E)."""
    data = x.graph.op("ReverseSequence", x.data, x.lengths, batch_axis=0, time_axis=1)
    return Steps(data, x.lengths)


Emitter = Callable[..., Any]
E = TypeVar("E", bound=Emitter)
EMITTERS: dict[type, Emitter] = {}


def emits(*kinds: type) -> Callable[[E], E]:
    """Register the function that writes the nodes of parts of these classes.

    It is called with the graph, the part and what the part is called with, tensors as Values and
    Padded as Steps, and returns its output in evaluation mode.
    """

    def register(function: E) -> E:
        EMITTERS.update(dict.fromkeys(kinds, function))
        return function

    return register


def emitter_of(part: object) -> Emitter:
    """Return the function that writes the nodes of a part, by its class."""
    if type(part) not in EMITTERS:
        raise UserError(
            f"{describe_part(part)} has no ONNX nodes, so a model with it cannot be exported. "
            "Use another part, or write its nodes with @weft.export.onnx.emits."
        )
    return EMITTERS[type(part)]


def describe_part(part: object) -> str:
    """Return the registered name of a part, or the name of its class."""
    cls = type(part)
    for kind in registry.FOLDERS:
        for name, one in registry.parts(kind).items():
            if (one.module, one.attribute) == (cls.__module__, cls.__name__):
                return f"The {kind} '{name}'"
    return f"The part {cls.__module__}:{cls.__name__}"
