"""Ready, reload, drain, stop: no request is lost, and none is answered by a wrong model."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.fixtures import small
from tests.fixtures.servers import live_server
from weft import config, train
from weft.errors import UserError
from weft.serve.keys import read_keys
from weft.serve.server import open_socket
from weft.serve.service import Service, name_models
from weft.serve.settings import ServeSettings


def train_model(folder, flip=False):
    path = small.file(folder)
    if flip:
        text = path.read_text("utf-8")
        swapped = text.replace("positive\t", "x\t").replace("negative\t", "positive\t")
        path.write_text(swapped.replace("x\t", "negative\t"), "utf-8")
    recipe = config.recipe("tfidf").with_values({"data.train": str(path)}, "test")
    train(recipe, folder / "run", quiet=True)
    return folder / "run" / "model"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model and one that gives the opposite answers."""
    return [train_model(tmp_path_factory.mktemp(name), name == "flipped")
            for name in ("plain", "flipped")]  # fmt: skip


class Crowd:
    """Clients that send one request after the other and keep the answers."""

    def __init__(self, live, clients=8):
        self.live, self.values, self.errors = live, [], []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.ask) for _ in range(clients)]

    def ask(self):
        while not self.stopping.is_set():
            try:
                reply = self.live.post("/predict", {"text": "the film was good"})
            except ConnectionRefusedError:
                return  # the server has closed its port
            if reply.status != 200:
                self.errors.append(reply.body)
                return
            self.values.append(reply.json["answers"][0]["value"])

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def wait_for(self, count):
        end = time.monotonic() + 20
        while len(self.values) < count and time.monotonic() < end:
            time.sleep(0.005)


def reload(live, name=""):
    work = live.service.reload(name)
    return asyncio.run_coroutine_threadsafe(work, live.server.loop).result(20)


def test_a_reload_swaps_without_a_lost_or_wrong_answer(models, tmp_path):
    shutil.copytree(models[0], tmp_path / "m")
    with live_server(tmp_path / "m") as live, Crowd(live) as crowd:
        crowd.wait_for(40)
        before = len(crowd.values)
        shutil.rmtree(tmp_path / "m")
        shutil.copytree(models[1], tmp_path / "m")
        assert crowd.values[:before] == ["positive"] * before
        assert reload(live) == ["m"]
        crowd.wait_for(len(crowd.values) + 60)
        assert live.metric("weft_reloads_total", result="done") == 1
    assert crowd.errors == []
    assert set(crowd.values) == {"positive", "negative"}
    assert crowd.values[-20:] == ["negative"] * 20


def test_a_drifting_model_is_refused(models, tmp_path):
    shutil.copytree(models[0], tmp_path / "m")
    with live_server(tmp_path / "m") as live:
        golden = tmp_path / "m" / "golden.jsonl"
        rows = [json.loads(line) for line in golden.read_text("utf-8").splitlines()]
        for row in rows:
            row["scores"] = row["scores"][::-1]
        golden.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        with pytest.raises(UserError, match="differ from those recorded"):
            reload(live)
        assert live.metric("weft_reloads_total", result="refused") == 1
        assert live.get("/ready").status == 200
        reply = live.post("/predict", {"text": "the film was good"})
        assert reply.json["answers"][0]["value"] == "positive"


def test_the_admin_key_reloads(models, tmp_path):
    shutil.copytree(models[0], tmp_path / "m")
    keys = tmp_path / "keys"
    keys.write_text(f"ann {'a' * 20}\nadmin {'b' * 20}\n", "utf-8")
    with live_server(tmp_path / "m", key_file=keys) as live:

        def ask(key):
            return live.post("/admin/reload", {}, headers={"authorization": f"Bearer {key * 20}"})

        assert ask("a").status == 403
        assert ask("c").status == 401
        assert ask("b").json == {"reloaded": ["m"]}
        (tmp_path / "m" / "golden.jsonl").unlink()
        assert (ask("b").status, live.get("/ready").status) == (409, 200)
    with live_server(models[0]) as live:
        assert live.post("/admin/reload", {}).status == 403


def test_a_stopping_server_answers_what_is_on_the_way(models):
    with live_server(models[0]) as live:
        slow = threading.Event()
        run = live.service.models["run"].predictor.engine.predict

        def wait(inputs, parts=False):
            slow.wait(10)
            return run(inputs, parts)

        live.service.models["run"].predictor.engine.predict = wait
        replies = []
        clients = [
            threading.Thread(
                target=lambda: replies.append(live.post("/predict", {"text": "good film"}))
            )
            for _ in range(64)
        ]
        for client in clients:
            client.start()
        while live.service.compute.depth < 64:
            time.sleep(0.01)
        live.server.loop.call_soon_threadsafe(live.server.stop)
        time.sleep(0.1)
        reply = live.get("/ready")
        assert (reply.status, reply.headers["connection"]) == (503, "close")
        assert live.get("/health").status == 200
        slow.set()
        for client in clients:
            client.join()
        assert [reply.status for reply in replies] == [200] * 64
        assert {reply.json["answers"][0]["value"] for reply in replies} == {"positive"}


def test_disconnected_clients_are_not_computed(models):
    with live_server(models[0]) as live:
        entered, slow, texts = threading.Event(), threading.Event(), []
        run = live.service.models["run"].predictor.engine.predict

        def wait(inputs, parts=False):
            entered.set()
            slow.wait(10)
            texts.extend(inputs)
            return run(inputs, parts)

        live.service.models["run"].predictor.engine.predict = wait
        first = threading.Thread(target=lambda: live.post("/predict", {"text": "first"}))
        first.start()
        entered.wait(10)
        gone = [live.send_and_hold("/predict", {"text": "gone"}) for _ in range(40)]
        while live.service.compute.depth < 41:
            time.sleep(0.01)
        for sock in gone:
            sock.close()
        while len(live.server.server_state.connections) > 1:
            time.sleep(0.01)
        slow.set()
        first.join()
        assert live.post("/predict", {"text": "good"}).status == 200
        assert texts == ["first", "good"]
        assert live.metric("weft_dropped_total", reason="disconnected") == 40


def test_a_server_is_not_ready_while_it_loads(models, tmp_path):
    with live_server(models[0], wait=False) as live:
        live.wait_until_ready()
    with pytest.raises(AssertionError, match="no such model folder"), live_server(tmp_path / "x"):
        pass


def test_other_hosts_need_keys(models, tmp_path):
    sources = name_models([str(models[0])])
    with pytest.raises(UserError, match="--key-file FILE"):
        Service(sources, ServeSettings(host="0.0.0.0"))
    Service(sources, ServeSettings(host="0.0.0.0", no_auth=True))
    keys = tmp_path / "keys.txt"
    for text, message in (
        ("ann short\n", "fewer than 16"),
        ("ann\n", "1 field"),
        (f"a {'k' * 16}\na {'j' * 16}\n", "second key"),
        (f"a {'k' * 16} fast\n", "above 0"),
        ("# none\n", "no key"),
    ):
        keys.write_text(text, "utf-8")
        with pytest.raises(UserError, match=message):
            read_keys(keys)


def test_a_page_elsewhere_cannot_use_a_server_without_keys(models):
    with live_server(models[0]) as live:
        body = {"text": "good"}
        assert live.post("/predict", body, headers={"host": "evil.example"}).status == 403
        assert live.post("/predict", body, headers={"host": "localhost:80"}).status == 200
        simple = live.post("/predict", body, headers={"content-type": "text/plain"})
        assert simple.status == 415


def test_names_and_addresses():
    assert [(m.name, m.folder) for m in name_models(["runs/a", "b=x/y", "runs/c/model"])] == [
        ("a", "runs/a"), ("b", "x/y"), ("c", "runs/c/model"),
    ]  # fmt: skip
    with pytest.raises(UserError, match="Two models are called 'a'"):
        name_models(["x/a", "y/a"])
    taken = open_socket("127.0.0.1", 0)
    taken.listen()
    with pytest.raises(UserError, match="Choose another --port"):
        open_socket("127.0.0.1", taken.getsockname()[1])
    taken.close()
    with pytest.raises(UserError, match="--max-queue should be 1 or more"):
        ServeSettings(max_queue=0)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_command_handles_signals(models):
    command = [sys.executable, "-m", "weft", "serve", f"m={models[0]}", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("serving m at http://127.0.0.1:")
        process.send_signal(signal.SIGHUP)
        assert json.loads(process.stderr.readline())["event"] == "reload"
        process.send_signal(signal.SIGTERM)
        out = process.communicate(timeout=20)[1]
        assert json.loads(out.splitlines()[0])["event"] == "draining"
        assert process.returncode == 0
    finally:
        process.kill()
