"""The playground: its JavaScript computes what torch computes, and its page sends nothing."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from weft.cli.main import app
from weft.errors import UserError
from weft.export.page.assemble import hash_source
from weft.lab.playground import build

DRIVER = Path(__file__).parent / "playground.mjs"
WORDS, LABELS, WIDTH, KERNEL, HEADS = 11, 3, 6, 3, 2
LENGTHS = (7, 4, 5)
KINDS = (
    "bag", "cnn", "elman", "gru", "lstm", "attention", "transformer",
    "transformer without positions",
)  # fmt: skip
RATE, CLIP = 0.03, 0.5

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


class Reference(nn.Module):
    """The classifiers of the playground, from the modules of torch."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embed = nn.Embedding(WORDS, WIDTH)
        if kind == "cnn":
            self.conv = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2)
        if kind in ("elman", "gru", "lstm"):
            cell = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind]
            self.rnn = cell(WIDTH, WIDTH, batch_first=True)
        if kind == "attention":
            self.score = nn.Linear(WIDTH, WIDTH)
            self.query = nn.Linear(WIDTH, 1, bias=False)
        if kind.startswith("transformer"):
            if kind == "transformer":
                self.positions = nn.Embedding(64, WIDTH)
            layer = nn.TransformerEncoderLayer(
                WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            norm = nn.LayerNorm(WIDTH)
            self.encoder = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, LABELS)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of one text from its input vectors (1, T, D)."""
        if self.kind == "bag":
            pooled = inputs.mean(1)
        elif self.kind == "cnn":
            pooled = self.conv(inputs.transpose(1, 2)).relu().amax(2)
        elif self.kind in ("elman", "gru", "lstm"):
            pooled = self.rnn(inputs)[0][:, -1]
        elif self.kind == "attention":
            pooled = (self.query(self.score(inputs).tanh()).softmax(1) * inputs).sum(1)
        else:
            if self.kind == "transformer":
                inputs = inputs + self.positions(torch.arange(inputs.shape[1]))
            pooled = self.encoder(inputs).mean(1)
        return self.out(pooled)

    def loss(self, texts: list[Tensor], labels: Tensor) -> Tensor:
        logits = torch.cat([self(text[None]) for text in texts])
        return nn.functional.cross_entropy(logits, labels)


def run_node(sent: dict) -> dict:
    command = ["node", DRIVER, f"{(build.HERE / 'js').as_uri()}/"]
    done = subprocess.run(
        command, input=json.dumps(sent), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def batch() -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(WORDS, (n,), generator=generator) for n in LENGTHS]
    return ids, torch.tensor([2, 0, 1])


@pytest.fixture(scope="module")
def references() -> dict[str, Reference]:
    torch.manual_seed(5)
    models = {kind: Reference(kind).double() for kind in KINDS}
    for model in models.values():  # also biases and norms that start at 0 and 1
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return models


@pytest.fixture(scope="module")
def output(batch, references) -> dict:
    ids, labels = batch
    return run_node(
        {
            "rate": RATE,
            "clip": CLIP,
            "examples": [
                {"ids": one.tolist(), "label": label}
                for one, label in zip(ids, labels.tolist(), strict=True)
            ],
            "models": {
                kind: {
                    "options": {
                        "model": kind.split()[0], "vocabulary": WORDS, "labels": LABELS,
                        "width": WIDTH, "layers": 2, "positions": kind == "transformer",
                    },
                    "params": {
                        name: value.flatten().tolist() for name, value in model.state_dict().items()
                    },
                }
                for kind, model in references.items()
            },
        }
    )  # fmt: skip


@needs_node
@pytest.mark.parametrize("kind", KINDS)
def test_loss_gradients_and_updates_equal_those_of_torch(kind, batch, references, output):
    (ids, labels), model, found = batch, references[kind], output["answers"][kind]

    def check(values: list[float], expected: Tensor) -> None:
        torch.testing.assert_close(
            torch.tensor(values, dtype=torch.float64), expected.flatten(), rtol=1e-9, atol=1e-10
        )

    texts = [model.embed(one).detach().requires_grad_() for one in ids]
    loss = model.loss(texts, labels)
    check([found["loss"]], loss.detach())
    grads = torch.autograd.grad(loss, texts)
    longest = max(LENGTHS)
    by_step = torch.zeros(longest, len(LENGTHS), WIDTH, dtype=torch.float64)  # (T, B, D)
    norms = torch.zeros(longest, len(LENGTHS), dtype=torch.float64)
    for b, grad in enumerate(grads):
        by_step[: len(grad), b] = grad
        norms[: len(grad), b] = grad.norm(dim=1).flip(0) * len(LENGTHS)
    check(found["inputGrads"], by_step)
    counts = torch.tensor([sum(n > d for n in LENGTHS) for d in range(longest)])
    check(found["byDistance"], norms.sum(1) / counts)
    # Without its neighbours, a text gets the same answer: padding does not leak.
    check(found["again"], model(texts[1][None]).log_softmax(1).detach())

    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for step in range(2):
        optimizer.zero_grad()
        model.loss([model.embed(one) for one in ids], labels).backward()
        if step == 0:
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None
                check(found["grads"][name], parameter.grad)
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        if step == 0:
            check([found["norm"]], norm)
        optimizer.step()
    for name, parameter in model.named_parameters():
        # A gradient that is zero but for rounding, as that of the keys' bias, has no direction.
        noise = 3 * RATE if name.endswith("in_proj_bias") else 1e-6
        torch.testing.assert_close(
            torch.tensor(found["params"][name], dtype=torch.float64), parameter.detach().flatten(),
            rtol=0, atol=noise,
        )  # fmt: skip


@needs_node
def test_generated_texts_have_the_label_that_the_task_says(output):
    tasks = output["tasks"]
    for words, label in tasks["order"]:
        assert sorted(word for word in words if word in ("ada", "ben")) == ["ada", "ben"]
        assert label == min(("ada", "ben"), key=words.index) + " first"
    for words, label in tasks["recall"]:
        assert label == words[0]
    for words, label in tasks["count"]:
        half = len(words) // 2
        assert (words == ["a"] * half + ["b"] * half) == (label == "yes")
    for examples in tasks.values():
        labels = [label for _, label in examples]
        assert all(labels.count(label) > 30 for label in set(labels))


@needs_node
def test_pasted_lines_are_checked(output):
    empty, no_tab, one_label, second = output["left"]
    assert "two different labels" in empty
    assert no_tab == "Line 1 should be a label, a tab and a text."
    assert "two different labels" in one_label
    assert second.startswith("Line 2 ")


@pytest.fixture(scope="module")
def page() -> str:
    return build.build_page()


def test_the_page_is_small_and_names_no_address(page):
    assert len(page.encode()) < build.MAX_PAGE_BYTES
    assert "://" not in page
    assert not re.search(r"<(script|img|iframe|link)[^>]+(src|href)=(?!\"data:,\")", page)
    for name in ("fetch(", "XMLHttpRequest", "WebSocket", "import(", "sendBeacon"):
        assert name not in page


def test_the_policy_allows_only_what_the_page_holds(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    for kind, source in re.findall(r"<(style|script)>(.*?)</\1>", page, re.DOTALL):
        allowed = re.search(rf"{kind}-src ([^;]+)", policy[1])
        assert allowed is not None
        assert hash_source(source) in allowed[1].split()
    assert page.index(policy[0]) < page.index("<style>")
    assert policy[1].count("sha256-") == page.count("<style>") + page.count("<script>")
    assert not re.search(
        r"\s(style|on\w+)=\"", re.sub(r"<script>.*</script>", "", page, flags=re.S)
    )


def test_every_element_that_the_script_uses_exists(page):
    used = set(re.findall(r'\$\("([\w-]+)"\)', page))
    assert used <= set(re.findall(r'\bid="([\w-]+)"', page))


def test_the_verb_writes_one_file(tmp_path):
    path = tmp_path / "out" / "playground.html"
    for _ in range(2):
        result = CliRunner().invoke(app, ["lab", "playground", "-o", str(path)])
        assert result.exit_code == 0, result.output
    assert path.read_text("utf-8") == build.build_page()
    assert str(path) in result.output
    with pytest.raises(UserError, match="is a folder"):
        build.write_playground(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        build.write_playground(tmp_path / "file" / "playground.html")
