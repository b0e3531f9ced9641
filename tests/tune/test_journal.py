"""A search in a journal, as on a disk that machines share: the same trials, and a killed writer."""

import pytest

from tests.fixtures.searches import STRENGTH, run, settings, tfidf
from weft.errors import UserError
from weft.tune.study import Study


def test_journal_gives_the_trials_of_the_database_also_after_half_a_line(tmp_path):
    base, out = tfidf(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "study.jsonl").touch()
    run(base, out, STRENGTH, trials=2)
    with open(out / "study.jsonl", "a") as file:
        file.write('{"op_code": 4, "worker_')  # its writer was killed
    found = run(base, out, STRENGTH, trials=4)
    assert not (out / "study.db").exists()
    assert '"worker_\n' not in (out / "study.jsonl").read_text()
    whole = run(base, tmp_path / "whole", STRENGTH, trials=4)
    assert (tmp_path / "whole" / "study.db").exists()
    assert settings(found) == settings(whole)
    assert [row.value for row in found.rows] == [row.value for row in whole.rows]


def test_search_in_a_database_is_not_shared(tmp_path):
    run(tfidf(tmp_path), tmp_path / "out", STRENGTH, trials=1)
    with pytest.raises(UserError, match=r"out holds a search in study\.db, which machines cannot"):
        Study(tmp_path / "out", shared=True)
