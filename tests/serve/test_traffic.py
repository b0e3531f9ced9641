"""Drift of live traffic."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.fixtures.servers import live_server
from weft import config, train
from weft.doctor.drift import BUCKETS, Fingerprint
from weft.serve import traffic
from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write


def test_live_texts_are_compared_with_training(tmp_path, monkeypatch):
    monkeypatch.setattr(traffic, "SAMPLE_SECONDS", 0.0)
    parts = generate_reviews()
    write(parts["train"][:600], tmp_path / "train.tsv")
    write(parts["dev"][:150], tmp_path / "dev.tsv")
    values = {"data.train": str(tmp_path / "train.tsv"), "data.dev": str(tmp_path / "dev.tsv")}
    train(config.recipe("tfidf").with_values(values, "test"), tmp_path / "run", quiet=True)
    with live_server(tmp_path / "run") as live:
        assert live.get("/drift").json["models"]["run"]["p"] == 1.0
        for example in parts["test"][:60]:
            live.post("/predict", {"text": example.text})
        usual = live.get("/drift").json["models"]["run"]
        assert usual["texts"] == 60
        assert usual["p"] > 0.01
        for i in range(60):
            live.post("/predict", {"text": f"quarterly revenue of unit {i} fell"})
        drifted = live.get("/drift").json["models"]["run"]
        assert drifted["p"] < 1e-6
        assert drifted["traits"]["surprise"]["distance"] > 0.4
        text = live.get("/metrics").body.decode()
        assert 'weft_drift_distance{model="run",trait="surprise"}' in text
        distance = live.metric("weft_drift_distance", model="run", trait="surprise")
        assert distance == pytest.approx(drifted["traits"]["surprise"]["distance"])


def test_what_the_comparison_needs_is_imported_before_the_first_answer(tmp_path):
    """A third of a second in the event loop while clients wait, and 40 MB, are not for later."""
    Fingerprint(np.ones(BUCKETS), {}, {}).save(tmp_path)
    lines = (
        "import sys; from pathlib import Path",
        "from weft.doctor.drift import load_fingerprint; from weft.serve.traffic import Traffic",
        "assert 'scipy.stats' not in sys.modules",
        f"Traffic(load_fingerprint(Path({str(tmp_path)!r})), ())",
        "assert 'scipy.stats' in sys.modules",
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, env=environment)
