"""Nodes of semantic roles: predicates in one graph, the roles of those chosen in a second.

B rows   T words   n chosen predicates   H width of a state   M width for a predicate   S senses
R width of a span's ends
"""

from weft.decode.heads.biaffine import Biaffine
from weft.decode.heads.roles import PredicateLayers, RoleCRFHead, RoleHead, RoleSpanHead
from weft.export.onnx.graph import FLOAT, INT, Graph, Steps, Value, emits
from weft.export.onnx.heads import Outputs


@emits(RoleCRFHead, RoleSpanHead)
def predicates(graph: Graph, part: RoleHead, states: Steps) -> Outputs:
    logits = graph.run(part.predicates, states.data).squeeze(2)
    return {"predicates": (logits, ("B", "T"))}


def write_roles(graph: Graph, head: RoleHead) -> None:
    """Write the scores of the senses and roles of predicates, given by their rows and words."""
    width = head.layers.word.in_features
    states = graph.add_input("states", FLOAT, "B", "T", width)
    rows, words, lengths = (graph.add_input(name, INT, "n") for name in ("rows", "words", "counts"))
    here = graph.op("GatherND", states, graph.concat([rows.unsqueeze(1), words.unsqueeze(1)], 1))
    senses = graph.linear(
        graph.run(head.senses.query, here), head.senses.vectors.weight, head.senses.bias
    )
    graph.add_output("senses", senses, "n", "S")
    steps = _predicate_states(graph, head.layers, states, rows, words, here, lengths)
    if isinstance(head, RoleCRFHead):
        graph.add_output("emissions", graph.run(head.score, steps.data), "n", "T", "C")
        return
    assert isinstance(head, RoleSpanHead)
    first, last = graph.run(head.first, steps.data), graph.run(head.last, steps.data)
    graph.add_output("spans", _all_spans(graph, head.spans, first, last), "n", "T", "T")
    graph.add_output("firsts", first, "n", "T", "R")
    graph.add_output("lasts", last, "n", "T", "R")


def _predicate_states(
    graph: Graph, part: PredicateLayers, states: Value, rows: Value, words: Value, here: Value,
    lengths: Value,
) -> Steps:  # fmt: skip
    """Return the states (n, T, M) of the words of a predicate's row, as its layers see them."""
    usual, marked = part.indicator.weight.detach()
    own = graph.run(part.predicate, here) + graph.weight(usual.clone())  # (n, M)
    is_predicate = graph.steps(states).equals(words.unsqueeze(1)).to(FLOAT)  # (n, T)
    x = graph.run(part.word, states).gather(rows) + own.unsqueeze(1)  # (n, T, M)
    x = x + is_predicate.unsqueeze(2) * graph.weight(marked - usual)
    steps = Steps(x, lengths)
    read = steps.with_data(x.relu())
    return read if part.layers is None else graph.run(part.layers, read)


def _all_spans(graph: Graph, part: Biaffine, first: Value, last: Value) -> Value:
    """Return the biaffine scores (n, T, T) of every first word with every last one."""
    (weight,) = part.weight.detach()  # (R + 1, R + 1)
    turned = last.transpose(0, 2, 1)
    both = graph.linear(first, weight[:-1, :-1].T.contiguous(), weight[-1, :-1].clone()) @ turned
    return both + graph.linear(first, weight[:-1, -1:].T.contiguous(), weight[-1, -1:].clone())
