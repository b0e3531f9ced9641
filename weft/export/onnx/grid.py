"""Nodes of grids of tuples: what the first row reads in one graph, each row in a second.

B rows   T words   I implied words   H width of a state   C labels
"""

from weft.decode.heads.semantics.tuple_grid import TupleGridHead
from weft.export.onnx.graph import FLOAT, INT, Graph, Steps, emits
from weft.export.onnx.heads import Outputs


@emits(TupleGridHead)
def first_row(graph: Graph, part: TupleGridHead, states: Steps) -> Outputs:
    implied = graph.weight(part.implied.weight)  # (I, H)
    rows = implied.expand(states.data.size(0), *part.implied.weight.shape)
    return {"grid": (graph.concat([rows, states.data], 1), ("B", "I+T", "H"))}


def write_grid_row(graph: Graph, head: TupleGridHead) -> None:
    """Write the labels of one row of the grid, from what it reads."""
    read = graph.add_input("grid", FLOAT, "B", "I+T", head.score.in_features)
    steps = Steps(read, graph.add_input("counts", INT, "B"))
    x = steps.data
    for block in head.blocks:
        x = graph.run(block, x, steps.bias)
    graph.add_output("states", x, "B", "I+T", "H")
    graph.add_output("logits", graph.run(head.score, x), "B", "I+T", "C")
