"""The engine of an ensemble: several models that answer as one, by the mean of their probabilities.

FOLDER/model.json  labels.json  golden.jsonl  members/0/  members/1/ …, each a model folder
"""

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.predict.joint_decoding import decode_jointly
from weft.predict.members import MAX_MEMBERS, MEMBERS, SECTION
from weft.predict.neural import NeuralEngine
from weft.predict.output import EngineInput, EngineOutput, TokenWeight
from weft.predict.predictor import Predictor, load, saved_config
from weft.protocols import Engine, InputKind, LabelSpace, Section
from weft.registry import fits
from weft.runtime import Runtime
from weft.tasks.annotation import Decoded
from weft.tasks.regress import VectorScale
from weft.tasks.task import AnyTask
from weft.tokens.word_segmenter import WordSegmenter

SCORED_TEXTS = 512  # texts whose distributions are in memory at a time


class EnsembleEngine(Engine):
    """Averages the probabilities of its members: p̄ = Σ w_m p_m.

    Texts are answered under p̄: classes and numbers directly, tags, trees and spans by one search,
    generated texts token by token.
    """

    def __init__(
        self,
        members: Sequence[Predictor],
        weights: Sequence[float],
        task: AnyTask,
        space: LabelSpace,
        folders: Sequence[Path] = (),
    ):
        assert len(members) == len(weights)
        self.members, self.task, self.space = list(members), task, space
        self.weights = np.array(weights, np.float64) / sum(weights)
        self.folders = list(folders)  # of the members, if they are saved
        self.runtime: Runtime | None = members[0].engine.runtime
        self.parser = next((m.engine.parser for m in members if m.engine.parser), None)

    def predict(self, inputs: Sequence[EngineInput], parts: bool = False) -> EngineOutput:
        """Return the scores of each input under the mean probabilities of the members."""
        if self._writes:
            return decode_jointly(self.neural_engines, self.weights, inputs)
        size = SCORED_TEXTS if self.task.is_structured else max(len(inputs), 1)
        chunks = [
            self._predict_chunk(inputs[at : at + size], parts)
            for at in range(0, max(len(inputs), 1), size)
        ]
        return chunks[0] if len(chunks) == 1 else _join_outputs(chunks)

    def _predict_chunk(self, inputs: Sequence[EngineInput], parts: bool) -> EngineOutput:
        engines = [member.engine for member in self.members]
        outputs = [engine.distributions(inputs) for engine in engines]
        scores = self.task.average(
            [output.scores for output in outputs],
            [member.space for member in self.members],
            self.weights,
            self.space,
        )
        coverage = np.minimum.reduce([output.coverage for output in outputs])
        read = [o.read for o in outputs if o.read is not None]
        weighed = [engine.predict(inputs, parts=True).parts for engine in engines] if parts else []
        return EngineOutput(
            scores,
            coverage,
            self._average_parts(weighed),
            np.minimum.reduce(read) if read else None,
        )

    def _average_parts(
        self, weighed: Sequence[Sequence[tuple[TokenWeight, ...]]]
    ) -> list[tuple[TokenWeight, ...]]:
        """Return the mean token weights of texts in which all members have the same tokens."""
        out: list[tuple[TokenWeight, ...]] = []
        if not all(weighed):
            return out
        for row in zip(*weighed, strict=True):
            spans = [[part[:2] for part in own] for own in row]
            if any(other != spans[0] for other in spans):
                out.append(())
                continue
            means = self.weights @ np.array([[part[2] for part in own] for own in row])
            out.append(
                tuple((*span, mean) for span, mean in zip(spans[0], means.tolist(), strict=True))
            )
        return out

    @property
    def _writes(self) -> bool:
        """True if the members answer with generated texts."""
        return self.task.has_target_tokenizer and self.task.read_mode == "labelled"

    @property
    def neural_engines(self) -> list[NeuralEngine]:
        """The engines of neural members; text is generated only by those."""
        return [m.engine for m in self.members if isinstance(m.engine, NeuralEngine)]

    def likelihoods(self, texts: Iterable[str], running: bool = False) -> Iterator[Decoded]:
        copies = tee(texts, len(self.members))
        streams = (
            member.engine.likelihoods(own, running)
            for member, own in zip(self.members, copies, strict=True)
        )
        for row in zip(*streams, strict=True):
            (scored,) = self._average([[one] for one in row])
            yield scored

    @property
    def has_backward_lm(self) -> bool:
        """True if all members also have a backward direction."""
        return all(member.engine.has_backward_lm for member in self.members)

    def score_backward(self, texts: Sequence[str]) -> list[Decoded]:
        return self._average([member.engine.score_backward(texts) for member in self.members])

    def _average(self, scores: Sequence[Sequence[Decoded]]) -> list[Decoded]:
        spaces = [member.space for member in self.members]
        averaged: list[Decoded] = self.task.average(scores, spaces, self.weights, self.space)
        return averaged

    def embed(self, texts: Sequence[EngineInput]) -> np.ndarray:
        """Return the members' vectors of length 1 side by side, (n, ΣH).

        The cosine of two of them is the weighted mean of the members' cosines.
        """
        columns = []
        for member, weight in zip(self.members, self.weights.tolist(), strict=True):
            vectors = np.asarray(member.engine.embed(texts), np.float32)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            columns.append(weight**0.5 * vectors / np.where(lengths > 0, lengths, 1))
        return np.concatenate(columns, axis=1)

    def states(self, text: EngineInput) -> tuple[np.ndarray, np.ndarray]:
        raise UserError(
            f"An ensemble has no token vectors. Load one of its members, FOLDER/{MEMBERS}/0."
        )

    @contextlib.contextmanager
    def full_precision(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.engine.full_precision())
            yield

    def quantise_weights(self, weights: str, where: str) -> None:
        """Quantise every member; all must have a pre-trained network."""
        if weights != "float32":
            for i, member in enumerate(self.members):
                member.engine.quantise_weights(weights, f"{where}/{MEMBERS}/{i}")

    @property
    def input_kind(self) -> InputKind:
        kinds = [member.engine.input_kind for member in self.members]
        return next((kind for kind in kinds if kind in ("trees", "vectors")), kinds[0])

    @property
    def word_segmenter(self) -> WordSegmenter | None:
        """The word segmenter of the first member."""
        return self.members[0].engine.word_segmenter

    @property
    def note(self) -> str:
        """The notes of the members, each once."""
        return "; ".join(dict.fromkeys(filter(None, (m.engine.note for m in self.members))))

    @property
    def parameters(self) -> int:
        """The parameters of all members."""
        return sum(member.parameters for member in self.members)

    def save(self, folder: Path) -> None:
        """Copy or write every member into the folder."""
        for i, member in enumerate(self.members):
            target = folder / MEMBERS / str(i)
            if self.folders and self.folders[i].is_dir():
                shutil.copytree(self.folders[i], target)
            else:
                member.save(target)

    @classmethod
    def load(
        cls, folder: Path, config: Section, task: AnyTask, space: LabelSpace, device: str
    ) -> "EnsembleEngine":
        """Load what `save` wrote; the ensemble's recorded answers check all members."""
        weights = _read_weights(config[SECTION], folder / "model.json")
        folders = [folder / MEMBERS / str(i) for i in range(len(weights))]
        for path in folders:
            if not (path / "model.json").is_file():
                raise UserError(f"{path / 'model.json'} is missing: the ensemble is incomplete.")
            if not path.resolve().is_relative_to(folder.resolve()):
                raise UserError(f"{path}: a link out of the model folder. Copy the member into it.")
            if SECTION in saved_config(path / "model.json"):
                raise UserError(f"{path}: an ensemble inside an ensemble. Give its members.")
        members = [load(path, device=device, replay=False) for path in folders]
        check_members(members, [str(path) for path in folders])
        return cls(members, weights, task, space, folders)


def _read_weights(section: Section, path: Path) -> list[float]:
    """Return the weights of the members, or raise a UserError if they are damaged."""
    weights = section.get("weights")
    if not fits(weights, list[float]) or not isinstance(weights, list):
        raise UserError(f"{path}: damaged (ensemble.weights should be numbers, got {weights!r}).")
    if not 1 <= len(weights) <= MAX_MEMBERS:
        raise UserError(
            f"{path}: an ensemble of {len(weights)} members; 1 to {MAX_MEMBERS} are possible."
        )
    return check_weights(weights, str(path))


def check_weights(weights: Sequence[float], where: str) -> list[float]:
    """Return the weights, or raise a UserError unless all are above 0 and finite."""
    if not all(0 < weight < float("inf") for weight in weights):
        raise UserError(f"{where}: weights are numbers above 0, got {list(weights)}.")
    return [float(weight) for weight in weights]


def check_members(members: Sequence[Predictor], names: Sequence[str]) -> None:
    """Raise a UserError that names the difference unless all members can give one answer."""
    first = members[0]
    kind = first.config["task"]["kind"]
    if not first.task.can_average:
        raise UserError(f"{names[0]}: models of the task '{kind}' cannot be averaged.")
    for member, name in zip(members, names, strict=True):
        if not member.engine.can_average:
            head = member.config["head"]["kind"]
            raise UserError(f"{name}: a model with the head '{head}' cannot be averaged.")
    for member, name in zip(members[1:], names[1:], strict=True):
        other = member.config["task"]["kind"]
        if other != kind:
            difference = f"answers the task '{other}', the other '{kind}'"
        elif member.task.multi_label != first.task.multi_label:
            difference = "one gives one label a text, the other several"
        else:
            difference = describe_difference(member.space, first.space)
        if difference:
            raise UserError(f"{name} and {names[0]} cannot be one ensemble: {difference}.")


def describe_difference(space: LabelSpace, first: LabelSpace) -> str:
    """Return the first difference between the answers of two models, or ""."""
    if space.names != first.names:
        ours, theirs = (", ".join(one.names) for one in (space, first))
        return f"it tags the columns {ours}, the other {theirs}"
    mine, others = (one.to_json() for one in (space, first))
    schemes = [one.get("scheme", "") for one in (mine, others)]
    if schemes[0] != schemes[1]:
        own_scheme, other_scheme = (scheme or "none" for scheme in schemes)
        return (
            f"it learned the span scheme {own_scheme}, the other {other_scheme}; set task.learn "
            "alike"
        )
    for column, (own, other) in enumerate(zip(*map(_label_sets, (space, first)), strict=False)):
        where = f"of column '{space.names[column]}' " if len(space.names) > 1 else ""
        for lacks, has, who in ((own, other, "it"), (other, own, "the other")):
            if missing := [label for label in has if label not in set(lacks)]:
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                return f"{who} lacks the label {where}'{missing[0]}'{more}"
    if space.tokenizer is not None and first.tokenizer is not None:
        tokens, others_tokens = list(space.tokenizer.vocabulary), list(first.tokenizer.vocabulary)
        if tokens != others_tokens:
            return (
                f"its vocabulary of {len(tokens):,} tokens is not the other's of "
                f"{len(others_tokens):,}; train them with the same tokenizer"
            )
    if isinstance(space, VectorScale) and space.size != first.size:
        return f"it predicts {space.size} numbers, the other {first.size}"
    ignored = {"entries", "names", "tokenizer", "threshold", "scale", "confidence", "rejection"}
    ignored |= {"reached", "mean", "means", "deviation", "deviations"}
    for key in (*mine, *others):
        if key not in ignored and mine.get(key) != others.get(key):
            return f"its {key} is {mine.get(key)!r}, the other's {others.get(key)!r}"
    return ""


def _label_sets(space: LabelSpace) -> list[tuple[str, ...]]:
    """Return the labels, column by column."""
    if all(isinstance(entry, str) for entry in space.entries):
        return [tuple(map(str, space.entries))]
    return [tuple(column) for column in space.entries]


def _join_outputs(chunks: Sequence[EngineOutput]) -> EngineOutput:
    """Join the outputs of chunks of texts, whose scores are lists."""
    scores: list[Any] = [one for chunk in chunks for one in chunk.scores]
    read = [chunk.read for chunk in chunks if chunk.read is not None]
    return EngineOutput(
        scores,
        np.concatenate([chunk.coverage for chunk in chunks]),
        [part for chunk in chunks for part in chunk.parts],
        np.concatenate(read) if len(read) == len(chunks) else None,
    )
