"""The peer of bench/export.py: MiniLM of transformers, traced by torch.onnx, in onnxruntime.

B rows   T steps
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import onnxruntime
import torch
from transformers import AutoModel, AutoTokenizer

from weft.convert.locate import locate
from weft.export.runtime.session import num_threads

BATCH, LONGEST = 32, 256
NAMES = ["input_ids", "attention_mask"]


class LastStates(torch.nn.Module):
    """The states of the last layer as the only output."""

    def __init__(self, network: torch.nn.Module):
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.network(input_ids, attention_mask).last_hidden_state
        return states


def make_peer(place: Path) -> Callable[[Sequence[str]], None]:
    """Return a function that encodes texts, similar lengths together, and takes their means."""
    folder = locate("minilm")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    example = tokenizer(["a fine film", "the soup"], padding=True, return_tensors="pt")
    axes = {name: {0: "B", 1: "T"} for name in (*NAMES, "states")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, about shapes
        torch.onnx.export(
            LastStates(network), tuple(example[name] for name in NAMES), place / "peer.onnx",
            dynamo=False, opset_version=17, input_names=NAMES, output_names=["states"],
            dynamic_axes=axes,
        )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as the export has it
    session = onnxruntime.InferenceSession(
        str(place / "peer.onnx"), options, providers=["CPUExecutionProvider"]
    )

    def encode(texts: Sequence[str]) -> None:
        ordered = sorted(texts, key=len)
        for at in range(0, len(ordered), BATCH):
            batch = tokenizer(
                ordered[at : at + BATCH], padding=True, truncation=True, max_length=LONGEST,
                return_tensors="np",
            )  # fmt: skip
            (states,) = session.run(None, {name: batch[name] for name in NAMES})
            mask = batch["attention_mask"][..., None]
            (states * mask).sum(1) / mask.sum(1)

    return encode
