"""TF-IDF and a linear model: the classical baseline.

n texts   V n-grams   C scores   K weight columns: C, or 1 for two classes
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from weft import jsonio
from weft.classic.linear.regularisation import GRIDS, Fit, choose, fit_for, scores
from weft.classic.linear.sklearn_fit import Weights, check_size
from weft.classic.linear.tfidf_vectorizer import (
    Grams,
    character_grams,
    empty,
    grams_cover,
    span,
    word_grams,
)
from weft.classic.progress import DevSplit, FitProgress, ProgressCallback, no_callback
from weft.classic.weights_io import WEIGHTS, damaged_file_error, read
from weft.errors import UserError
from weft.protocols import ClassicModel, LabelSpace, Section
from weft.registry import register
from weft.storage import atomic_write, write_text
from weft.tasks.regress import LabelScale
from weft.tasks.task import AnyTask
from weft.text.class_balance import Balance
from weft.text.example import Example

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MAX_WEIGHTS = 20_000_000  # of all classes together
MAX_CHARACTERS = 10_000_000  # of the training texts; above, character n-grams are left out
VOCABULARY = "vocabulary.json"


@register("classic", "tfidf")
class TfIdf(ClassicModel):
    """Word and character n-grams, weighted by TF-IDF, under a linear model.

    `words` and `characters` are the shortest and longest n-gram, [] for none. `C` is the inverse
    regularisation strength of logistic regression and SVM, and the inverse of the smoothing of
    naive Bayes and of the penalty of ridge regression; 0 chooses the best of a grid on dev.
    `vocab_size` is the number of most frequent n-grams kept per family; 0 stands for as many as
    memory allows.
    """

    kind = "tfidf"
    is_linear = True
    tunes_on_dev = True
    balances = ("weights", "sampling")
    takes_weights = True
    grids = GRIDS

    def __init__(
        self,
        classifier: Literal["logistic", "svm", "bayes"] = "logistic",
        words: list[int] = [1, 2],  # noqa: B006 -- never changed; a list is what a config holds
        characters: list[int] = [2, 5],  # noqa: B006
        min_count: int = 1,
        vocab_size: int = 0,
        lowercase: bool = True,
        sublinear: bool = True,
        C: float = 0.0,
    ) -> None:
        if C < 0:
            raise UserError(
                f"classic 'tfidf': C is {C}; it must be above 0, or 0 to choose it on dev."
            )
        self.classifier = classifier
        self.minimum = min_count
        self.size = vocab_size
        self.strength = C
        self.remarks: list[str] = []
        families = (("words", words, word_grams), ("characters", characters, character_grams))
        self.families = {
            name: Grams(split, limits, lowercase, sublinear)
            for name, sizes, split in families
            if (limits := span(name, sizes))
        }
        if not self.families:
            raise UserError("classic 'tfidf': words and characters are both []; give at least one.")
        self.weights = np.zeros((0, 0), dtype=np.float32)  # (V, K)
        self.bias = np.zeros(0, dtype=np.float32)  # (C,)

    @property
    def is_seeded(self) -> bool:
        return self.classifier == "svm"

    def fit(
        self,
        texts: Iterable[str | Example],
        targets: np.ndarray,
        task: AnyTask,
        space: LabelSpace,
        seed: int = 0,
        watch: ProgressCallback = no_callback,
        dev: DevSplit | None = None,
        metric: str = "",
        balance: Balance | None = None,
        row_weights: np.ndarray | None = None,
    ) -> None:
        """Learn the n-grams and the linear model, in one pass over the texts per family.

        Weights of rows are those of the linear model's losses; n-grams are counted without them.
        """
        if isinstance(space, LabelScale) and self.classifier != "logistic":
            raise UserError(
                f"classic 'tfidf': classifier '{self.classifier}' cannot predict a number. "
                "Leave it out: task 'regress' always uses ridge regression."
            )
        assert isinstance(space.size, int), "the labels of texts are counted"
        check_size(self.classifier, len(targets), space.size, len(dev[0]) if dev else 0)
        watch(FitProgress(0.0, "counting n-grams"))
        rows = self._learn(texts, space.size)
        from threadpoolctl import threadpool_limits

        watch(FitProgress(0.5, "fitting the weights"))
        fit = fit_for(self.classifier, task, space, seed, balance)
        with threadpool_limits(1):  # more threads than idle cores make the optimiser crawl
            if self.strength:
                (weights, bias), *_ = fit(rows, targets, [self.strength], row_weights)
            else:
                weights, bias = self._choose(
                    rows, targets, dev, fit, task, space, metric, row_weights
                )
        # Rounded now, so that a saved and loaded model gives the same scores to the last bit.
        self.weights = np.ascontiguousarray(weights, dtype=np.float32)
        self.bias = np.ascontiguousarray(bias, dtype=np.float32)

    def _choose(
        self,
        rows: "csr_matrix",
        targets: np.ndarray,
        dev: DevSplit | None,
        fit: Fit,
        task: AnyTask,
        space: LabelSpace,
        metric: str,
        row_weights: np.ndarray | None,
    ) -> Weights:
        """Fit at several strengths, without and with character n-grams; keep the best on dev."""
        grid = self.grids["ridge" if isinstance(space, LabelScale) else self.classifier]
        dev_rows = None if dev is None else (self.sparse_features(dev[0]), dev[1])
        how = (grid, task, space, metric, row_weights)
        best = choose(fit, rows, targets, dev_rows, *how)
        suffix = ""
        characters = self.families.get("characters")
        if characters is not None and characters.index and len(self.families) > 1:
            count = rows.shape[1] - len(characters.index)
            fewer = None if dev_rows is None else (dev_rows[0][:, :count], dev_rows[1])
            alone = choose(fit, rows[:, :count], targets, fewer, *how)
            suffix = ", with character n-grams"
            if not best.quality > alone.quality:
                best, suffix = alone, ", without character n-grams"
                characters.index, characters.idf = {}, characters.idf[:0]
        self.remarks.append(f"{best}{suffix}")
        return best.weights

    def _learn(self, texts: Iterable[str | Example], labels: int) -> "csr_matrix":
        """Learn the vocabulary of each family; return the rows of the training texts."""
        families = self.families.values()
        # The optimiser keeps about twenty numbers per weight.
        most = max(1, MAX_WEIGHTS // len(families) // (labels if labels > 2 else 1))
        size = min(self.size or most, most)
        blocks: list[csr_matrix] = []
        for name, grams in self.families.items():
            seen, minimum = self.view(name, texts), self.minimum
            if name == "characters" and blocks:
                read = sum(map(len, seen))
                if read > MAX_CHARACTERS:
                    self.remarks.append(
                        f"character n-grams are left out: {read:,} characters of text are more "
                        f"than {MAX_CHARACTERS:,}, and in long texts words say enough"
                    )
                    blocks.append(empty(blocks[0].shape[0]))
                    continue
                minimum = max(2, minimum)  # one text says little about a part of a word
            blocks.append(grams.learn(seen, minimum, size))
        rows = _join(blocks)
        if not rows.shape[1]:
            raise UserError(
                f"classic 'tfidf': no n-gram occurs in {self.minimum} training texts. "
                "Lower classic.min_count or add texts."
            )
        return rows

    def sparse_features(self, texts: Sequence[str | Example]) -> "csr_matrix":
        blocks = [grams.rows(self.view(name, texts)) for name, grams in self.families.items()]
        return _join(blocks)

    def view(self, family: str, texts: Iterable[str | Example]) -> list[str]:
        """Return the texts as one n-gram family reads them: unchanged."""
        return [text if isinstance(text, str) else text.text for text in texts]

    def predict(self, texts: Sequence[str | Example]) -> np.ndarray:
        """Return logits (n, C), or a standardised number (n, 1)."""
        assert len(self.bias), "fit or load comes first"
        if not len(texts):
            return np.zeros((0, len(self.bias)), dtype=np.float32)
        return scores(self.sparse_features(texts), (self.weights, self.bias))

    def coverage(self, texts: Sequence[str]) -> np.ndarray:
        """Return the fraction (n,) of each text's words that a known n-gram covers."""
        return grams_cover(texts, self.families.values())

    def contributions(self, text: str, direction: np.ndarray) -> list[tuple[int, int, float]]:
        """Return (start, end, weight) of the tokens, which sum to (logits − bias) · direction.

        `direction` (C,) chooses the logits. The contribution of an n-gram is split equally between
        its occurrences, and between the tokens of each.
        """
        # With two classes, only the second has weights.
        columns = direction[-self.weights.shape[1] :]  # (K,)
        out, first = [], 0
        rows = _join([grams.rows([text]) for grams in self.families.values()])  # (1, V)
        values = dict(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))
        for grams in self.families.values():
            occurrences = [(first + column, spans) for column, spans in grams.places(text)]
            count = Counter(column for column, _ in occurrences)
            for column, spans in occurrences:
                contribution = values[column] * float(self.weights[column] @ columns)
                weight = contribution / count[column] / len(spans)
                out += [(start, end, weight) for start, end in spans]
            first += len(grams.index)
        return out

    def parameters(self) -> int:
        """Return the number of learned weights."""
        return self.weights.size + self.bias.size

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        raise UserError(
            f"A '{self.kind}' model has no sentence vectors: its rows have one column for each of "
            f"{len(self.weights)} n-grams. Use another model, for example --recipe fasttext."
        )

    def save(self, folder: Path) -> None:
        """Write weights.safetensors and vocabulary.json."""
        from safetensors.numpy import save_file

        terms = {name: list(grams.index) for name, grams in self.families.items()}
        text = json.dumps(terms, ensure_ascii=False, separators=(",", ":"))
        # surrogatepass: half a character in the training text must not stop the save.
        write_text(folder / VOCABULARY, text, errors="surrogatepass")
        arrays = {f"idf.{name}": grams.idf for name, grams in self.families.items()}
        with atomic_write(folder / WEIGHTS) as part:
            save_file({"weights": self.weights, "bias": self.bias, **arrays}, part)

    @classmethod
    def load(cls, folder: Path, settings: Section) -> "TfIdf":
        """Load what `save` wrote, with the settings it was built with."""
        model = cls(**{key: value for key, value in settings.items() if key != "kind"})
        terms = _read_vocabulary(folder / VOCABULARY, list(model.families))
        names = {"weights", "bias", *(f"idf.{name}" for name in model.families)}
        arrays = read("tfidf", folder / WEIGHTS, names)
        for name, grams in model.families.items():
            grams.index = {term: i for i, term in enumerate(terms[name])}
            grams.idf = arrays[f"idf.{name}"]
            if not len(terms[name]) == len(grams.index) == len(grams.idf):
                raise damaged_file_error(
                    "tfidf", folder / VOCABULARY, f"its {name} do not match {WEIGHTS}"
                )
        model.weights, model.bias = arrays["weights"], arrays["bias"]
        fits = model.weights.ndim == 2 and model.bias.ndim == 1
        if not fits or len(model.weights) != sum(map(len, terms.values())):
            raise damaged_file_error(
                "tfidf", folder / WEIGHTS, f"its shapes do not match {VOCABULARY}"
            )
        if model.weights.shape[1] not in ({1, 2} if len(model.bias) == 2 else {len(model.bias)}):
            raise damaged_file_error("tfidf", folder / WEIGHTS, "weights and bias do not match")
        return model


def _join(blocks: list["csr_matrix"]) -> "csr_matrix":
    from scipy.sparse import hstack

    return blocks[0] if len(blocks) == 1 else hstack(blocks, format="csr")


def _read_vocabulary(path: Path, families: list[str]) -> dict[str, list[str]]:
    try:
        terms = jsonio.parse(path.read_bytes().decode("utf-8", "surrogatepass"), path)
    except FileNotFoundError:
        raise damaged_file_error("tfidf", path, "the file is missing") from None
    except ValueError as error:  # covers bad UTF-8 and bad JSON
        raise damaged_file_error("tfidf", path, str(error)) from error
    if not isinstance(terms, dict) or sorted(terms) != sorted(families):
        raise damaged_file_error("tfidf", path, f"it should hold {' and '.join(families)}")
    for name, entries in terms.items():
        if not isinstance(entries, list) or not all(isinstance(e, str) for e in entries):
            raise damaged_file_error("tfidf", path, f"'{name}' is not a list of texts")
    return terms
