"""Every reader of data files keeps the promise on damaged files; more by `python -m tests.fuzz`."""

from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.harness import fuzz
from tests.fuzz.readers import NAMES

INPUTS = 300


def test_a_clean_result_or_a_user_error(tmp_path: Path) -> None:
    reports = fuzz(NAMES, INPUTS, seed=0, keep=tmp_path)
    assert [line for report in reports if report.failures for line in report.lines()] == []
    assert {report.target for report in reports} <= set(targets.SOUND)
    assert sum(report.clean for report in reports) > INPUTS / 5  # damage is not all there is
    assert sum(report.refused for report in reports) > INPUTS / 5
