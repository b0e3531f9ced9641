"""Small checkpoints with random weights, made by `transformers`, for parity with it."""

import json
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PIECES = "the bank of a river was steep and she is on money ##s ##ed it good bad answer . , ? !"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TEXTS = ["The bank of the river was steep.", "She banked on it!", "a", "bad answers, good money?"]
BERT = {"hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 3}
BERT |= {"intermediate_size": 19, "max_position_embeddings": 23}
SIZES = {
    "bert": BERT,
    "electra": {**BERT, "embedding_size": 7},
    "roberta": {
        **BERT,
        "max_position_embeddings": 59,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "layer_norm_eps": 1e-5,
    },
    "distilbert": {"dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 19}
    | {"max_position_embeddings": 23},
    "gpt2": {"n_embd": 12, "n_layer": 3, "n_head": 3, "n_positions": 59},
}
TITLES = {
    "bert": "Bert",
    "electra": "Electra",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "gpt2": "GPT2",
}
ENCODERS = ("bert", "distilbert", "roberta", "electra")
LABELS = {"id2label": {0: "cold", 1: "warm", 2: "hot"}}
LABELS |= {"label2id": {name: i for i, name in LABELS["id2label"].items()}}
TAGS = {"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "label2id": {"O": 0, "B-X": 1, "I-X": 2}}
# Every class that comes in with its head and goes out again as what it was; the guide lists them.
CLASSES = [
    *((family, "Model", {}) for family in ENCODERS),
    *((family, "ForMaskedLM", {}) for family in ENCODERS),
    ("bert", "ForPreTraining", {}),
    ("bert", "ForNextSentencePrediction", {}),
    *((family, "ForSequenceClassification", LABELS) for family in (*ENCODERS, "gpt2")),
    *((family, "ForTokenClassification", TAGS) for family in (*ENCODERS, "gpt2")),
    *((family, "ForQuestionAnswering", {}) for family in ENCODERS),
    ("gpt2", "LMHeadModel", {}),
    ("gpt2", "LMHeadModel", {"tie_word_embeddings": False}),
]


def name_of(value) -> str:
    """A short name of what a test is given."""
    return value if isinstance(value, str) else "+".join(value)


def task_of(suffix: str) -> str:
    """What `weft convert --task` is told, so that the head comes along."""
    return "masked" if suffix in ("ForMaskedLM", "ForPreTraining") else ""


def vocabulary(family: str) -> dict[str, int]:
    """The entries of a tokenizer of the family."""
    if family in ("roberta", "gpt2"):
        from tokenizers.pre_tokenizers import ByteLevel

        first = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if family == "roberta" else []
        last = ["Ġt", "he", "Ġthe", "er", "ba", "nk", "bank", "Ġbank"]
        last += ["<|endoftext|>"] if family == "gpt2" else []
        entries = [*first, *sorted(ByteLevel.alphabet()), *last]
    else:
        first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
        entries = [*first, *PIECES.split(), *letters]
    return {entry: i for i, entry in enumerate(dict.fromkeys(entries))}


MERGES = ["Ġ t", "h e", "Ġt he", "e r", "b a", "n k", "ba nk", "Ġ bank"]


def write_vocabulary(folder: Path, family: str) -> None:
    """The files of a tokenizer as they were before tokenizer.json."""
    known = vocabulary(family)
    if family in ("roberta", "gpt2"):
        (folder / "vocab.json").write_text(json.dumps(known), "utf-8")
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n", "utf-8")
    else:
        (folder / "vocab.txt").write_text("\n".join(known) + "\n", "utf-8")


def tokenizer(folder: Path, family: str):
    """The tokenizer of the family as `transformers` builds it from those files."""
    if family in ("roberta", "gpt2"):
        kind = getattr(transformers, f"{TITLES[family]}Tokenizer")
        return kind(vocab=vocabulary(family), merges=[tuple(m.split()) for m in MERGES])
    return transformers.BertTokenizer(vocab=vocabulary(family))


def checkpoint(folder: Path, family: str, suffix: str = "Model", **more):
    """A folder with a random network, and the network itself."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer(folder, family)
    made.save_pretrained(folder)
    title = TITLES[family]
    settings = {**SIZES[family], "vocab_size": len(vocabulary(family)), **more}
    if family == "gpt2":
        settings |= {"bos_token_id": settings["vocab_size"] - 1}
        settings |= {"eos_token_id": settings["vocab_size"] - 1}
    config = getattr(transformers, f"{title}Config")(**settings)
    torch.manual_seed(3)
    network = getattr(transformers, title + suffix)(config).eval()
    with torch.no_grad():
        for p in network.parameters():  # biases and norms that are not 0 and 1
            p.add_(0.3 * torch.randn_like(p))
    network.save_pretrained(folder)
    return network, made
