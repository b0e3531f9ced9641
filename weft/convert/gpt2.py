"""What is peculiar to GPT-2: matrices stored the other way round, three of them as one.

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
    """Weights as GPT-2 stores them -> ours."""
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
    """Ours -> as GPT-2 stores them."""
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
    """What a tensor of embedder 'gpt' is called in the decoder 'gpt'."""
    return DECODER_NAMES.get(name, name)


def embedder_name(name: str) -> str:
    """What a tensor of decoder 'gpt' is called in the embedder 'gpt'."""
    back = {ours: theirs for theirs, ours in DECODER_NAMES.items()}
    return back.get(name, name)
