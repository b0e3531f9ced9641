"""Auto-encoders: vectors of texts, learnt without labels by having to rebuild the texts from them.

B rows   T steps   E embedding width   H width of a text's vector   V vocabulary   M words rebuilt
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from weft import jsonio
from weft.batch import BatchLoader, LabelledBatch, Padded, TokenStore, inference_batches
from weft.batch.indexer import Indexer
from weft.embed.activations import check_sizes
from weft.embed.lookup import Lookup
from weft.encode.pool import LastPool
from weft.encode.rnn import Recurrent
from weft.errors import UserError, unknown_name
from weft.inference.forward import MAX_ROWS, MAX_TOKENS
from weft.runtime import Runtime, seed_everything, select_runtime
from weft.storage import atomic_write, atomic_write_folder, write_text
from weft.tasks.task import Loss
from weft.tensorfile import check_network, read_header
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.word import Word
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import Progress, TrainState

FORMAT = 1
ModelOptions = Mapping[str, Any]  # arguments of Denoising or SequenceToItself
SPECIAL = 2  # PAD and UNK are no words of a bag
UNKNOWN = 1
ADAM = Settings(optimiser="adam", learning_rate=1e-3, epochs=20, clip_norm=5.0)


class Denoising(nn.Module):
    """Vincent et al. (2008): rebuild a bag of words from what is left when some are masked.

    y = s(W x̃ + b) is the vector of the bag x ∈ {0, 1}^V, z = s(Wᵀ y + b') the bag rebuilt, and the
    loss their cross-entropy; `noise` is the share of x that masking sets to 0 in training.
    """

    def __init__(self, vocabulary_size: int, width: int = 100, noise: float = 0.3):
        super().__init__()
        check_sizes("denoising auto-encoder", width=width)
        _check_noise("denoising auto-encoder", noise)
        self.output_size, self.noise = width, noise
        self.weight = nn.Parameter(torch.empty(vocabulary_size, width))
        self.hidden_bias = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        nn.init.xavier_uniform_(self.weight)

    def initialise(self, shares: np.ndarray) -> None:
        """Start from the share of texts each entry is in, so that W need not learn frequencies."""
        odds = torch.from_numpy(shares).float().clamp(1e-6, 1 - 1e-6).logit()
        with torch.no_grad():
            self.bias.copy_(odds)

    def bag(self, source: Padded) -> Tensor:
        """Return multi-hot rows: 1 for each entry a row holds."""
        rows = torch.zeros(len(source), len(self.bias), device=source.data.device)  # (B, V)
        rows.scatter_(1, source.data.masked_fill(~source.mask, 0), 1.0)
        rows[:, :SPECIAL] = 0
        return rows

    def vector(self, source: Padded) -> Tensor:
        """(B, H) the hidden layer of whole bags."""
        return self._hidden(self.bag(source))

    def forward(self, source: Padded) -> Tensor:
        rows = self.bag(source)
        if self.training:
            rows = rows * (torch.rand_like(rows) >= self.noise)
        hidden = self._hidden(rows)  # (B, H)
        scores = F.linear(hidden, self.weight, self.bias)  # (B, V)
        return scores

    def losses(self, scores: Tensor, source: Padded) -> Tensor:
        """(B,) the cross-entropy of each row, summed over the vocabulary."""
        every = F.binary_cross_entropy_with_logits(
            scores[:, SPECIAL:].float(), self.bag(source)[:, SPECIAL:], reduction="none"
        )
        return every.sum(1)

    def _hidden(self, rows: Tensor) -> Tensor:
        return torch.sigmoid(rows @ self.weight + self.hidden_bias)


class SequenceToItself(nn.Module):
    """Dai & Le (2015): an LSTM reads a text to its end, then writes the same text from its state.

    Reader and writer share their weights, so one pass over x1 … xn <end> x1 … xn does both: from
    <end> on, each step predicts the next word. The vector is the state at <end>. `noise` is the
    share of words that are unknown to the reader in training; the writer writes them all.
    """

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 100,
        hidden: int = 128,
        dropout: float = 0.0,
        noise: float = 0.0,
    ):
        super().__init__()
        _check_noise("sequence auto-encoder", noise)
        self.noise = noise
        self.end = vocabulary_size
        self.output_size = hidden
        self.table = Lookup(vocabulary_size + 1, width, dropout)
        self.encoder = Recurrent(width, hidden, bidirectional=False)
        self.pool = LastPool(hidden)
        self.head = nn.Linear(hidden, vocabulary_size + 1)

    def vector(self, source: Padded) -> Tensor:
        """(B, H) the state that has read everything, <end> included."""
        read = Padded(_append_eos(source, self.end, 1), source.lengths + 1)
        vector: Tensor = self.pool(self.encoder(self.table(read)))[0]
        return vector

    def forward(self, source: Padded) -> Tensor:
        twice = Padded(self._twice(source, self._corrupt(source)), 2 * source.lengths + 1)
        states = self.encoder(self.table(twice)).data[self._writing(source)]  # (M, H)
        scores: Tensor = self.head(states)
        return scores

    def losses(self, scores: Tensor, source: Padded) -> Tensor:
        """(B,) minus the log-probability of each whole row."""
        wanted = _append_eos(source, self.end, 1)  # (B, T + 1)
        real = Padded(wanted, source.lengths + 1).mask
        words = F.cross_entropy(scores.float(), wanted[real], reduction="none")  # (M,)
        rows = real.nonzero()[:, 0]
        return words.new_zeros(len(source)).index_add(0, rows, words)

    def _corrupt(self, source: Padded) -> Padded:
        """The rows as the reader sees them: in training, some words are unknown."""
        if not (self.training and self.noise):
            return source
        lost = torch.rand(source.data.shape, device=source.data.device) < self.noise
        return source.with_data(source.data.masked_fill(lost & source.mask, UNKNOWN))

    def _twice(self, source: Padded, read: Padded) -> Tensor:
        """x̃1 … x̃n <end> x1 … xn of each row: what is read, then what is written."""
        once = _append_eos(source, self.end, source.data.shape[1] + 1)  # (B, 2T + 1)
        first = _append_eos(read, self.end, source.data.shape[1] + 1)  # (B, 2T + 1)
        steps = torch.arange(once.shape[1], device=once.device)[None]
        again = steps - source.lengths.to(once.device)[:, None] - 1  # where the writer stands
        second = once.gather(1, again.clamp(min=0))
        last = again < source.lengths.to(once.device)[:, None]
        return torch.where(again < 0, first, second * last)

    def _writing(self, source: Padded) -> Tensor:
        """The steps that predict a word, in the order of the words."""
        steps = torch.arange(2 * source.data.shape[1] + 1, device=source.data.device)
        lengths = source.lengths.to(source.data.device)[:, None]
        return (steps >= lengths) & (steps <= 2 * lengths)


KINDS: dict[str, type[Denoising] | type[SequenceToItself]] = {
    "denoising": Denoising,
    "sequence": SequenceToItself,
}


@dataclass(frozen=True)
class Autoencoder:
    """A trained auto-encoder with everything between a text and its vector."""

    kind: str
    options: ModelOptions  # of its model, besides the vocabulary size
    model: Denoising | SequenceToItself
    indexer: Indexer
    runtime: Runtime

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, H) a vector a text."""
        return self._read(texts, self.model.vector, (len(texts), self.model.output_size))

    def errors(self, texts: Sequence[str]) -> np.ndarray:
        """(texts,) the loss with which each text is rebuilt, in nats."""

        def errors(source: Padded) -> Tensor:
            return self.model.losses(self.model(source), source)

        return self._read(texts, errors, (len(texts),))

    def save(self, folder: str | Path) -> None:
        """One folder: autoencoder.json, weights.safetensors, tokenizer.json."""
        weights = {n: t.detach().cpu().contiguous() for n, t in self.model.state_dict().items()}
        about = {"format": FORMAT, "kind": self.kind, "limit": self.indexer.limit}
        text = json.dumps({**about, "options": self.options}, indent=2)
        with atomic_write_folder(folder) as part:
            with atomic_write(part / "weights.safetensors") as file:
                save_file(weights, file)
            self.indexer.tokenizer.save(part / "tokenizer.json")
            write_text(part / "autoencoder.json", text)

    @staticmethod
    def is_folder(folder: str | Path) -> bool:
        """Return True for a folder that `save` wrote."""
        return (Path(folder) / "autoencoder.json").is_file()

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "Autoencoder":
        """Read back what `save` wrote."""
        path = Path(folder) / "autoencoder.json"
        try:
            about = jsonio.read(path)
            kind, options, limit = str(about["kind"]), dict(about["options"]), about["limit"]
        except OSError as error:
            raise UserError(f"{path}: cannot read the auto-encoder: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not an auto-encoder, or damaged: {error}.") from None
        if kind not in KINDS:
            raise unknown_name("auto-encoder", kind, KINDS, str(path))
        tokenizer = Tokenizer.load(Path(folder) / "tokenizer.json")
        weights = Path(folder) / "weights.safetensors"

        def make() -> Any:
            return KINDS[kind](len(tokenizer), **options)

        try:
            shapes = {name: entry.shape for name, entry in read_header(weights).items()}
            check_network(make, shapes, weights, path.name)
            model = make()
            model.load_state_dict(load_file(weights), strict=True)
        except (SafetensorError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{weights}: missing, damaged or of another model: {reason}") from None
        runtime = select_runtime(device)
        indexer = Indexer(tokenizer, limit=limit)
        return cls(kind, options, model.to(runtime.device).eval(), indexer, runtime)

    def _read(
        self, texts: Sequence[str], take: Callable[[Padded], Tensor], shape: tuple[int, ...]
    ) -> np.ndarray:
        out = np.zeros(shape, np.float32)
        store = _store(self.indexer, texts)
        self.model.eval()
        with torch.inference_mode():
            for batch in inference_batches(store, rows=MAX_ROWS, budget=MAX_TOKENS):
                source = batch.source.to(self.runtime.device)
                out[batch.rows] = take(source).float().cpu().numpy()
        return out


def denoising(
    texts: Sequence[str],
    *,
    width: int = 100,
    noise: float = 0.3,
    vocab_size: int = 10_000,
    min_count: int = 2,
    settings: Settings = ADAM,
    device: str = "auto",
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Autoencoder:
    """Learn a denoising auto-encoder of the texts' bags of words."""
    indexer = Indexer(Word(vocab_size=vocab_size, min_count=min_count).train(texts))
    options = {"width": width, "noise": noise}
    return _train("denoising", options, texts, indexer, settings, device, watch)


def sequence(
    texts: Sequence[str],
    *,
    width: int = 100,
    hidden: int = 128,
    dropout: float = 0.0,
    noise: float = 0.0,
    max_tokens: int = 100,
    vocab_size: int = 10_000,
    min_count: int = 2,
    settings: Settings = ADAM,
    device: str = "auto",
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Autoencoder:
    """Learn a sequence auto-encoder of the texts, each cut to its first `max_tokens` words."""
    indexer = Indexer(
        Word(vocab_size=vocab_size, min_count=min_count).train(texts), limit=max_tokens
    )
    options = {"width": width, "hidden": hidden, "dropout": dropout, "noise": noise}
    return _train("sequence", options, texts, indexer, settings, device, watch)


class _Rebuild:
    """The task of every auto-encoder: the right answer is the input."""

    def __init__(self, model: Denoising | SequenceToItself):
        self.model = model

    def loss(self, scores: Tensor, batch: LabelledBatch) -> Loss:
        return Loss(self.model.losses(scores, batch.source).sum(), len(batch))


def _train(
    kind: str,
    options: ModelOptions,
    texts: Sequence[str],
    indexer: Indexer,
    settings: Settings,
    device: str,
    watch: Callable[[Progress], None],
) -> Autoencoder:
    seed_everything(settings.seed)
    runtime = select_runtime(device, settings.precision)
    size = len(indexer.tokenizer)
    model = KINDS[kind](size, **options)
    store = _store(indexer, texts)
    if isinstance(model, Denoising):
        model.initialise(_noise_fractions(store, size))
    model = model.to(runtime.device)
    batches = BatchLoader(
        store,
        rows=settings.batch_size,
        budget=settings.max_tokens,
        seed=settings.seed,
        epochs=settings.epochs,
    )
    trainee = TrainState.fresh(model, settings)
    for _ in fit(trainee, _Rebuild(model), batches, settings, runtime, watch):
        pass
    return Autoencoder(kind, options, model.eval(), indexer, runtime)


def _check_noise(where: str, noise: float) -> None:
    if not 0 <= noise < 1:
        raise UserError(f"{where}: 'noise' should be from 0 to below 1, got {noise}.")


def _store(indexer: Indexer, texts: Sequence[str]) -> TokenStore:
    store = TokenStore()
    for row in indexer.rows(texts):
        store.append(row.ids, 0)
    return store.close()


def _noise_fractions(store: TokenStore, size: int) -> np.ndarray:
    """(V,) the share of rows that hold each entry."""
    held = np.zeros(size)
    for row in range(len(store)):
        held[np.unique(store.row(row))] += 1
    return held / max(len(store), 1)


def _append_eos(source: Padded, end: int, extra: int) -> Tensor:
    """Rows with `end` after their last word and zeros to the right, `extra` steps wider."""
    wide = F.pad(source.data.masked_fill(~source.mask, 0), (0, extra))  # (B, T + extra)
    return wide.scatter(1, source.lengths.to(wide.device)[:, None], end)
