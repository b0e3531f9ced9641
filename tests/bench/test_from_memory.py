"""The benchmark of tables in memory, on a few rows: it must not fall behind the code."""

import json
import subprocess
import sys

from tests.fixtures.bench_tables import BENCH


def test_every_job_and_source_is_measured():
    command = [sys.executable, BENCH / "from_memory.py", "--limit", "50", "--repeats", "1"]
    done = subprocess.run(
        [*map(str, command), "--sources", "csv"], capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["question"].split()[0], line["source"]) for line in lines] == [
        ("read", "memory"), ("read", "csv"), ("check", "memory"), ("check", "csv"),
        ("spool", "memory"),
    ]  # fmt: skip
    assert all(line["rows"] == 50 and line["peak_mb"]["median"] > 0 for line in lines)
