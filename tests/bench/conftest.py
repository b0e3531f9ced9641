"""The page of benchmark tables."""

import json

import pytest

from tests.fixtures.bench_tables import BENCH


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The ledger pages made of some lines, file by file."""
    monkeypatch.syspath_prepend(str(BENCH))
    import summary

    monkeypatch.setattr(summary, "RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()

    def page(**files: list[dict]) -> str:
        for name, lines in files.items():
            text = "\n".join(json.dumps(line) for line in lines)
            (tmp_path / "results" / f"{name}.jsonl").write_text(text, "utf-8")
        files = summary.results()
        return "\n".join(summary.ledger_page(page, files) for page in summary.LEDGER)

    return page
