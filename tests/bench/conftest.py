"""The page of benchmark tables."""

import json

import pytest

from tests.fixtures.bench_tables import BENCH


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The page that is made of some lines, file by file."""
    monkeypatch.syspath_prepend(str(BENCH))
    import summary

    monkeypatch.setattr(summary, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(summary, "PAGE", tmp_path / "page.md")
    (tmp_path / "results").mkdir()
    (tmp_path / "page.md").write_text(f"# Kept\n\n{summary.MARK}\n\nold\n", "utf-8")

    def page(**files: list[dict]) -> str:
        for name, lines in files.items():
            text = "\n".join(json.dumps(line) for line in lines)
            (tmp_path / "results" / f"{name}.jsonl").write_text(text, "utf-8")
        return summary.page()

    return page
