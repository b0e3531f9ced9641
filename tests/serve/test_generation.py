"""Generation, completions and embeddings, also through OpenAI's own client."""

import base64
import json
import time

import numpy as np
import pytest

from tests.fixtures.command import command
from tests.fixtures.recipe_runs import train_tiny
from tests.fixtures.servers import live_server

openai = pytest.importorskip("openai")
PROMPT = "the cat sees"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    cases = {
        "lm": ("rnn-lm", "language"), "copy": ("seq2seq", "seq2seq"), "text": ("cnn", "classify"),
        "vectors": ("seq2seq-vectors", "seq2seq"),
    }  # fmt: skip
    folders = {name: tmp_path_factory.mktemp(name) for name in cases}
    return {
        name: (train_tiny(recipe, task, folders[name], {})[0], folders[name] / "run")
        for name, (recipe, task) in cases.items()
    }


@pytest.fixture(scope="module")
def live(trained):
    models = [f"{name}={folder}" for name, (_, folder) in trained.items()]
    with live_server(*models, max_new_tokens=500) as running:
        yield running


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def events(body):
    """The data of server-sent events; the last one marks the end."""
    rows = [row.removeprefix("data: ") for row in body.decode().split("\n\n") if row]
    assert rows[-1] == "[DONE]"
    return [json.loads(row) for row in rows[:-1]]


def test_generated_texts_are_those_of_the_command(live, trained):
    for name, prompt, options in (
        ("lm", PROMPT, {"method": "greedy", "max_length": 7}),
        ("lm", PROMPT, {"method": "sample", "seed": 5, "temperature": 1.5, "max_length": 7}),
        ("copy", "a b c", {}),
        ("copy", "a b c", {"num_beams": 3, "num_return": 3}),
    ):
        reply = live.post("/generate", {"model": name, "prompt": prompt, **options})
        flags = [flag for key, value in options.items()
                 for flag in (f"--{key.replace('_', '-')}", str(value))]  # fmt: skip
        printed = command("generate", trained[name][1], prompt, "--json", *flags)
        assert printed.status == 0, printed.err
        assert reply.json["texts"] == [json.loads(line) for line in printed.lines]


def test_a_stream_is_the_same_text(live):
    body = {"model": "lm", "prompt": PROMPT, "method": "sample", "seed": 3, "max_length": 20}
    whole = live.post("/generate", body).json["texts"][0]
    reply = live.post("/generate", {**body, "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    tokens = events(reply.body)
    assert "".join(token["text"] for token in tokens) == whole["text"]
    assert [token["id"] for token in tokens] == [token["id"] for token in whole["tokens"]]
    found = [token["probability"] for token in tokens]
    assert found == pytest.approx([token["probability"] for token in whole["tokens"]], rel=1e-4)


def test_matrices_are_read_and_names_of_files_are_not(live, trained):
    matrix = np.eye(3)[[2, 0, 1]]
    (answer,) = live.post("/predict", {"model": "vectors", "text": matrix.tolist()}).json["answers"]
    assert answer["value"] == trained["vectors"][0]([matrix])[0].value
    for path in ("/predict", "/generate"):
        key = "text" if path == "/predict" else "prompt"
        for bad in ("0.npy", "/etc/passwd", "[[1, 0, 0]]", [[1, 2], [3]], [["a"]], [[True]], []):
            reply = live.post(path, {"model": "vectors", key: bad})
            assert (reply.status, "matrix" in reply.message) == (422, True), bad
    assert "3" in live.post("/predict", {"model": "vectors", "text": [[1.0, 2.0]]}).message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": "a", "model": "text"}, "does not generate"),
        ({"prompt": PROMPT, "max_length": 501}, "--max-new-tokens"),
        ({"prompt": PROMPT, "method": "gready"}, "gready"),
        ({"prompt": PROMPT, "temperature": 0}, "temperature"),
        ({"prompt": PROMPT, "num_return": 2, "method": "greedy"}, "one text"),
        ({"prompt": PROMPT, "stream": True, "method": "beam"}, "streamed"),
        ({"prompt": PROMPT, "prefix": "zebra"}, "zebra"),
        ({"prompt": PROMPT, "prefix": "zebra", "stream": True, "method": "greedy"}, "zebra"),
        ({"prompt": 3}, "found a number"),
        ({"prompt": PROMPT, "min_length": 9, "max_length": 3}, "min_length 9"),
    ],
    ids=range(10),
)
def test_what_cannot_be_generated(live, body, message):
    reply = live.post("/generate", {"model": "lm", **body})
    assert reply.status == 422
    assert message in reply.message
    assert "generate." not in reply.message


def test_a_client_that_leaves_stops_its_generation(live, monkeypatch):
    generator = live.service.models["lm"].generator
    made = []

    def slow(*args, **options):
        for token in type(generator).stream(generator, *args, **options):
            made.append(token)
            time.sleep(0.005)
            yield token

    monkeypatch.setattr(generator, "stream", slow)
    body = {"model": "lm", "prompt": PROMPT, "stream": True, "method": "greedy", "max_length": 500,
            "min_length": 500}  # fmt: skip
    with live.send_and_hold("/generate", body) as sock:
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        # Others are answered meanwhile.
        assert live.post("/predict", {"model": "text", "text": "good"}).status == 200
    while live.service.compute.depth:
        time.sleep(0.005)
    assert 0 < len(made) < 400


def test_explanations_are_those_of_the_command(live, trained):
    text = "the film was good"
    reply = live.post("/explain", {"model": "text", "text": text, "draw": True})
    printed = command("explain", trained["text"][1], text, "--json")
    assert printed.status == 0, printed.err
    expected = [json.loads(line) for line in printed.lines]
    assert reply.json["explanations"] == [row for row in expected if "words" in row]
    assert "film" in reply.json["html"]
    reply = live.post("/explain", {"model": "text", "text": text, "method": "nonsense"})
    assert (reply.status, "nonsense" in reply.message) == (422, True)
    reply = live.post("/explain", {"model": "text", "text": text, "target": "positiv"})
    assert (reply.status, "Did you mean 'positive'" in reply.message) == (422, True)


def test_openai_embeddings(client, trained):
    texts = ["the film was good", "bad"]
    vectors = trained["text"][0].embed(texts)
    for encoding in ({}, {"encoding_format": "float"}):  # the client's default is base64
        reply = client.embeddings.create(model="text", input=texts, **encoding)
        found = [row.embedding for row in reply.data]
        np.testing.assert_allclose(found, vectors, rtol=1e-6)
        assert reply.usage.prompt_tokens == 5
    short = client.embeddings.create(model="text", input="bad", dimensions=2)
    assert np.linalg.norm(short.data[0].embedding) == pytest.approx(1)
    assert [model.id for model in client.models.list()] == ["lm", "copy", "text", "vectors"]
    assert client.models.retrieve("lm").owned_by == "weft"


def test_base64_is_little_endian_float32(live, trained):
    body = {"model": "text", "input": ["bad"], "encoding_format": "base64"}
    row = live.post("/v1/embeddings", body).json["data"][0]
    found = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    np.testing.assert_array_equal(found, trained["text"][0].embed(["bad"])[0].astype("<f4"))


def test_openai_completions(client, live):
    asked = {"model": "lm", "prompt": PROMPT, "max_tokens": 12, "seed": 7, "temperature": 1.3}
    reply = client.completions.create(**asked)
    text = reply.choices[0].text
    body = {"model": "lm", "prompt": PROMPT, "method": "sample", "seed": 7, "temperature": 1.3,
            "top_p": 1.0, "max_length": 12}  # fmt: skip
    assert text == live.post("/generate", body).json["texts"][0]["text"]
    assert reply.usage.completion_tokens <= 12
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == reply.choices[0].finish_reason
    assert set(reasons[:-1]) <= {None}
    echo = client.completions.create(**asked, echo=True)
    assert echo.choices[0].text == PROMPT + text


def test_openai_completions_several_and_stop(client):
    asked = {"model": "lm", "max_tokens": 10, "seed": 7, "temperature": 1.0}
    reply = client.completions.create(**asked, prompt=[PROMPT, "a dog"], n=2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    alone = client.completions.create(**{**asked, "seed": 8}, prompt=PROMPT)
    assert reply.choices[1].text == alone.choices[0].text
    text = client.completions.create(**asked, prompt=PROMPT).choices[0].text
    stop = text.split()[1]
    cut = client.completions.create(**asked, prompt=PROMPT, stop=[stop, "zebra"])
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    options = {"stream": True, "stream_options": {"include_usage": True}, "stop": stop}
    chunks = list(client.completions.create(**asked, prompt=PROMPT, **options))
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == cut.choices[0].text
    assert chunks[-1].usage.prompt_tokens == 3


def test_openai_errors(client):
    with pytest.raises(openai.NotFoundError, match=r"Unknown model 'lmm'. Did you mean 'lm'"):
        client.completions.create(model="lmm", prompt="a")
    with pytest.raises(openai.UnprocessableEntityError, match="'logprobs' is not supported"):
        client.completions.create(model="lm", prompt="a", logprobs=2)
    with pytest.raises(openai.UnprocessableEntityError, match="token ids"):
        client.completions.create(model="lm", prompt=[1, 2])
    with pytest.raises(openai.UnprocessableEntityError, match="no vector for a whole text"):
        client.embeddings.create(model="lm", input="a")
