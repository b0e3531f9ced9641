"""The settings of a search for sequences: names, types and defaults. Importable without torch."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from weft.errors import UserError, unknown_name

Method = Literal["greedy", "beam", "sample"]
Normalise = Literal["none", "wu", "length"]
Stop = Literal["exact", "likely", "full"]
GraphMode = Literal["auto", "compiled", "off"]
WeightDtype = Literal["float32", "int8"]


@dataclass(frozen=True)
class SearchSettings:
    """How sequences are searched for; lengths count what the search chooses, eos included."""

    method: Method = "beam"
    max_length: int = 200  # longest sequence
    min_length: int = 0  # shortest sequence
    # beam
    num_beams: int = 5  # open hypotheses, and at most as many finished ones
    num_return: int = 1  # hypotheses that come back
    # divide by ((5+n)/6)^length_penalty, by n^length_penalty, or by nothing
    length_normalisation: Normalise = "wu"
    length_penalty: float = 0.6
    coverage_penalty: float = 0.0  # weight of Wu's coverage penalty; needs attention
    # exact: no open beam can still win; likely: none would if it ended now; full: enough ended
    stop: Stop = "exact"
    num_beam_groups: int = 1  # of diverse beam search, each with num_beams / num_beam_groups
    # what a token costs for each time an earlier group took it in this step
    diversity_penalty: float = 0.5
    # sample
    num_samples: int = 1  # for each row
    temperature: float = 1.0
    top_k: int = 0  # only this many tokens; 0 = all
    top_p: float = 1.0  # only the likeliest tokens that hold this mass
    typical_p: float = 1.0  # only the tokens nearest the expected surprise that hold this mass
    seed: int = 0
    # all
    repetition_penalty: float = 1.0  # Keskar's penalty of tokens that came before
    no_repeat_ngram_size: int = 0  # no n-gram of this length may come twice; 0 = off
    drop_finished: bool = True  # rows that are finished leave the batch
    # steps between looks at what is finished; 0 = 1 on a processor, 8 elsewhere
    check_every: int = 0
    # On a GPU: steps as graphs of the device, from the fourth of a shape on, and whole steps
    # compiled once a shape had 50,000; from the first with "compiled"; one by one with "off".
    cuda_graphs: GraphMode = "auto"
    # On a processor: "int8" lets Transformers step with rounded weights, faster and less exactly.
    weight_dtype: WeightDtype = "float32"

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            _check_type(name, hint, getattr(self, name))
        self._check_numbers()
        if self.num_return > self.num_beams:
            raise UserError(
                f"generate.num_return is {self.num_return}, but a search with "
                f"{self.num_beams} beams finds at most {self.num_beams}. Lower it, or raise "
                "generate.num_beams."
            )
        if self.num_beams % self.num_beam_groups:
            raise UserError(
                f"generate.num_beam_groups is {self.num_beam_groups}, which does not divide "
                f"generate.num_beams {self.num_beams}: the groups must be of equal size."
            )
        if self.min_length > self.max_length:
            raise UserError(
                f"generate.min_length {self.min_length} is over generate.max_length "
                f"{self.max_length}: no sequence is both that long and that short."
            )

    def _check_numbers(self) -> None:
        for name in ("max_length", "num_beams", "num_return", "num_beam_groups", "num_samples"):
            self._want(name, getattr(self, name) >= 1, "at least 1")
        penalties = ("coverage_penalty", "diversity_penalty")
        for name in ("min_length", "top_k", "no_repeat_ngram_size", "check_every", *penalties):
            self._want(name, getattr(self, name) >= 0, "0 or more")
        for name in ("top_p", "typical_p"):
            self._want(name, 0 < getattr(self, name) <= 1, "over 0 and at most 1 (1 = off)")
        self._want("repetition_penalty", self.repetition_penalty >= 1, "at least 1 (1 = off)")
        fix = "over 0; for the likeliest token at each step use method = 'greedy'"
        self._want("temperature", self.temperature > 0, fix)

    def _want(self, name: str, good: bool, wanted: str) -> None:
        # `good` is False for NaN as well; infinity is refused by its kind.
        if not good:
            raise UserError(f"generate.{name} is {getattr(self, name)}; it must be {wanted}.")


@cache  # settings are made for every search, and hints take milliseconds
def _hints() -> dict[str, Any]:
    return get_type_hints(SearchSettings)


def _check_type(name: str, hint: Any, value: Any) -> None:
    """A UserError for a value of another type, or a choice that is not known."""
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
