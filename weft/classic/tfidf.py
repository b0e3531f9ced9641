"""TF-IDF and a linear model: the generation before neural nets, and the baseline for the rest.

n texts   V n-grams   C scores   K weight columns: C, or 1 for two classes
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weft.classic.grams import Grams, character_grams, span, word_grams
from weft.classic.linear import fit_classes, fit_number, fit_sets
from weft.classic.progress import Listen, Progress, nobody
from weft.classic.saved import WEIGHTS, damaged, read
from weft.errors import UserError
from weft.registry import register
from weft.tasks.regress import Scale
from weft.tasks.task import Space, Task

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

LARGEST = 20_000_000  # weights, all classes together
VOCABULARY = "vocabulary.json"


@register("classic", "tfidf")
class TfIdf:
    """Word and character n-grams, weighted by TF-IDF, under a linear model.

    `words` and `characters` name the shortest and longest n-gram, [] for none. `strength` is how
    closely the training data is followed: C of the logistic regression and of the SVM, and one over
    the smoothing of naive Bayes and over the penalty of ridge regression. `size` is how many
    n-grams of each family are kept, the most frequent ones; 0 stands for as many as memory allows.
    """

    def __init__(
        self,
        classifier: Literal["logistic", "svm", "bayes"] = "logistic",
        words: list[int] = [1, 2],  # noqa: B006 -- never changed; a list is what a config holds
        characters: list[int] = [],  # noqa: B006
        minimum: int = 1,
        size: int = 0,
        lowercase: bool = True,
        sublinear: bool = True,
        strength: float = 10.0,
    ) -> None:
        if strength <= 0:
            raise UserError(f"classic 'tfidf': strength is {strength}; it must be above 0.")
        self.classifier = classifier
        self.minimum = minimum
        self.size = size
        self.strength = strength
        families = (("words", words, word_grams), ("characters", characters, character_grams))
        self.families = {
            name: Grams(split, limits, lowercase, sublinear)
            for name, given, split in families
            if (limits := span(name, given))
        }
        if not self.families:
            raise UserError("classic 'tfidf': words and characters are both []; give at least one.")
        self.weights = np.zeros((0, 0), dtype=np.float32)  # (V, K)
        self.bias = np.zeros(0, dtype=np.float32)  # (C,)

    @property
    def seeded(self) -> bool:
        """Whether another seed can give another model."""
        return self.classifier == "svm"

    def fit(
        self,
        texts: Iterable[str],
        targets: np.ndarray,
        task: Task,
        space: Space,
        seed: int = 0,
        watch: Listen = nobody,
    ) -> None:
        """Learn the n-grams and the linear model; `texts` is gone through once for each family."""
        watch(Progress(0.0, "counting n-grams"))
        families = self.families.values()
        # The optimiser holds some twenty numbers for every weight.
        most = max(1, LARGEST // len(families) // (space.size if space.size > 2 else 1))
        size = min(self.size or most, most)
        rows = _join(
            [
                grams.learn(self.view(name, texts), self.minimum, size)
                for name, grams in self.families.items()
            ]
        )
        if not rows.shape[1]:
            raise UserError(
                f"classic 'tfidf': no n-gram occurs in {self.minimum} training texts. "
                "Lower classic.minimum or add texts."
            )
        watch(Progress(0.5, "fitting the weights"))
        if isinstance(space, Scale):
            if self.classifier != "logistic":
                raise UserError(
                    f"classic 'tfidf': classifier '{self.classifier}' cannot predict a number. "
                    "Leave it out: task 'regress' always uses ridge regression."
                )
            weights, bias = fit_number(rows, targets, self.strength)
        elif getattr(task, "several", False):
            weights, bias = fit_sets(self.classifier, rows, targets, self.strength, seed)
        else:
            weights, bias = fit_classes(
                self.classifier, rows, targets, space.size, self.strength, seed
            )
        # Rounded now, so that a saved and loaded model gives the same scores to the last bit.
        self.weights = np.ascontiguousarray(weights, dtype=np.float32)
        self.bias = np.ascontiguousarray(bias, dtype=np.float32)

    def view(self, family: str, texts: Any) -> Any:
        """What one family of n-grams reads of the texts: all of them, as they are."""
        return texts

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """Logits (n, C), or a standardised number (n, 1)."""
        assert len(self.bias), "fit or load comes first"
        if not len(texts):
            return np.zeros((0, len(self.bias)), dtype=np.float32)
        rows = _join(
            [grams.rows(self.view(name, texts)) for name, grams in self.families.items()]
        )  # fmt: skip
        found = rows @ self.weights  # (n, K)
        if found.shape[1] < len(self.bias):  # two classes: the first is where the scale begins
            found = np.concatenate([np.zeros_like(found), found], axis=1)
        return found + self.bias

    def contributions(self, text: str, direction: np.ndarray) -> list[tuple[int, int, float]]:
        """(start, end, weight) of the tokens; the weights sum to (scores − bias) · direction.

        `direction` (C,) says which score is asked about. What an n-gram adds is shared equally by
        its occurrences, and there by its tokens.
        """
        # Of two classes only the second has weights.
        columns = direction[-self.weights.shape[1] :]  # (K,)
        out, first = [], 0
        rows = _join([grams.rows([text]) for grams in self.families.values()])  # (1, V)
        values = dict(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))
        for grams in self.families.values():
            places = [(first + column, spans) for column, spans in grams.places(text)]
            count = Counter(column for column, _ in places)
            for column, spans in places:
                added = values[column] * float(self.weights[column] @ columns)
                share = added / count[column] / len(spans)
                out += [(start, end, share) for start, end in spans]
            first += len(grams.index)
        return out

    def parameters(self) -> int:
        """How many numbers were learned for the scores."""
        return self.weights.size + self.bias.size

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Refused: a row has one number for each of thousands of n-grams."""
        raise UserError(
            "A 'tfidf' model has no sentence vectors: its rows have one column for each of "
            f"{len(self.weights)} n-grams. Use another one, for example the recipe 'fasttext'."
        )

    def save(self, folder: Path) -> None:
        """Write weights.safetensors and vocabulary.json."""
        from safetensors.numpy import save_file

        terms = {name: list(grams.index) for name, grams in self.families.items()}
        text = json.dumps(terms, ensure_ascii=False, separators=(",", ":"))
        # surrogatepass: half a character in the training text must not stop the save.
        (folder / VOCABULARY).write_bytes(text.encode("utf-8", "surrogatepass"))
        arrays = {f"idf.{name}": grams.idf for name, grams in self.families.items()}
        save_file({"weights": self.weights, "bias": self.bias, **arrays}, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path, settings: dict[str, Any]) -> "TfIdf":
        """The model that `save` wrote, under the settings it was made with."""
        model = cls(**{key: value for key, value in settings.items() if key != "kind"})
        terms = _read_vocabulary(folder / VOCABULARY, list(model.families))
        names = {"weights", "bias", *(f"idf.{name}" for name in model.families)}
        arrays = read("tfidf", folder / WEIGHTS, names)
        for name, grams in model.families.items():
            grams.index = {term: i for i, term in enumerate(terms[name])}
            grams.idf = arrays[f"idf.{name}"]
            if not len(terms[name]) == len(grams.index) == len(grams.idf):
                raise damaged("tfidf", folder / VOCABULARY, f"its {name} do not match {WEIGHTS}")
        model.weights, model.bias = arrays["weights"], arrays["bias"]
        fits = model.weights.ndim == 2 and model.bias.ndim == 1
        if not fits or len(model.weights) != sum(map(len, terms.values())):
            raise damaged("tfidf", folder / WEIGHTS, f"its shapes do not match {VOCABULARY}")
        if model.weights.shape[1] not in ({1, 2} if len(model.bias) == 2 else {len(model.bias)}):
            raise damaged("tfidf", folder / WEIGHTS, "weights and bias do not match")
        return model


def _join(blocks: list["csr_matrix"]) -> "csr_matrix":
    from scipy.sparse import hstack

    return blocks[0] if len(blocks) == 1 else hstack(blocks, format="csr")


def _read_vocabulary(path: Path, families: list[str]) -> dict[str, list[str]]:
    try:
        terms = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError:
        raise damaged("tfidf", path, "the file is missing") from None
    except ValueError as error:  # covers bad UTF-8 and bad JSON
        raise damaged("tfidf", path, str(error)) from error
    if not isinstance(terms, dict) or sorted(terms) != sorted(families):
        raise damaged("tfidf", path, f"it should hold {' and '.join(families)}")
    for name, entries in terms.items():
        if not isinstance(entries, list) or not all(isinstance(e, str) for e in entries):
            raise damaged("tfidf", path, f"'{name}' is not a list of texts")
    return terms
