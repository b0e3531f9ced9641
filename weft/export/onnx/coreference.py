"""Nodes of coreference: what each word needs to be compared with others; the pairs are NumPy's.

B rows   T words   H width of a state   D width of the layer of pairs   S of the layer of spans
"""

import numpy as np
from torch import Tensor, nn

from weft.decode.heads.semantics.coreference import WordCoreferenceHead
from weft.export.onnx.graph import Graph, Steps, emits
from weft.export.onnx.heads import Outputs


@emits(WordCoreferenceHead)
def mentions(graph: Graph, part: WordCoreferenceHead, states: Steps) -> Outputs:
    words = states.with_data(states.data).data
    parts: dict[str, nn.Module] = {
        "queries": part.rough, "pair_words": part.pairs.word,
        "pair_antecedents": part.pairs.antecedent, "span_heads": part.spans.head,
        "span_words": part.spans.word,
    }  # fmt: skip
    logits = graph.run(part.mention, words).squeeze(2)
    outputs: Outputs = {"words": (words, ("B", "T", "H")), "mentions": (logits, ("B", "T"))}
    for name, module in parts.items():
        outputs[name] = (graph.run(module, words), ("B", "T", f"{name}_width"))
    return outputs


def mention_tables(part: WordCoreferenceHead) -> dict[str, np.ndarray]:
    """Return the weights by which pairs of words, and words of spans, are scored."""
    pairs, spans = part.pairs, part.spans
    (layer,) = (one for one in spans.layers if isinstance(one, nn.Linear))
    first, second = (one for one in spans.convolutions if isinstance(one, nn.Conv1d))
    tensors: dict[str, Tensor | None] = {
        "pair.product": pairs.product.weight, "pair.features": pairs.features.weight,
        "pair.score": pairs.score.weight[0], "pair.bias": pairs.score.bias,
        "span.distance": spans.table.weight, "span.weight": layer.weight, "span.bias": layer.bias,
        "span.first": first.weight, "span.first_bias": first.bias,
        "span.second": second.weight, "span.second_bias": second.bias,
    }  # fmt: skip
    return {
        name: tensor.detach().float().cpu().contiguous().numpy()
        for name, tensor in tensors.items()
        if tensor is not None
    }
