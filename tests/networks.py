"""Small networks of the kinds that are pre-trained, with random weights, as predictors."""

import torch

from weft import registry
from weft.model import Model
from weft.predict import Predictor
from weft.predict.neural import Neural, indexer
from weft.tasks.classify import Classes
from weft.tasks.masked import Lexicon
from weft.tasks.task import built
from weft.text.example import Example, Layers
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.vocabulary import CLS, SEP, SPECIALS
from weft.train.runtime import on

LINES = ["the bank of the river was steep", "a bank lends money", "the dog ran over the bank"]
LARGE = 7  # times what BERT begins with, so that the words of a text matter
WORDPIECE = {"kind": "wordpiece", "size": 400, "minimum": 1}
SIZES = {"hidden": 12, "layers": 3, "heads": 2, "limit": 24}
FRAMED = {"cls": SPECIALS.index(CLS), "sep": SPECIALS.index(SEP)}
HEADS = {"masked": "masked", "embed": "none", "span": "span", "tag": "crf"}
POOLS = {"embed": "mean", "span": "none", "tag": "none"}


def tokenizer() -> Tokenizer:
    kind = registry.build("tokenizer", WORDPIECE)
    return kind.train(iter(LINES * 5))


def network(task="classify", embedder="bert", pair="", encoder="none", **own):
    """A predictor whose network was never trained; the same one every time."""
    torch.manual_seed(1)
    words = tokenizer()
    config = {
        "task": {"kind": task},
        "tokenizer": WORDPIECE,
        "data": {"limit": 0, "truncate": "head", "text": "", "label": ""},
        "embedder": {"kind": embedder, **SIZES, **(FRAMED if embedder == "bert" else {}), **own},
        "encoder": {"kind": encoder} if isinstance(encoder, str) else encoder,
        "pool": {"kind": POOLS.get(task, "cls" if embedder == "bert" else "last")},
        "head": {"kind": HEADS.get(task, "linear")},
        **({"pair": {"kind": pair}} if pair else {}),
    }
    made = built(config)
    space = _space(task, made, words)
    model = Model(config, vocabulary_size=len(words), outputs=space.size)
    with torch.no_grad():
        for p in model.embedders.parameters():
            p.mul_(LARGE if p.dim() == 2 else 1)
    config |= {name: part for name, part in model.parts.items() if name != "task"}
    return Predictor(
        Neural(model, indexer(model, words, 0, "head"), on("cpu")), made, space, config
    )  # fmt: skip


def _space(task, made, words):
    if task == "masked":
        return Lexicon(words)
    if task == "tag":
        return made.space([Example("a bank", Layers({"upos": ("DET", "NOUN")}, "upos"))])
    if task == "span":
        return made.load_space({"longest": 7, "no_answer": False, "threshold": 0.0})
    return made.load_space({}) if task == "embed" else Classes(("no", "yes"))
