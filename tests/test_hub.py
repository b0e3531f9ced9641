"""Push models to folders and to the Hub, here a server on this machine; load them from there."""

import base64
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import weft
from tests.fixtures import small
from weft import hub
from weft.cli.main import app
from weft.errors import UserError

huggingface_hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")  # the package loads it lazily
FILES = {"README.md", "golden.jsonl", "labels.json", "model.json", "record.json"} | {
    "vocabulary.json",
    "weights.safetensors",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    changes = {"data.train": str(small.file(folder))}
    weft.train("tfidf", folder / "run", changes=changes, quiet=True)
    return folder / "run"


class Server(BaseHTTPRequestHandler):
    """As much of the Hub's API as a push needs."""

    def do_GET(self):
        found = self.server.repositories.get(self.path.removeprefix("/api/models/"))
        if found is None:
            self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        else:
            self.answer(200, {"id": "o/n", "private": found["private"], "siblings": []})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.tokens.append(self.headers.get("Authorization"))
        if self.server.refuse:
            self.answer(403, {"error": "no"})
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            private = asked.get("private") or asked.get("visibility") == "private"
            self.server.repositories[name] = {"private": private, "branches": []}
            self.answer(200, {"url": f"https://huggingface.co/{name}"})
        elif self.path == "/api/validate-yaml":  # of README.md, before a commit
            data = huggingface_hub.ModelCard(json.loads(body)["content"]).data
            self.answer(200 if data.library_name == "weft" else 400, {"errors": [], "warnings": []})
        elif "/branch/" in self.path:
            self.server.branches.append(self.path.rpartition("/")[2])
            self.answer(200, {})
        elif "/preupload/" in self.path:
            names = [one["path"] for one in json.loads(body)["files"]]
            modes = [
                {"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names
            ]
            self.answer(200, {"files": modes})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                one = json.loads(line)
                if one["key"] == "file":
                    content = base64.b64decode(one["value"]["content"])
                    self.server.files[one["value"]["path"]] = content
            self.server.revisions.append(self.path.rpartition("/")[2])
            url = "https://huggingface.co/o/n/commit/0"
            self.answer(200, {"commitUrl": url, "commitOid": "0", "success": True})
        else:
            self.answer(400, {"error": self.path})

    def answer(self, status, value, headers=()):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in dict(headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    found = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    found.repositories, found.files, found.refuse = {}, {}, False
    found.branches, found.revisions, found.tokens = [], [], []
    threading.Thread(target=found.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{found.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield found
    found.shutdown()
    found.server_close()


def test_push_to_a_folder_and_load_it(folder, tmp_path):
    done = weft.push(folder, tmp_path / "shared")
    assert set(done.files) == FILES
    present = {path.name for path in (tmp_path / "shared").iterdir()}
    assert present == FILES | {".gitattributes"}
    texts = ["a good film", "bad"]
    assert weft.load(tmp_path / "shared")(texts) == weft.load(folder)(texts)
    assert done.size == sum((tmp_path / "shared" / name).stat().st_size for name in FILES)


def test_only_files_of_a_model_are_pushed(folder, tmp_path):
    import shutil

    model = tmp_path / "model"
    shutil.copytree(folder / "model", model)
    for name in ("notes.txt", ".env", "train.tsv", "checkpoints/last.safetensors", "x.safetensors"):
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).write_text("secret")
    done = weft.push(model, f"file:{tmp_path / 'shared'}")
    assert set(done.files) == FILES
    assert set(done.left_out) == {
        *("notes.txt", ".env", "train.tsv", "checkpoints/last.safetensors", "x.safetensors")
    }
    assert b"secret" not in b"".join(p.read_bytes() for p in (tmp_path / "shared").iterdir())


def test_ensembles_bring_their_members(folder, tmp_path):
    weft.ensemble([folder, folder], tmp_path / "both")
    (tmp_path / "both" / "members" / "0" / "more.txt").write_text("x")
    done = weft.push(tmp_path / "both", tmp_path / "shared")
    assert {name for name in done.files if name.startswith("members/1/")} == {
        f"members/1/{name}" for name in FILES
    }
    assert done.left_out == ("members/0/more.txt",)
    weft.load(tmp_path / "shared")


def test_a_dry_run_changes_nothing(folder, tmp_path, monkeypatch):
    def upload(*given):
        raise AssertionError

    monkeypatch.setattr(hub, "_upload", upload)
    for target in (str(tmp_path / "shared"), "hf:o/n"):
        done = weft.push(folder, target, dry_run=True)
        assert set(done.files) == FILES
        assert not done.done
    assert list(tmp_path.iterdir()) == []


def test_recorded_texts_can_stay_here(folder, tmp_path):
    done = weft.push(folder, tmp_path / "with")
    assert any("golden.jsonl holds 5 texts" in note for note in done.notes)
    done = weft.push(folder, tmp_path / "without", golden=False)
    assert not any("golden.jsonl" in note for note in done.notes)
    assert (tmp_path / "without" / "golden.jsonl").read_bytes() == b""
    card = (tmp_path / "without" / "README.md").read_text("utf-8")
    assert "golden.jsonl" not in card
    assert "## Results" in card
    with pytest.warns(UserWarning, match="no recorded answers"):
        weft.load(tmp_path / "without")


def test_a_second_push_replaces_the_first(folder, tmp_path):
    weft.push(folder, tmp_path / "shared")
    (tmp_path / "shared" / "tokenizer.json").write_text("{}")  # of an earlier, neural model
    (tmp_path / "shared" / "mine.txt").write_text("x")
    weft.push(folder, tmp_path / "shared")
    assert not (tmp_path / "shared" / "tokenizer.json").exists()
    assert (tmp_path / "shared" / "mine.txt").exists()


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("o/n", {}, "Write hf:o/n for the Hub, file:o/n for a folder"),
        ("hf:n", {}, "names no repository: write hf:ORGANISATION/NAME"),
        ("hf:o/n/m", {}, "names no repository"),
        ("file:", {}, "names no folder"),
        ("{tmp}/x", {"private": True}, "--private is for the Hub"),
        ("{tmp}/x", {"revision": "v1"}, "--revision is for the Hub"),
        ("{run}/model", {}, "overlap"),
        ("{run}", {}, "overlap"),
        ("{run}/model/inside", {}, "overlap"),
        ("{tmp}/full", {}, "is not empty and holds no model"),
        ("{tmp}/full/a.txt", {}, "is a file"),
    ],
)
def test_clear_mistakes_are_refused(folder, tmp_path, target, options, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("x")
    with pytest.raises(UserError) as caught:
        weft.push(folder, target.format(tmp=tmp_path, run=folder), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="not a model folder"):
        weft.push(tmp_path, "hf:o/n")


@pytest.mark.skipif(os.name == "nt", reason="links need rights")
def test_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    import shutil

    shutil.copytree(folder / "model", tmp_path / "model")
    (tmp_path / "model" / "labels.json").unlink()
    (tmp_path / "model" / "labels.json").symlink_to(folder / "model" / "labels.json")
    with pytest.raises(UserError, match="a link to a file outside"):
        weft.push(tmp_path / "model", tmp_path / "shared")


def test_push_to_the_hub(folder, server):
    done = weft.push(folder, "hf:o/n", private=True, revision="v1")
    assert server.repositories["o/n"]["private"]
    assert server.branches == server.revisions == ["v1"]
    assert set(server.tokens) == {"Bearer hf_test"}
    assert done.done
    assert set(server.files) == FILES
    for name, content in server.files.items():
        assert content == (folder / "model" / name).read_bytes(), name


def test_private_does_not_push_to_a_public_repository(folder, server):
    server.repositories["o/n"] = {"private": False}
    with pytest.raises(UserError, match="exists and is public"):
        weft.push(folder, "hf:o/n", private=True)
    assert server.files == {}
    weft.push(folder, "hf:o/n")
    assert set(server.files) == FILES


def test_errors_of_the_hub_are_one_line(folder, server, monkeypatch):
    server.refuse = True
    with pytest.raises(
        UserError, match=r"does not let you write to o/n \(HTTP 403\)\. Log in"
    ) as caught:
        weft.push(folder, "hf:o/n")
    assert "\n" not in str(caught.value)
    server.shutdown()
    server.server_close()
    with pytest.raises(UserError, match="Pushing to o/n failed: "):
        weft.push(folder, "hf:o/n")


def test_without_the_package(folder, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'weft\[hub\]'"):
        weft.push(folder, "hf:o/n")


def test_a_model_of_the_hub_is_loaded_by_name(folder, monkeypatch):
    heard = []

    def fetch(repository, revision, allow_patterns):
        heard.append((repository, revision))
        paths = (folder / "model").iterdir()
        names = {path.name for path in paths}
        kept = set(huggingface_hub.utils.filter_repo_objects(names, allow_patterns=allow_patterns))
        assert names - kept == {"README.md"}
        nested = [f"members/0/{name}" for name in ("model.json", "golden.jsonl", "x.safetensors")]
        filtered = huggingface_hub.utils.filter_repo_objects(nested, allow_patterns=allow_patterns)
        assert list(filtered) == nested
        return str(folder / "model")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    texts = ["a good film"]
    assert weft.load("hf:o/n@v1")(texts) == weft.load(folder)(texts)
    assert heard == [("o/n", "v1")]
    with pytest.raises(UserError, match="names no repository"):
        weft.load("hf:a b")


def test_the_command_lists_files_and_sizes(folder, tmp_path):
    from typer.testing import CliRunner

    run = CliRunner().invoke(app, ["push", str(folder), "hf:o/n", "--dry-run"])
    assert run.exit_code == 0
    assert [line.split()[0] for line in run.stdout.splitlines()] == sorted(FILES)
    assert "7 files" in run.stderr
    assert "would be pushed to https://huggingface.co/o/n" in run.stderr
    run = CliRunner().invoke(app, ["push", str(folder), str(tmp_path / "x"), "--json"])
    assert json.loads(run.stdout)["files"].keys() == FILES
