"""The operators that a graph may consist of, in one version of the standard: those Weft writes."""

OPSET = 21
IR_VERSION = 10
OPERATORS = frozenset({
    *("Abs", "Add", "And", "BitwiseXor", "Cast", "Concat", "ConstantOfShape", "Conv", "Cos"),
    *("CumSum", "Div", "Equal", "Expand", "GRU", "Gather", "GatherElements", "GatherND", "Gelu"),
    *("Greater", "GreaterOrEqual", "Identity", "LSTM", "LayerNormalization", "LeakyRelu", "Less"),
    *("LessOrEqual", "MatMul", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pad", "RNN"),
    *("Range", "ReduceMax", "ReduceSum", "Relu", "Reshape", "Scan", "Shape", "Sigmoid", "Sin"),
    *("Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze"),
    *("Where", "Clip", "Exp", "Log", "ReverseSequence", "ScatterElements"),
    *("ScatterND",),
})  # fmt: skip
