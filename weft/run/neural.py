"""Runs of neural models: tokenizer, token stores, model, then the trainer."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft import registry
from weft.batch import TokenStore
from weft.batch.documents import Documents
from weft.config import Config, model_sections
from weft.decode.cuda_graphs.decode_step import enable_decode_graphs
from weft.errors import UserError
from weft.model import Model, fill
from weft.predict.neural import SEGMENTER_FILE, NeuralEngine, make_indexer
from weft.predict.predictor import Predictor
from weft.run import lm_data, mlm_data, pretrained
from weft.run.data import Data
from weft.run.folder import disk_space_warning
from weft.run.split import Splits
from weft.run.tokenise import DevReference, SplitTokeniser
from weft.run.trainer import Trainer, TrainingData
from weft.runtime import Runtime, seed_everything, use_threads
from weft.tasks.task import LabelSpace, Task
from weft.text.example import Example, SkipCounter
from weft.text.formats.features import load_matrix
from weft.text.formats.records import mark_slot
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.word_segmenter import SegmenterTrainer, WordSegmenter, save
from weft.train.logger import RunLogger
from weft.train.settings import Settings


def fill_sections(config: Config) -> dict[str, Any]:
    """Return the model's sections with all defaults filled in."""
    missing = [name for name in model_sections(config.sections) if name not in config]
    if missing:
        raise UserError(
            f"The configuration has no [{'], ['.join(missing)}]. Start from a recipe: "
            "`weft list recipes`, then --recipe NAME."
        )
    tokenizer = dict(config["tokenizer"])
    path = tokenizer.pop("path", "")
    filled = registry.fill("tokenizer", tokenizer)
    out = {"tokenizer": {**filled, "path": path} if path else filled, **fill(config.sections)}
    if "decoder" in config and "embedder" in config:
        # What is written is cut as what is read, unless the configuration says otherwise.
        out["target"] = registry.fill("tokenizer", config["target"] or filled)
    return out


@dataclass
class NeuralRun:
    """The training of a neural model, with everything it needs."""

    parts: dict[str, Any]  # the model's filled sections
    data: Data
    settings: Settings
    task: Task
    space: LabelSpace
    splits: Splits
    folder: Path
    logger: RunLogger
    tally: SkipCounter
    runtime: Runtime
    on_evaluate: Callable[[int, dict[str, float]], None] | None = None  # after every evaluation
    parser: Predictor | None = None  # that made the trees of texts without
    started: float = field(default_factory=time.perf_counter)  # when all of it began
    stop_reason: str = ""  # in words, when the clock ended the training
    completed: float = 1.0  # fraction of the configured epochs that was done when it did
    undertrained: str = ""  # in words, when it ended too soon by itself
    losses: tuple[float, float] | None = None  # at the start and at best, where that tells much
    updates: int = 0  # done when it ended
    training_seconds: float = 0.0  # that they took, with evaluations, without set-up
    threads: list[tuple[int, int]] = field(default_factory=list)  # from which update on, how many
    dev_references: list[DevReference] = field(
        default_factory=list
    )  # of each dev row, where texts are measured

    def fit(self, resume: bool) -> NeuralEngine:
        """Train to the end and return the best model as an engine."""
        with use_threads(self.settings.threads):
            seed_everything(self.settings.seed)
            tokenizer, cuts = self.learn_tokenizer(resume)
            model = self.build_model(tokenizer, resume)
            if note := disk_space_warning(self.folder, *_state_bytes(model, self.settings)):
                self.logger.info(f"warning: {note}")
            data = self.data
            lengths = data.overlap, data.max_characters
            index = make_indexer(model, tokenizer, data.max_tokens, data.truncate, cuts, *lengths)
            train: TrainingData
            dev: TokenStore | Documents | None
            held = self.splits.dev
            if model.is_lm:
                train, dev = lm_data.build_stream(self, model), lm_data.tokenise_dev(self, model)
            elif model.is_mlm:
                train = mlm_data.training_documents(self, model)
                dev = mlm_data.tokenise_documents(self, held, "dev")
            else:
                stores = SplitTokeniser(
                    self.task, self.space, self.data, self.folder, self.logger, self.tally, model,
                    index,
                )  # fmt: skip
                train = stores.tokenise(self.splits.train, "train")
                dev = None if held is None else stores.tokenise(held, "dev")
                self.dev_references = stores.dev_references
            if not len(train):
                raise UserError("There are no training examples left.")
            model.to(self.runtime.device)
            enable_decode_graphs(model.head, self.runtime)
            held_out = dev if dev is not None and len(dev) else None
            if model.head.fitted:
                from weft.run.regression import fit_head

                fit_head(self, model, train, held_out)  # type: ignore[arg-type]
            else:
                Trainer(self, model, train, held_out).run(resume)
            return NeuralEngine(model, index, self.runtime, self.parser)

    def learn_tokenizer(self, resume: bool) -> tuple[Tokenizer, WordSegmenter | None]:
        """Return the tokenizer and the word segmenter, trained on the training file or resumed."""
        saved = self.folder / "checkpoints" / "tokenizer.json"
        if resume and saved.is_file():
            return Tokenizer.load(saved), WordSegmenter.load(saved.with_name(SEGMENTER_FILE))
        if getattr(self.space, "shared", False) or self._vector_embedder() is not None:
            tokenizer = self.space.tokenizer  # type: ignore[attr-defined]
            saved.parent.mkdir(exist_ok=True)
            tokenizer.save(saved)
            return tokenizer, None
        training_examples = SegmenterTrainer()
        examples = training_examples.observe(
            self.logger.reading(self.splits.train(), "learning the vocabulary")
        )
        section = dict(self.parts["tokenizer"])
        if path := section.pop("path", ""):
            tokenizer = Tokenizer.load(Path(path))
            for _ in examples if hasattr(self.task, "gold") else ():
                pass
        else:
            kind = registry.build("tokenizer", section)
            plain: Any = getattr(self.space, "without_marks", str)
            tokenizer = kind.train(
                plain(text)
                for example in examples
                for text in example.words or self._texts_of(example)
            )
        if slots := getattr(self.space, "slots", ()):
            tokenizer = tokenizer.with_words([mark_slot(slot) for slot in slots])
        saved.parent.mkdir(exist_ok=True)
        tokenizer.save(saved)
        cuts = training_examples.build()
        save(cuts, saved.with_name(SEGMENTER_FILE))
        return tokenizer, cuts

    def _texts_of(self, example: Example) -> tuple[str, ...]:
        """Return the text of an example, or both texts for a pair task."""
        two = getattr(self.task, "pairs", False) and example.other is not None
        return (example.text, example.other or "") if two else (example.text,)

    def _vector_embedder(self) -> dict[str, Any] | None:
        """Return the section of the embedder 'vectors', if the model uses it."""
        embedder = self.parts.get("embedder")
        own = isinstance(embedder, dict) and embedder["kind"] == "vectors"
        return embedder if own else None

    def build_model(self, tokenizer: Tokenizer, resume: bool = False) -> Model:
        frames = self._vector_embedder()
        if frames is not None and not frames["features"]:
            frames["features"] = load_matrix(next(self.splits.train())).shape[1]

        def make() -> Model:
            return Model(self.parts, vocabulary_size=len(tokenizer), outputs=self.space.size)

        fresh = not (resume and (self.folder / "checkpoints" / "last.safetensors").is_file())
        kind, rate = self.parts["task"]["kind"], self.settings.learning_rate
        if fresh:
            pretrained.check_sizes(make, self.parts, kind)
        model = make()
        self._load_vectors(model, tokenizer)
        if fresh:
            for line in pretrained.load_pretrained(model, kind, rate):
                self.logger.info(line)
        return model

    def _load_vectors(self, model: Model, tokenizer: Tokenizer) -> None:
        """Load pre-trained word vectors into the embedders that use them."""
        for embedder in model.embedders:
            initialise: Any = getattr(embedder, "initialise", None)
            if initialise is not None:
                found = initialise(tokenizer.vocabulary)
                if embedder.vectors:
                    size = len(tokenizer)
                    message = f"vectors found for {found} of {size} words ({found / size:.0%})"
                    if not found:
                        message += "; are they of another language, or is their case another?"
                    self.logger.info(message)


def _state_bytes(model: Model, settings: Settings) -> tuple[int, int]:
    """Return the bytes of a model's weights and of its optimiser state."""
    weights = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    learned = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    copies = {"sgd": 1, "adagrad": 1}.get(settings.optimiser, 2) + (settings.ema_decay > 0)
    return weights, copies * learned
