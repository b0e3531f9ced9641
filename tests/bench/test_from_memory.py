"""The benchmark of tables in memory, on a few rows: it must not fall behind the code."""

import json
import subprocess
import sys

from tests.fixtures.bench_tables import BENCH


def test_a_job_is_measured_in_a_process_of_its_own():
    command = [sys.executable, BENCH / "from_memory.py", "--limit", "50", "--repeats", "1"]
    done = subprocess.run(
        [*map(str, command), "--jobs", "read", "--sources", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["question"], line["source"]) for line in lines] == [
        ("read from memory", "memory"), ("read from memory", "csv"),
    ]  # fmt: skip
    assert all(line["rows"] == 50 and line["peak_mb"]["median"] > 0 for line in lines)
    assert lines[1]["memory / file, seconds"]["n"] == 1


def test_every_job_runs_on_every_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import from_memory

    frame = from_memory.generate(50)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    sources = ["memory", "parquet", "csv"]
    for job in from_memory.JOBS:
        for source in sources if job != "spool" else sources[:1]:
            found = from_memory.measure(job, source, tmp_path)
            assert found["rows"] == 50, (job, source)
            assert found["seconds"] > 0
    weights = (tmp_path / f"run-{source}" / "model" / "weights.safetensors" for source in sources)
    assert len({file.read_bytes() for file in weights}) == 1
