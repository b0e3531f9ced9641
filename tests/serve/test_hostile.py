"""Hostile input: a clean 4xx, nothing leaked, and the server goes on answering."""

import base64
import contextlib
import hashlib
import json
import socket
import threading
import time

import pytest

from tests.fixtures import small
from tests.fixtures.servers import live_server
from weft import config, train

KEY = "correct-horse-battery-staple"
BYTES = 20_000  # of a body
CANARY = "zq-canary-text"  # must never be logged


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    recipe = config.recipe("tfidf").with_values({"data.train": str(small.file(folder))}, "test")
    train(recipe, folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def live(folder, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"# clients\nann {KEY}\nslow {KEY}-2 3\n", "utf-8")
    limits = {"max_bytes": BYTES, "max_texts": 10, "max_tokens": 2000, "max_connections": 40}
    with live_server(f"m={folder}", key_file=keys, **limits) as running:
        yield running


@pytest.fixture(autouse=True)
def still_answers(live):
    """After every case the server answers, its log has no text and its replies no internals."""
    yield
    reply = predict(live, {"text": f"good film {CANARY}"})
    assert reply.status == 200
    assert reply.json["answers"][0]["value"] == "positive"
    assert not any(CANARY in line or KEY in line for line in live.log)
    assert not any("Traceback" in line for line in live.log), live.log


def predict(live, body, path="/predict", **headers):
    sent = {
        "authorization": f"Bearer {KEY}",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    return live.post(path, body, headers=sent)


def check_clean(reply, status, *words):
    assert reply.status == status, reply.body
    about = reply.json["error"]
    assert about["code"] == status
    for word in words:
        assert word in about["message"]
    for leak in ("Traceback", ".py", "/weft/", "site-packages", "/tmp/"):
        assert leak.encode() not in reply.body
    assert reply.headers["x-request-id"]
    assert reply.headers["content-type"] == "application/json"


BAD_BODIES = [
    (b"", 400, "JSON"),
    (b"{", 400, "JSON"),
    (b"nonsense", 400, "JSON"),
    (b'{"text": "a"', 400, "JSON"),
    (b'{"text": "a"} trailing', 400, "JSON"),
    (b'{"text": "\xff\xfe"}', 400, "JSON"),
    (b'{"text": "\\ud800"}', 400, "JSON"),
    (b'{"text": "\\x00"}', 400, "JSON"),
    (b'\xef\xbb\xbf{"text": "a"}', 400, "JSON"),
    ('{"text": "a"}'.encode("utf-16"), 400, "JSON"),
    ('{"text": "a"}'.encode("utf-32"), 400, "JSON"),
    (b'{"text": NaN}', 400, "JSON"),
    (b'{"texts": [Infinity]}', 400, "JSON"),
    (b"[" * 5000, 400, "deep"),
    (b'{"text":' * 2000 + b"1" + b"}" * 2000, 400, "deep"),
    (b'{"texts": [' + b"[" * 200 + b"]" * 200 + b"]}", 400, "deep"),
    (b"[]", 422, "object"),
    (b'"text"', 422, "object"),
    (b"null", 422, "object"),
    (b"17", 422, "object"),
    (b"{}", 422, "text"),
    (b'{"text": null}', 422, "text"),
    (b'{"text": 17}', 422, "number"),
    (b'{"text": true}', 422, "true or false"),
    (b'{"text": ["a", "b"]}', 422, "list"),
    (b'{"text": {"text": "a"}}', 422, "object"),
    (b'{"text": {"words": ["a"]}}', 422, "object"),
    (b'{"texts": "a"}', 422, "array"),
    (b'{"texts": {"0": "a"}}', 422, "array"),
    (b'{"texts": ["a", null]}', 422, "text 2"),
    (b'{"text": "a", "texts": ["a"]}', 422, "texts"),
    (b'{"text": "a", "modle": "m"}', 422, "modle"),
    (b'{"text": "a", "model": 3}', 422, "model"),
    (b'{"text": "a", "all": "yes"}', 422, "all"),
    (b'{"text": "a", "abstain_at": 2}', 422, "abstain_at"),
    (b'{"text": "a", "abstain_at": 1e999}', 422, "abstain_at"),
    (b'{"text": "a", "label_sets": "0.9"}', 422, "label_sets"),
    (b'{"text": "a", "model": "n"}', 404, "Unknown model 'n'"),
    (b'{"text": "a", "model": "../../etc/passwd"}', 404, "Unknown model"),
    (b'{"text": "a", "model": "\\u0000"}', 404, "Unknown model"),
    (json.dumps({"text": "a", "model": "m" * 15000}).encode(), 404, "Unknown model"),
    (json.dumps({"texts": ["a"] * 11}).encode(), 422, "--max-texts"),
    (json.dumps({"text": "a" * 12000}).encode(), 413, "--max-tokens"),
    (json.dumps({"texts": ["é" * 500] * 9}, ensure_ascii=False).encode(), 413, "--max-tokens"),
    (json.dumps({"text": "a" * BYTES}).encode(), 413, "--max-bytes"),
    (json.dumps({"texts": ["a"] * 100_000}).encode(), 413, "--max-bytes"),
]


@pytest.mark.parametrize(("body", "status", "word"), BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_bad_bodies(live, body, status, word):
    check_clean(predict(live, body), status, word)


@pytest.mark.parametrize(
    "body",
    [
        {"text": "../../../etc/passwd"},
        {"text": "/etc/passwd"},
        {"text": "file:///etc/passwd"},
        {"text": "x.npz:key"},
        {"text": "{{7*7}} ${jndi:ldap://x} '; DROP TABLE texts; --"},
        {"text": "<script>alert(1)</script>"},
        {"text": "\u202e\u0000\x1b[31m\ufeff"},
        {"text": ""},
        {"texts": []},
        {"texts": [" ", "\n", "\t"]},
    ],
    ids=range(10),
)
def test_texts_are_only_texts(live, body):
    reply = predict(live, body)
    assert reply.status == 200
    assert len(reply.json["answers"]) == len(body.get("texts", [1]))
    assert b"root:" not in reply.body


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/predict/../../etc/passwd",
        "/v1/models/../../../etc/passwd", "/v1/models/%2e%2e%2fmodel.json", "/static/../keys.txt",
        "/.git/config", "//etc/passwd", "/predict/", "/%00", "/" + "a" * 4000, "/openapi.json/x",
        "/health?x=" + "y" * 4000 + "&", "/predict;a=b",
    ],
    ids=range(14),
)  # fmt: skip
def test_path_tricks(live, path):
    reply = live.get(path, headers={"authorization": f"Bearer {KEY}"})
    if path.startswith("/health"):
        assert reply.json == {"status": "ok"}
    else:
        check_clean(reply, 404)
        assert b"root:" not in reply.body


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/predict"), ("DELETE", "/predict"), ("PUT", "/v1/models"), ("POST", "/metrics"),
     ("TRACE", "/predict"), ("OPTIONS", "/v1/embeddings"), ("PATCH", "/health")],
)  # fmt: skip
def test_wrong_methods(live, method, path):
    reply = live.call(method, path, headers={"authorization": f"Bearer {KEY}"})
    check_clean(reply, 405, method)


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY[:-1]}",
     f"Bearer {KEY}x", f"Bearer {KEY.upper()}", "Bearer " + "k" * 5000, "Bearer \xe9\xff",
     f"Bearer {KEY},{KEY}"],
    ids=range(12),
)  # fmt: skip
def test_wrong_keys(live, authorization):
    headers = {"authorization": authorization} if authorization else {}
    for path in ("/predict", "/v1/embeddings"):
        reply = live.post(path, {"text": "a"}, headers=headers)
        check_clean(reply, 401)
        assert reply.headers["www-authenticate"] == "Bearer"
    assert live.get("/metrics", headers=headers).status == 401
    assert live.get("/health", headers=headers).status == 200


def test_a_key_has_its_rate(live):
    headers = {"authorization": f"Bearer {KEY}-2"}
    replies = [live.post("/predict", {"text": "good"}, headers=headers) for _ in range(8)]
    statuses = [reply.status for reply in replies]
    assert statuses[:3] == [200] * 3
    assert statuses.count(429) >= 3
    refused = next(reply for reply in replies if reply.status == 429)
    check_clean(refused, 429, "slow", "3 requests per second")
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({"content-encoding": "br"}, 415),
    ],
)
def test_other_media(live, headers, status):
    reply = live.post("/predict", b"\x1f\x8b\x08", headers={
        "authorization": f"Bearer {KEY}", **headers})  # fmt: skip
    check_clean(reply, status)


def test_a_request_id_cannot_forge_the_log(live):
    reply = predict(live, {"text": "a"}, x_request_id="ok-17")
    assert reply.headers["x-request-id"] == "ok-17"
    for bad in ('x","status":200', "a b", "x" * 65, "é"):
        reply = predict(live, {"text": "a"}, x_request_id=bad)
        assert reply.headers["x-request-id"] != bad
    assert all(json.loads(line)["time"] for line in live.log)


def head(*lines):
    return "\r\n".join((*lines, "", "")).encode("latin-1")


RAW = [
    b"\x00\x01\x02\x03\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    head("POST /predict HTTP/1.1", "host: x", "content-length: -1"),
    head("POST /predict HTTP/1.1", "host: x", "content-length: ten"),
    head("POST /predict HTTP/1.1", "host: x", "content-length: 3", "content-length: 4"),
    head("POST /predict HTTP/1.1", "host: x", "content-length: 3", "transfer-encoding: chunked"),
    head("POST /predict HTTP/1.1", "host: x", "transfer-encoding: chunked") + b"zz\r\nabc\r\n",
    head("GET /health HTTP/1.1", "host: x", "bad header: y"),
    head("GET /health HTTP/1.1", "host: x", "x: a\x00b"),
    head("GET /h\xe9alth HTTP/1.1", "host: x"),
]


@pytest.mark.parametrize("data", RAW, ids=range(len(RAW)))
def test_broken_http(live, data):
    reply = live.send_raw(data)
    assert reply.startswith(b"HTTP/1.1 4"), reply
    assert b"Traceback" not in reply


def test_floods_of_headers(live):
    many = head("GET /health HTTP/1.1", "host: x", *(f"x-{i}: {i}" for i in range(500)))
    assert live.send_raw(many).startswith(b"HTTP/1.1 431")
    long = head("GET /health HTTP/1.1", "host: x", "x: " + "y" * 500_000)
    assert live.send_raw(long)[:12] in (b"HTTP/1.1 431", b"")  # or reset while it was sent
    endless = b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 60_000
    assert live.send_raw(endless).startswith(b"HTTP/1.1 431")


def test_a_claimed_length_is_refused_before_the_body(live):
    lines = ("POST /predict HTTP/1.1", "host: x", f"authorization: Bearer {KEY}",
             "content-type: application/json")  # fmt: skip
    for length in ("99999999999", "9" * 18, str(BYTES + 1)):
        reply = live.send_raw(head(*lines, f"content-length: {length}"))
        assert reply.startswith(b"HTTP/1.1 413"), reply
    chunks = b"".join(b"1000\r\n" + b" " * 4096 + b"\r\n" for _ in range(8))
    reply = live.send_raw(head(*lines, "transfer-encoding: chunked") + chunks + b"0\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 413"), reply


def test_slow_senders_are_cut_off(live, monkeypatch):
    connection = live.server.config.http_protocol_class
    monkeypatch.setattr(connection, "request_seconds", 0.3)
    slow = (
        b"",  # connects and says nothing
        b"GET /health HTTP/1.1\r\nx: ",
        head("POST /predict HTTP/1.1", "host: x", f"authorization: Bearer {KEY}",
             "content-type: application/json", "content-length: 50"),
    )  # fmt: skip
    for data in slow:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", live.port), 5) as sock:
            sock.sendall(data)
            reply = b""
            while chunk := sock.recv(1000):
                reply += chunk
        assert reply.startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began > 0.2


def test_connections_are_limited(live):
    held = [socket.create_connection(("127.0.0.1", live.port), 5) for _ in range(60)]
    while len(live.server.server_state.connections) < 60:
        time.sleep(0.01)
    for sock in held[40:]:
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    time.sleep(0.3)
    refused = 0
    for sock in held:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            refused += sock.recv(1000).startswith(b"HTTP/1.1 503")
        sock.close()
    assert refused == 20
    while live.server.server_state.connections:
        time.sleep(0.01)


def test_new_clients_do_not_wait_for_as_many_turns_of_the_loop(live):
    accepted = threading.Event()
    counts = []

    def look(turns):
        counts.append(len(live.server.server_state.connections))
        if turns:
            live.server.loop.call_soon(look, turns - 1)
        else:
            accepted.set()

    def hold_up():
        held.extend(socket.create_connection(("127.0.0.1", live.port), 5) for _ in range(35))
        live.server.loop.call_soon(look, 4)

    held = []
    live.server.loop.call_soon_threadsafe(hold_up)
    assert accepted.wait(10)
    for sock in held:
        sock.close()
    assert counts[-1] >= 35, counts
    while live.server.server_state.connections:
        time.sleep(0.01)


def test_a_crowd_of_bad_clients_does_not_stop_a_good_one(live):
    def shout():
        for _ in range(5):
            live.send_raw(b"GET /" + b"x" * 1000)
            predict(live, b"[" * 1000)

    crowd = [threading.Thread(target=shout) for _ in range(8)]
    for one in crowd:
        one.start()
    statuses = [predict(live, {"text": "good film"}).status for _ in range(10)]
    for one in crowd:
        one.join()
    assert statuses == [200] * 10


def test_the_page_runs_its_own_script_only(live):
    reply = live.get("/")
    assert (reply.status, reply.headers["content-type"][:9]) == (200, "text/html")
    policy = reply.headers["content-security-policy"]
    script = reply.body.split(b"<script>")[1].split(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert b"http" not in script.replace(b"https://", b"")
