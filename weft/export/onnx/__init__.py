"""Models as ONNX graphs: every part writes its own nodes, nothing is traced."""

import weft.export.onnx.attend
import weft.export.onnx.coreference
import weft.export.onnx.decoders.convolutional
import weft.export.onnx.decoders.language
import weft.export.onnx.elmo
import weft.export.onnx.embed
import weft.export.onnx.encode
import weft.export.onnx.grid
import weft.export.onnx.heads
import weft.export.onnx.image
import weft.export.onnx.layers
import weft.export.onnx.model
import weft.export.onnx.pair
import weft.export.onnx.pool
import weft.export.onnx.roles
import weft.export.onnx.trees  # noqa: F401  (imported for what they register)
from weft.export.onnx.graph import Graph as Graph
from weft.export.onnx.graph import Steps as Steps
from weft.export.onnx.graph import Value as Value
from weft.export.onnx.graph import emits as emits
