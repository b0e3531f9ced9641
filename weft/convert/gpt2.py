"""What is peculiar to GPT-2: matrices stored the other way round, three of them as one.

H hidden width
"""

import re

import torch
from torch import Tensor

from weft.convert.tensors import Tensors

THREE = re.compile(r"(.*attention)\.three\.(weight|bias)")
TURNED = re.compile(r"blocks\.\d+\.(attention\.(output|three)|feed_in|feed_out)\.weight")
# The names of embedder 'gpt' -> those of decoder 'gpt'.
DECODER = {"table.weight": "words.table.weight", "positions.weight": "positions.table"}
ORDER = ("query", "key", "value")


def apart(weights: Tensors) -> Tensors:
    """Weights as GPT-2 stores them -> ours."""
    out = {}
    for name, tensor in weights.items():
        turned = tensor.T.contiguous() if TURNED.fullmatch(name) else tensor
        if match := THREE.fullmatch(name):
            for one, part in zip(ORDER, turned.chunk(3), strict=True):  # (H, H) or (H,)
                out[f"{match[1]}.{one}.{match[2]}"] = part.contiguous()
        else:
            out[name] = turned
    return out


def together(weights: Tensors) -> Tensors:
    """Ours -> as GPT-2 stores them."""
    out: Tensors = {}
    for name, tensor in weights.items():
        if ".attention.query." in name:
            parts: list[Tensor] = [weights[name.replace(".query.", f".{one}.")] for one in ORDER]
            name, tensor = name.replace(".query.", ".three."), torch.cat(parts)  # (3*H, H)
        elif ".attention.key." in name or ".attention.value." in name:
            continue
        out[name] = tensor.T.contiguous() if TURNED.fullmatch(name) else tensor
    return out


def decoder_name(name: str) -> str:
    """What a tensor of embedder 'gpt' is called in the decoder 'gpt'."""
    return DECODER.get(name, name)


def embedder_name(name: str) -> str:
    """What a tensor of decoder 'gpt' is called in the embedder 'gpt'."""
    back = {ours: theirs for theirs, ours in DECODER.items()}
    return back.get(name, name)
