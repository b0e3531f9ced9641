"""Settings of sequence search: names, types and defaults. Importable without torch."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from weft.errors import UserError, unknown_name

Method = Literal["greedy", "beam", "sample"]
Normalise = Literal["none", "wu", "length"]
EarlyStopping = Literal["never", "likely", "full"]
GraphMode = Literal["auto", "compiled", "off"]
WeightDtype = Literal["float32", "int8"]


@dataclass(frozen=True)
class SearchSettings:
    """Search options; lengths count the tokens the search chooses, including eos."""

    method: Method = "beam"
    max_length: int = 200
    min_length: int = 0
    # beam
    num_beams: int = 5  # open hypotheses, and at most as many finished ones
    num_return: int = 1  # hypotheses to return
    # divide by ((5+n)/6)^length_penalty, by n^length_penalty, or not at all
    length_normalisation: Normalise = "wu"
    length_penalty: float = 0.6
    coverage_penalty: float = (
        0.0  # weight of the coverage penalty (Wu et al. 2016); needs attention
    )
    # never: until no open beam can win; likely: until none would win if it ended now; full: until
    # num_beams hypotheses have ended
    early_stopping: EarlyStopping = "never"
    num_beam_groups: int = 1  # diverse beam search: groups of num_beams / num_beam_groups beams
    # penalty per earlier group that chose the same token in this step
    diversity_penalty: float = 0.5
    # sample
    num_samples: int = 1  # per row
    temperature: float = 1.0
    top_k: int = 0  # keep the k most probable tokens; 0 = all
    top_p: float = 1.0  # nucleus sampling: keep the smallest set with this probability
    typical_p: float = 1.0  # typical sampling: keep this mass nearest to the entropy
    seed: int = 0
    # all
    repetition_penalty: float = 1.0  # of tokens that occurred before (Keskar et al. 2019)
    no_repeat_ngram_size: int = 0  # block repeated n-grams of this length; 0 = off
    drop_finished: bool = True  # drop finished rows from the batch
    # steps between checks for finished rows; 0 = 1 on a CPU, 8 elsewhere
    check_every: int = 0
    # On a GPU, "auto" replays CUDA graphs from the fourth step of a shape on and compiles a shape
    # after 50,000 steps; "compiled" compiles at once; "off" launches kernels one by one.
    cuda_graphs: GraphMode = "auto"
    # On a CPU, "int8" lets Transformers step with quantised weights: faster, less exact.
    weight_dtype: WeightDtype = "float32"

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            _check_type(name, hint, getattr(self, name))
        self._check_numbers()
        if self.num_return > self.num_beams:
            raise UserError(
                f"generate.num_return is {self.num_return}, but a search with "
                f"{self.num_beams} beams returns at most {self.num_beams}. Lower it, or raise "
                "generate.num_beams."
            )
        if self.num_beams % self.num_beam_groups:
            raise UserError(
                f"generate.num_beam_groups is {self.num_beam_groups}, which does not divide "
                f"generate.num_beams {self.num_beams}. All groups must have the same size."
            )
        if self.min_length > self.max_length:
            raise UserError(
                f"generate.min_length {self.min_length} is above generate.max_length "
                f"{self.max_length}. Lower generate.min_length or raise generate.max_length."
            )

    def _check_numbers(self) -> None:
        for name in ("max_length", "num_beams", "num_return", "num_beam_groups", "num_samples"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        penalties = ("coverage_penalty", "diversity_penalty")
        for name in ("min_length", "top_k", "no_repeat_ngram_size", "check_every", *penalties):
            self._require(name, getattr(self, name) >= 0, "0 or more")
        for name in ("top_p", "typical_p"):
            self._require(name, 0 < getattr(self, name) <= 1, "over 0 and at most 1 (1 = off)")
        self._require("repetition_penalty", self.repetition_penalty >= 1, "at least 1 (1 = off)")
        fix = "above 0; for the most probable token at each step use method = 'greedy'"
        self._require("temperature", self.temperature > 0, fix)

    def _require(self, name: str, good: bool, requirement: str) -> None:
        # `good` is False for NaN too; _check_type refuses infinity.
        if not good:
            raise UserError(f"generate.{name} is {getattr(self, name)}; it must be {requirement}.")


@cache  # every search builds settings, and resolving hints takes milliseconds
def _hints() -> dict[str, Any]:
    return get_type_hints(SearchSettings)


def _check_type(name: str, hint: Any, value: Any) -> None:
    """Raise a UserError for a value of the wrong type or an unknown choice."""
    if choices := get_args(hint):
        if value not in choices:
            raise unknown_name("choice", str(value), choices, f"generate.{name}")
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    good = {
        bool: isinstance(value, bool),
        int: number and isinstance(value, int),
        float: number and abs(value) < float("inf"),
    }[hint]
    if not good:
        plain = {bool: "true or false", int: "a whole number", float: "a number"}[hint]
        raise UserError(f"generate.{name} is {value!r}; it must be {plain}.")
