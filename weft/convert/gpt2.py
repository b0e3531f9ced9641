"""GPT-2's layout of weights: matrices transposed; query, key and value fused.

H hidden width
"""

import re

import torch
from torch import Tensor

from weft.convert.tensors import Tensors

FUSED = re.compile(r"(.*attention)\.three\.(weight|bias)")
TRANSPOSED = re.compile(r"blocks\.\d+\.(attention\.(output|three)|feed_in|feed_out)\.weight")
# The names of embedder 'gpt' -> those of decoder 'gpt'.
DECODER_NAMES = {"table.weight": "words.table.weight", "positions.weight": "positions.table"}
QKV = ("query", "key", "value")


def unfuse_qkv(weights: Tensors) -> Tensors:
    """Convert weights from the layout of GPT-2 to ours."""
    out = {}
    for name, tensor in weights.items():
        turned = tensor.T.contiguous() if TRANSPOSED.fullmatch(name) else tensor
        if match := FUSED.fullmatch(name):
            for one, part in zip(QKV, turned.chunk(3), strict=True):  # (H, H) or (H,)
                out[f"{match[1]}.{one}.{match[2]}"] = part.contiguous()
        else:
            out[name] = turned
    return out


def fuse_qkv(weights: Tensors) -> Tensors:
    """Convert weights from our layout to that of GPT-2."""
    out: Tensors = {}
    for name, tensor in weights.items():
        if ".attention.query." in name:
            parts: list[Tensor] = [weights[name.replace(".query.", f".{one}.")] for one in QKV]
            name, tensor = name.replace(".query.", ".three."), torch.cat(parts)  # (3*H, H)
        elif ".attention.key." in name or ".attention.value." in name:
            continue
        out[name] = tensor.T.contiguous() if TRANSPOSED.fullmatch(name) else tensor
    return out


def decoder_name(name: str) -> str:
    """Return the name in decoder 'gpt' of a tensor of embedder 'gpt'."""
    return DECODER_NAMES.get(name, name)


def embedder_name(name: str) -> str:
    """Return the name in embedder 'gpt' of a tensor of decoder 'gpt'."""
    back = {ours: theirs for theirs, ours in DECODER_NAMES.items()}
    return back.get(name, name)
