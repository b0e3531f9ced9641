"""How fast is a translation written on a processor? Weft, transformers and CTranslate2, one model.

    pip install -r bench/requirements.txt
    python bench/decoding.py --threads 2 --repeats 9 --record decoding_cpu

A Marian-shaped Transformer (6+6 layers of 512, 8 heads, perceptrons of 2048, one table) with
random weights, the same in all three, writes with a beam of five. Random weights never end a
sentence by themselves, so every sentence of a batch is made as long as its longest source: the
same number of steps for all. The ways take turns; ratios are taken within each turn. Sentences
are equal where all ids are; random weights make beams nearly tie now and then, so the distance of
the scores is printed as well.
"""

import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from record import Record, interleaved, options, ratios, spread
from torch import Tensor

from weft.batch import Padded
from weft.decode.decoders.transformer import Seq2SeqTransformerDecoder as Decoder
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.search.search import Constraints, SearchSettings
from weft.encode.transformer import TransformerEncoder as Encoder

END, WIDTH, LAYERS, HEADS, FEED = 0, 512, 6, 8, 2048
Found = list[tuple[list[int], float]]  # ids and score of the best sequence of each row


@dataclass(frozen=True)
class Batch:
    """Source ids of some sentences; all targets get `steps` words."""

    rows: list[list[int]]
    steps: int

    def padded(self, pad: int) -> Padded:
        lengths = torch.tensor([len(row) for row in self.rows])
        data = torch.full((len(self.rows), int(lengths.max())), pad)
        for place, row in zip(data, self.rows, strict=True):
            place[: len(row)] = torch.tensor(row)
        return Padded(data, lengths)


def batches(count: int, size: int, vocabulary: int, seed: int = 3) -> list[Batch]:
    """Sentences of 8 to 40 words, those of like length together."""
    make = torch.Generator().manual_seed(seed)
    lengths = torch.randint(8, 41, (count * size,), generator=make).sort().values.tolist()
    rows = [
        [*torch.randint(1, vocabulary - 1, (n - 1,), generator=make).tolist(), END] for n in lengths
    ]
    return [Batch(rows[i : i + size], len(rows[i + size - 1])) for i in range(0, len(rows), size)]


def marian(vocabulary: int) -> Any:
    """The model as transformers builds it; the last entry is padding, and never comes."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", LAYERS), ("attention_heads", HEADS), ("ffn_dim", FEED))
    }
    config = MarianConfig(
        vocab_size=vocabulary, d_model=WIDTH, **sides, activation_function="relu",
        scale_embedding=True, max_position_embeddings=512, init_std=0.05, eos_token_id=END,
        pad_token_id=vocabulary - 1, decoder_start_token_id=vocabulary - 1,
        forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):  # they begin at zero, where a lost one would not show
                weight.normal_(std=0.05)
        model.final_logits_bias.normal_(std=0.5)[0, -1] = -1e4
    return model


class Weft:
    """Our encoder and decoder with Marian's weights."""

    def __init__(self, theirs: Any, weights: Any = "float32"):
        self.weights = weights
        vocabulary, inner = theirs.config.vocab_size, theirs.model
        shape: dict[str, Any] = {
            "hidden": WIDTH, "layers": LAYERS, "heads": HEADS, "feed_forward": FEED, "norm": "post",
            "activation": "relu",
        }  # fmt: skip
        self.encoder = Encoder(WIDTH, **shape).eval()
        self.decoder = Decoder(vocabulary, WIDTH, **shape).eval()
        with torch.no_grad():
            self.decoder.words.table.weight.copy_(inner.shared.weight)
            self.decoder.words.bias.copy_(theirs.final_logits_bias[0])  # type: ignore[union-attr]
        for ours, other in ((self.encoder, inner.encoder), (self.decoder, inner.decoder)):
            # Marian's waves are ours with the sines first.
            ours.positions.table = other.embed_positions.weight.detach().clone()
            for block, layer in zip(ours.blocks, other.layers, strict=True):
                _filled(block, layer)
        self.head = Seq2SeqHead(self.decoder, SearchSettings(), vocabulary - 1, END).eval()
        self.pad = vocabulary - 1

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Found:
        source = batch.padded(self.pad)
        vectors = self.decoder.words.table(source.data) * WIDTH**0.5  # (B, S, E)
        memory = self.encoder(source.with_data(vectors))
        settings = SearchSettings(
            num_beams=5,
            max_length=batch.steps,
            length_normalisation="length",
            length_penalty=1.0,
            weight_dtype=self.weights,
        )
        found = self.head(memory).generate(settings, Constraints(forbidden=[END, self.pad]))
        return [(row[0].ids, row[0].score) for row in found]


def _filled(block: Any, layer: Any) -> None:
    """One layer of Marian's into one of our blocks."""
    pairs = [
        (block.feed_in, layer.fc1),
        (block.feed_out, layer.fc2),
        (block.feed_norm, layer.final_layer_norm),
        (block.attention_norm, layer.self_attn_layer_norm),
    ]
    looks = [(block.attention, layer.self_attn)]
    if hasattr(layer, "encoder_attn"):
        looks.append((block.cross, layer.encoder_attn))
        pairs.append((block.cross_norm, layer.encoder_attn_layer_norm))
    for ours, theirs in looks:
        pairs += [
            (ours.query, theirs.q_proj),
            (ours.key, theirs.k_proj),
            (ours.value, theirs.v_proj),
            (ours.output, theirs.out_proj),
        ]
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())


class Transformers:
    """The library's own `generate`; keeping the scores takes time, and is not timed."""

    def __init__(self, model: Any):
        self.model, self.scores = model, True

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Found:
        source = batch.padded(self.model.config.pad_token_id)
        out = self.model.generate(
            input_ids=source.data, attention_mask=source.mask.long(), num_beams=5, do_sample=False,
            min_new_tokens=batch.steps, max_new_tokens=batch.steps, return_dict_in_generate=True,
            output_scores=self.scores, early_stopping=True, length_penalty=1.0,
        )  # fmt: skip
        ids: Tensor = out.sequences[:, 1:]
        scores = out.sequences_scores.tolist() if self.scores else [0.0] * len(ids)
        return list(zip(ids.tolist(), scores, strict=True))


class CTranslate2:
    """The compiled library of OpenNMT, in fp32."""

    def __init__(self, model: Any, folder: Path, threads: int, kind: str = "float32"):
        import ctranslate2
        from ctranslate2.converters.transformers import MarianMTLoader

        names = [f"t{i}" for i in range(model.config.vocab_size - 1)]
        names[END], names[1] = "</s>", "<unk>"
        spec = MarianMTLoader().get_model_spec(model)
        spec.register_source_vocabulary(names)
        spec.register_target_vocabulary(names)
        for name, token in (("eos", END), ("unk", 1), ("bos", END), ("decoder_start", END)):
            setattr(spec.config, f"{name}_token", names[token])
        spec.config.add_source_eos = False
        spec.validate()
        spec.optimize(quantization=kind)
        folder.mkdir()
        spec.save(str(folder))
        self.names = names
        self.ids = {name: i for i, name in enumerate(names)}
        self.translator = ctranslate2.Translator(
            str(folder), "cpu", compute_type=kind, inter_threads=1, intra_threads=threads
        )

    def __call__(self, batch: Batch) -> Found:
        texts = [[self.names[i] for i in row] for row in batch.rows]
        out = self.translator.translate_batch(
            texts, beam_size=5, min_decoding_length=batch.steps, max_decoding_length=batch.steps,
            length_penalty=1.0, return_scores=True, max_input_length=0,
        )  # fmt: skip
        return [([self.ids[t] for t in one.hypotheses[0]], one.scores[0]) for one in out]


def seconds(way: Callable[[Batch], Found], work: list[Batch]) -> float:
    begun = time.perf_counter()
    for batch in work:
        way(batch)
    return time.perf_counter() - begun


def agreement(one: Found, other: Found) -> dict[str, Any]:
    """How many sentences are the same, and how far the scores of those are apart."""
    same = [abs(a[1] - b[1]) for a, b in zip(one, other, strict=True) if a[0] == b[0]]
    apart = [abs(a[1] - b[1]) for a, b in zip(one, other, strict=True) if a[0] != b[0]]
    return {
        "equal": len(same),
        "of": len(one),
        "score_distance": max(same, default=0.0),
        "score_distance_of_others": max(apart, default=0.0),
    }


def main() -> None:
    parser = options(__doc__, repeats=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=58101)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--int8", action="store_true", help="also with weights of 8 bits")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    record = Record(given.record)
    model = marian(given.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        peers: dict[str, Any] = {"weft": Weft(model), "transformers": Transformers(model)}
        if given.int8:
            peers["weft int8"] = Weft(model, "int8")
        if find_spec("ctranslate2"):
            for kind in ("float32", "int8") if given.int8 else ("float32",):
                name = "ctranslate2" if kind == "float32" else f"ctranslate2 {kind}"
                # A copy: its converter quantises the weights that it is given in place.
                own = copy.deepcopy(model)
                peers[name] = CTranslate2(own, Path(folder) / kind, given.threads, kind)
        for size in given.sizes:
            work = batches(5 if size == 1 else 1, size, given.vocabulary)
            _compared(record, peers, work, size, given)


def _compared(record: Record, peers: dict, work: list[Batch], size: int, given: Any) -> None:
    sentences, steps = size * len(work), sum(batch.steps for batch in work)
    peers["transformers"].scores = True
    found = {name: [one for batch in work for one in way(batch)] for name, way in peers.items()}
    peers["transformers"].scores = False
    others = [name for name in peers if name != "weft"]
    for name in others:
        record.line(f"batch {size}: same as {name}", **agreement(found["weft"], found[name]))
    ways = {name: partial(seconds, way, work) for name, way in peers.items()}
    times = interleaved(ways, given.repeats)
    shape = {"batch": size, "threads": given.threads, "vocabulary": given.vocabulary, "beam": 5}
    for name, values in times.items():
        rate = spread([sentences / value for value in values], 2)
        a_step = round(1000 * spread(values, 6)["median"] / steps, 2)
        record.line(f"batch {size}: {name}", **shape, sentences_per_second=rate, ms_per_step=a_step)
    for name in others:
        ratio = ratios(times[name], times["weft"])
        record.line(f"batch {size}: weft, times {name}", **shape, ratio=ratio)


if __name__ == "__main__":
    main()
