"""Exports are served where torch is not installed, with the answers of their models."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.fixtures.exported import untrained
from tests.fixtures.servers import live_server
from weft import load
from weft.export.write import export_onnx
from weft.serve.service import ModelSource
from weft.serve.workers import modules_to_import

SERVE_WITHOUT_TORCH = """
import sys
for name in ("torch", "scipy", "sklearn", "numba", "matplotlib"):
    sys.modules[name] = None
from weft.cli.main import main
sys.argv = ["weft", "serve", *sys.argv[1:]]
main()
"""
TEXT = "the bank of the river"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, parts in (("words", {"encoder": "rnn"}), ("tags", {"task": "tag"})):
        model = untrained(folder / name, **parts)
        export_onnx(model, folder / f"{name}-export")
    return folder


def post(url, route, body):
    request = urllib.request.Request(
        url + route, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM")
def test_a_server_needs_no_torch(folders):
    sources = [f"{name}={folders / name}-export" for name in ("words", "tags")]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE_WITHOUT_TORCH, *sources, "--port", "0", "--no-access-log"],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        line = process.stderr.readline()
        assert line.startswith("serving words, tags at http"), line + process.stderr.read()
        url = line.split()[-1].rstrip("/")
        for name in ("words", "tags"):
            (answer,) = post(url, "/predict", {"text": TEXT, "model": name})["answers"]
            (expected,) = load(folders / name)([TEXT])
            assert answer["value"] == json.loads(json.dumps(expected.value))
        explained = post(url, "/explain", {"text": TEXT, "model": "words"})["explanations"]
        assert [row["method"] for row in explained] == ["occlusion"]
        assert len(explained[0]["words"]) == 5
        data = post(url, "/v1/embeddings", {"input": TEXT, "model": "words"})["data"]
        assert len(data[0]["embedding"]) == load(folders / "words").embed([TEXT]).shape[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_what_an_export_cannot_explain_is_an_error(folders):
    with live_server(f"tags={folders / 'tags-export'}") as live:
        reply = live.post("/explain", {"text": TEXT})
        assert reply.status == 422
        assert "Explain the model that this one was made from" in reply.message


def test_workers_import_torch_for_networks_only(folders):
    def imported(name):
        return "weft.predict.neural" in modules_to_import([ModelSource("m", str(folders / name))])

    assert imported("words")
    assert not imported("words-export")
