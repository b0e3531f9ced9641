"""Runs of neural models: tokenizer, token stores, model, then the trainer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from weft import registry
from weft.batch import TokenStore
from weft.batch.documents import Documents
from weft.batch.label_levels import LabelLevels
from weft.batch.loss_balance import LossBalance
from weft.config import Config, FilledSections, model_sections
from weft.decode.cuda_graphs.decode_step import enable_decode_graphs
from weft.errors import UserError
from weft.model import Model, build_model, fill
from weft.predict.neural import NeuralEngine, make_indexer
from weft.predict.predictor import Predictor
from weft.predict.rows import SEGMENTER_FILE
from weft.protocols import Section
from weft.run import lm_data, mlm_data, pretrained
from weft.run.context import RunContext, TrainingResult
from weft.run.data import Source
from weft.run.folder import disk_space_warning
from weft.run.tokenise import DevReference, SplitTokeniser
from weft.run.trainer import Trainer, TrainingData
from weft.runtime import Runtime, seed_everything, use_threads
from weft.tasks.task import class_groups, class_weights
from weft.text.example import Example
from weft.text.formats.features import load_image, load_matrix
from weft.text.formats.records import mark_slot
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.word_segmenter import SegmenterTrainer, WordSegmenter, save
from weft.train.class_balance import describe_balance
from weft.train.initialise import initialise
from weft.train.parallel import gather_tensor
from weft.train.settings import Settings


def fill_sections(config: Config) -> FilledSections:
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
    writes = "decoder" in config or config["task"].get("kind") == "seq2seq"
    if writes and "embedder" in config:
        # What is written is cut as what is read, unless the configuration says otherwise.
        out["target"] = registry.fill("tokenizer", config["target"] or filled)
    return out


@dataclass(frozen=True)
class NeuralRun:
    """The training of a neural model: tokenizer, token stores, model, trainer."""

    context: RunContext
    parts: FilledSections  # the model's filled sections
    runtime: Runtime
    parser: Predictor | None = None  # parses texts that have no trees

    def fit(self, resume: bool) -> tuple[NeuralEngine, TrainingResult]:
        """Train to the end; return the best model as an engine, and how training went."""
        run = self.context
        with use_threads(run.settings.threads):
            seed_everything(run.settings.seed)
            tokenizer, segmenter = self.learn_tokenizer(resume)
            model = self.build_model(tokenizer, resume)
            if note := disk_space_warning(run.folder, *_state_bytes(model, run.settings)):
                run.logger.info(f"warning: {note}")
            data = run.data
            index = make_indexer(
                model, tokenizer, data.max_tokens, data.truncate, segmenter,
                data.overlap, data.max_characters,
            )  # fmt: skip
            train: TrainingData
            dev: TokenStore | Documents | None
            dev_references: list[DevReference] = []
            if model.traits.is_lm:
                train = lm_data.build_stream(run, model, self.runtime.world)
                dev = lm_data.tokenise_dev(run, model)
            elif model.traits.is_mlm:
                train = mlm_data.training_documents(run, model)
                dev = mlm_data.tokenise_documents(run, run.splits.dev, "dev")
            else:
                stores = SplitTokeniser(
                    run.task, run.space, data, run.folder, run.logger, run.tally, model, index
                )
                train = stores.tokenise(run.splits.train, "train")
                dev = None if run.splits.dev is None else stores.tokenise(run.splits.dev, "dev")
                dev_references = stores.dev_references
                self._balance(train)
                if run.space.tree is not None:
                    train.levels = LabelLevels(run.space.tree.path_ids)
            if not len(train):
                raise UserError("There are no training examples left.")
            model.to(self.runtime.device)
            enable_decode_graphs(model.head, self.runtime)
            held_out = dev if dev is not None and len(dev) else None
            if model.head.fitted:
                from weft.run.regression import fit_head

                fit_head(run, self.runtime, model, train, held_out)  # type: ignore[arg-type]
                result = TrainingResult()
            else:
                trainer = Trainer(
                    run, self.runtime, model, train, held_out, dev_references, self._initial_weights
                )
                result = trainer.run(resume)
                if trainer.is_sharded:
                    model = self._whole_model(tokenizer, model)
            return NeuralEngine(model, index, self.runtime, self.parser), result

    def _whole_model(self, tokenizer: Tokenizer, sharded: Model) -> Model:
        """Return the model with all of its weights on this device."""
        model = self.build_model(tokenizer, resume=True).to(self.runtime.device)
        model.load_state_dict({n: gather_tensor(t) for n, t in sharded.state_dict().items()})
        return model

    def _balance(self, train: TokenStore) -> None:
        """Weigh or sample the rows by their classes."""
        run, balance = self.context, self.context.settings.class_balance
        if balance.kind == "none" or not len(train):
            return
        weights: tuple[np.ndarray, ...] = ()
        if balance.kind == "weights":
            weights = class_weights(train.targets, run.task, run.space)
        elif balance.kind == "sampling":
            train.groups = class_groups(train.targets, run.task, run.space)
        if balance.kind != "sampling":
            gamma = balance.gamma if balance.kind == "focal" else None
            train.balance = LossBalance(weights, gamma)
        run.logger.info(describe_balance(balance, weights, train.groups, run.space))

    def _initial_weights(self) -> dict[str, Tensor]:
        """Return the weights that the model had before the first update."""
        tokenizer, _ = self.learn_tokenizer(resume=True)
        return self.build_model(tokenizer).state_dict()

    def learn_tokenizer(self, resume: bool) -> tuple[Tokenizer, WordSegmenter | None]:
        """Return the tokenizer and the word segmenter, trained on the training file or resumed."""
        saved = self.context.folder / "checkpoints" / "tokenizer.json"
        if self.runtime.world.rank:  # rank 0 learns it, or it was there
            self.runtime.world.wait()
            resume = True
        tokenizer, segmenter = self._tokenizer_at(saved, resume)
        if self.runtime.world.rank == 0:
            self.runtime.world.wait()
        return tokenizer, segmenter

    def _tokenizer_at(self, saved: Path, resume: bool) -> tuple[Tokenizer, WordSegmenter | None]:
        run = self.context
        if resume and saved.is_file():
            return Tokenizer.load(saved), WordSegmenter.load(saved.with_name(SEGMENTER_FILE))
        if run.space.shared or vector_section(self.parts) is not None:
            assert run.space.tokenizer is not None, "answers are texts"
            tokenizer = run.space.tokenizer
            saved.parent.mkdir(exist_ok=True)
            tokenizer.save(saved)
            return tokenizer, None
        training_examples = SegmenterTrainer()
        examples = training_examples.observe(
            run.logger.reading(run.splits.train(), "learning the vocabulary")
        )
        section = dict(self.parts["tokenizer"])
        if path := section.pop("path", ""):
            tokenizer = Tokenizer.load(Path(path))
            for _ in examples if run.task.is_structured else ():
                pass
        else:
            kind = registry.build("tokenizer", section)
            tokenizer = kind.train(
                run.space.without_marks(text)
                for example in examples
                for text in example.words or self._texts_of(example)
            )
        if slots := run.space.slots:
            tokenizer = tokenizer.with_words([mark_slot(slot) for slot in slots])
        saved.parent.mkdir(exist_ok=True)
        tokenizer.save(saved)
        cuts = training_examples.build()
        save(cuts, saved.with_name(SEGMENTER_FILE))
        return tokenizer, cuts

    def _texts_of(self, example: Example) -> tuple[str, ...]:
        """Return the text of an example, or both texts for a pair task."""
        two = self.context.task.pairs and example.other is not None
        return (example.text, example.other or "") if two else (example.text,)

    def build_model(self, tokenizer: Tokenizer, resume: bool = False) -> Model:
        run = self.context

        def make() -> Model:
            return build_model(self.parts, vocabulary_size=len(tokenizer), outputs=run.space.size)

        fresh = not (resume and (run.folder / "checkpoints" / "last.safetensors").is_file())
        kind, rate = self.parts["task"]["kind"], run.settings.learning_rate
        if fresh:
            pretrained.check_sizes(make, self.parts, kind)
        model = make()
        initialise(model, run.settings.init, run.settings.init_scale)
        self._load_vectors(model, tokenizer)
        if fresh:
            for line in pretrained.load_pretrained(model, kind, rate):
                run.logger.info(line)
        return model

    def _load_vectors(self, model: Model, tokenizer: Tokenizer) -> None:
        """Load pre-trained word vectors into the embedders that use them."""
        for embedder in model.embedder_parts:
            matched = embedder.initialise(tokenizer.vocabulary)
            if embedder.vectors:
                size = len(tokenizer)
                message = f"vectors found for {matched} of {size} words ({matched / size:.0%})"
                if not matched:
                    message += "; are they of another language, or is their case another?"
                self.context.logger.info(message)


def vector_section(parts: Section) -> FilledSections | None:
    """Return the section of an embedder that reads no tokens, if the model has one."""
    embedder = parts.get("embedder")
    is_used = isinstance(embedder, dict) and embedder["kind"] in ("vectors", "log-mel", "image")
    return embedder if is_used else None


def infer_features(parts: Section, source: Source) -> None:
    """Fill in the width of input vectors, or the shape of images, from the first example."""
    section = vector_section(parts)
    if section is not None and section["kind"] == "image" and not section["shape"]:
        section["shape"] = load_image(next(source())).shape
    if section is not None and section.get("features") == 0:
        section["features"] = load_matrix(next(source())).shape[1]


def _state_bytes(model: Model, settings: Settings) -> tuple[int, int]:
    """Return the bytes of a model's weights and of its optimiser state."""
    weights = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    learned = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    copies = {"sgd": 1, "adagrad": 1}.get(settings.optimiser, 2) + (settings.ema_decay > 0)
    return weights, copies * learned
