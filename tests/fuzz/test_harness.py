"""The harness itself: it notices every way to break the promise, and repeats what it did."""

from pathlib import Path
from random import Random

import pytest

from tests.fuzz import targets
from tests.fuzz.harness import damaged, fuzz
from tests.fuzz.mutate import MUTATORS

WAYS = {
    "_raises": "KeyError",
    "_hangs": "took longer than 0.2 s",
    "_eats": "MemoryError",
    "_dies": "died with status 7",
}


def test_every_way_to_fail_is_found(tmp_path: Path) -> None:
    for report in fuzz(list(WAYS), 8, keep=tmp_path):
        assert (report.inputs, len(report.failures)) == (2, 2)
        for failure in report.failures:
            assert WAYS[report.target] in failure["error"]
            assert (Path(failure["kept"]) / "data.txt").read_bytes() != b"sound " * 50


def test_an_input_depends_on_nothing_but_its_seed() -> None:
    seeds = targets.ALL["matrices"].seeds()
    for number in range(20):
        one, again = (damaged(seeds, Random(f"7:{number}")) for _ in range(2))
        assert one == again


@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda one: one.__name__)
def test_mutators_take_anything(mutator) -> None:
    for number, data in enumerate((b"", b"\n", b"a,b\n1,2\n", b'{"a": [1]}', b"\xff" * 7, b"PK")):
        for again in range(20):
            assert isinstance(mutator(data, Random(20 * number + again)), bytes)
