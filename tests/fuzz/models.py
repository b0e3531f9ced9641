"""Targets: every file of a model folder, and of the folders that `weft convert` reads."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.harness import Files, Target, register

TEXTS = ["the good film 7", "a bad plot, ⟨déjà vu⟩", ""]
SIZES = {"hidden": 8, "layers": 1, "heads": 2, "feed_forward": 12, "max_positions": 16}
LABELS = {"0": "cold", "1": "warm"}
WORDS = ("the", "film", "was", "good", "bad", "a", "b", "c", "d", "##s", ".", ",")
PARTS = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
TRAINING = {"train.epochs": 1, "train.batch_size": 8, "train.threads": 1, "train.ema_decay": 0.0}


def _files(folder: Path) -> Files:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found)}


def _table(folder: Path) -> Path:
    path = folder / "train.tsv"
    words = ("film", "plot", "cast", "score")
    rows = [
        f"{'good' if i % 2 else 'bad'}\tthe {words[i % 4]} was {'good' if i % 2 else 'bad'} {i}\n"
        for i in range(24)
    ]
    path.write_text("".join(rows), "utf-8")
    return path


def _columns(folder: Path) -> Path:
    path = folder / "train.conll"
    row = "The O\nfilm B-X\nof I-X\nAnn B-Y\nwas O\ngood{0} O\n\n"
    path.write_text("".join(map(row.format, range(12))), "utf-8")
    return path


def _lines(folder: Path) -> Path:
    path = folder / "train.txt"
    path.write_text("".join(f"the film of Ann was good and {i}\n" for i in range(24)), "utf-8")
    return path


def _trained(
    recipe: str, data: Callable[[Path], Path], **settings: Any
) -> Callable[[], list[Files]]:
    """What makes the folder of a small model."""

    def seeds() -> list[Files]:
        import weft

        sizes = {key.replace("__", "."): value for key, value in settings.items()}
        with tempfile.TemporaryDirectory() as scratch:
            config = weft.recipe(recipe).with_values(
                {
                    "data.train": str(data(Path(scratch))),
                    "data.golden_examples": 2,
                    **TRAINING,
                    **sizes,
                },
                "fuzz",
            )
            weft.train(config, Path(scratch) / "run", quiet=True, device="cpu")
            return [_files(Path(scratch) / "run" / "model")]

    return seeds


def _load(folder: Path) -> None:
    """Load a model as `weft predict` does, and ask it something."""
    import weft

    predictor = weft.load(folder, device="cpu")
    predictor(TEXTS)


def _embed(folder: Path) -> None:
    """Convert a checkpoint as `weft convert` does."""
    from weft.run.convert import convert

    with tempfile.TemporaryDirectory() as scratch:
        convert(str(folder), Path(scratch) / "model")


def _checkpoint(sentence: bool) -> Callable[[], list[Files]]:
    """What makes a small BERT as `transformers` or `sentence-transformers` would save it."""

    def seeds() -> list[Files]:
        import torch
        from safetensors.torch import save_file

        from weft import registry
        from weft.convert.families import BERT
        from weft.convert.tokenizer import BERT as MARKS
        from weft.convert.tokenizer import read

        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            entries = [*MARKS.values(), *WORDS]
            (folder / "vocab.txt").write_text("\n".join(entries) + "\n", "utf-8")
            spec = registry.fill("embedder", {"kind": "bert", **SIZES}, ("vocabulary_size",))
            network = registry.build("embedder", spec, vocabulary_size=len(entries))
            known = network.state_dict()
            tensors = {theirs: known[ours] for theirs, ours in BERT.table(SIZES["layers"]).items()}
            config = BERT.to_config(spec, len(entries))
            if sentence:
                config |= {"architectures": ["BertModel"]}
                _write(folder, "modules.json", [
                    {"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
                    for i, (kind, path) in enumerate(PARTS)
                ])  # fmt: skip
                _write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
                said = {"max_seq_length": 9, "do_lower_case": True}
                _write(folder, "sentence_bert_config.json", said)
                _write(folder, "config_sentence_transformers.json", {"prompts": {}})
            else:
                config |= {"architectures": ["BertForSequenceClassification"], "id2label": LABELS}
                tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
                size = SIZES["hidden"]
                tensors["bert.pooler.dense.weight"] = torch.zeros(size, size)
                tensors["bert.pooler.dense.bias"] = torch.zeros(size)
                tensors["classifier.weight"] = torch.zeros(len(LABELS), size)
                tensors["classifier.bias"] = torch.zeros(len(LABELS))
            _write(folder, "config.json", config)
            _write(folder, "tokenizer_config.json", {"do_lower_case": True, "cls_token": "[CLS]"})
            save_file({name: t.contiguous() for name, t in tensors.items()},
                      folder / "model.safetensors")  # fmt: skip
            bare = _files(folder)
            whole = read(folder, "bert").to_json().encode()
        return [bare, {**bare, "tokenizer.json": whole}]

    return seeds


def _gpt2() -> list[Files]:
    """A small GPT-2 with the files of its own tokenizer."""
    import torch
    from safetensors.torch import save_file
    from tokenizers.pre_tokenizers import ByteLevel

    entries = [*sorted(ByteLevel.alphabet()), "he", "Ġt", "<|endoftext|>"]
    size = SIZES["hidden"]
    shapes = {"attn.c_attn": (size, 3 * size), "attn.c_proj": (size, size)}
    shapes |= {"mlp.c_fc": (size, 4 * size), "mlp.c_proj": (4 * size, size)}
    tensors = {"wte.weight": torch.ones(len(entries), size), "wpe.weight": torch.ones(16, size)}
    for name, shape in shapes.items():
        tensors |= {
            f"h.0.{name}.weight": torch.ones(shape),
            f"h.0.{name}.bias": torch.ones(shape[1]),
        }
    for name in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        tensors |= {f"{name}.{part}": torch.ones(size) for part in ("weight", "bias")}
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": size}
    config |= {"n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": len(entries)}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(folder, "config.json", config)
        _write(folder, "vocab.json", {entry: i for i, entry in enumerate(entries)})
        (folder / "merges.txt").write_text("#version: 0.2\nh e\nĠ t\n", "utf-8")
        _write(folder, "added_tokens.json", {"<|endoftext|>": len(entries) - 1})
        _write(folder, "special_tokens_map.json", {"eos_token": "<|endoftext|>"})
        named = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
        save_file(named, folder / "model.safetensors")
        torch.save(named, folder / "pytorch_model.bin")
        whole = _files(folder)
    # A folder with both holds the same weights twice; with one alone, each is what is read.
    return [{n: data for n, data in whole.items() if n != kind} for kind in
            ("model.safetensors", "pytorch_model.bin")]  # fmt: skip


def _write(folder: Path, name: str, value: Any) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")


MODELS = {
    "classifier": _trained(
        "bilstm-attention", _table, embedder__width=5, encoder__hidden=3, tokenizer__min_count=1
    ),
    "transformer": _trained(
        "transformer", _table, embedder__width=8, encoder__layers=1, encoder__heads=2
    ),
    "tagger": _trained(
        "tagger-bilstm-crf", _columns, embedder__0__width=5, encoder__hidden=3,
        embedder__1__filters=[[2, 3]], tokenizer__min_count=1,
    ),
    "tfidf": _trained("tfidf", _table),
    "fasttext": _trained("fasttext", _table, classic__width=5, classic__buckets=64),
    "crf": _trained("crf", _columns),
    "kneser-ney": _trained("kneser-ney", _lines, classic__order=3),
    "gpt": _trained(
        "gpt", _lines, decoder__hidden=8, decoder__layers=1, decoder__heads=2, task__window=16
    ),
    "seq2seq": _trained(
        "seq2seq-attention", _table, embedder__width=5, encoder__hidden=4, decoder__hidden=4,
        decoder__width=5,
    ),
}  # fmt: skip

for name, seeds in MODELS.items():
    register(Target(f"model-{name}", seeds, _load, seconds=10))
register(Target("checkpoint", _checkpoint(sentence=False), _embed, seconds=10))
register(Target("sentence-checkpoint", _checkpoint(sentence=True), _embed, seconds=10))
register(Target("checkpoint-gpt2", _gpt2, _embed, seconds=10))
