"""A plain loop of `transformers`, for bench/finetune.py: the same settings, seeds and batches.

Nothing of Weft decides what it learns but the order of the examples, so that both read the same
batches in the same order, and the counting of what it got right.
"""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from trials import Job, Parts

from weft.batch import BatchLoader, TokenStore
from weft.config import Config
from weft.metrics import ClassificationMetric, RegressionMetric
from weft.run.train import resolve_config
from weft.runtime import seed_everything, select_runtime, use_threads
from weft.text.example import Example

LONGEST = 512  # pieces; what is longer is cut
IGNORED = -100  # the label of a piece that is not the first of a word


class Peer:
    """A network of `transformers` with a head for the task, and its tokenizer."""

    def __init__(self, job: Job, full: Job, parts: Parts, metric: str):
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.metric, self.train = metric, full["train"]
        self.runtime = select_runtime(job["device"], self.train["precision"])
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(job["pretrained"])
        self.labels = {} if metric == "spearman" else _labels(parts["train"], metric)
        kind = "TokenClassification" if metric == "upos" else "SequenceClassification"
        drop = full["embedder"]["dropout"]
        given = {"num_labels": len(self.labels) or 1, "hidden_dropout_prob": drop}
        given |= {"attention_probs_dropout_prob": full["embedder"]["attention_dropout"]}
        given |= {"classifier_dropout": full["head"]["dropout"]}
        seed_everything(self.train["seed"])
        self.apart = full.get("pair", {}).get("kind") == "towers"
        if self.apart:
            given = {key: value for key, value in given.items() if key.endswith("_prob")}
        make = (
            transformers.AutoModel if self.apart else getattr(transformers, f"AutoModelFor{kind}")
        )
        if job["start"] == "scratch":
            config = transformers.AutoConfig.from_pretrained(job["pretrained"], **given)
            self.model = make.from_config(config)
        else:
            self.model = make.from_pretrained(job["pretrained"], **given)
        if self.apart:
            self.model = Towers(self.model, full["head"], len(self.labels), parts["train"])
        if full["embedder"]["frozen"]:
            for name, p in self.model.base_model.named_parameters():
                p.requires_grad_("pooler" in name)
        self.model.to(self.runtime.device)

    def rows(self, examples: list[Example]) -> list[Job]:
        """Each example as ids, segments and labels."""
        if self.metric == "upos":
            return [self._words(example) for example in examples]
        if self.apart:
            return self._apart(examples)
        others = [e.other for e in examples] if examples[0].other is not None else None
        given = self.tokenizer(
            [e.text for e in examples], others, truncation=True, max_length=LONGEST
        )
        segments = given.get("token_type_ids") or [[0] * len(ids) for ids in given["input_ids"]]
        labels = [self._label(e) for e in examples]
        found = zip(given["input_ids"], segments, labels, strict=True)
        return [{"ids": ids, "segments": kinds, "label": label} for ids, kinds, label in found]

    def _apart(self, examples: list[Example]) -> list[Job]:
        """Each example as the ids of one text and of the other."""
        both = [[e.text for e in examples], [str(e.other) for e in examples]]
        first, second = (self.tokenizer(some, truncation=True)["input_ids"] for some in both)
        labels = [self._label(e) for e in examples]
        found = zip(first, second, labels, strict=True)
        return [{"ids": x + y, "cut": len(x), "label": label} for x, y, label in found]

    def _words(self, example: Example) -> Job:
        given = self.tokenizer(
            list(example.words), is_split_into_words=True, truncation=True, max_length=LONGEST
        )
        tags, label, before = _tags(example), [], None
        for word in given.word_ids():
            first = word is not None and word != before
            label.append(self.labels.get(tags[word], IGNORED) if first else IGNORED)
            before = word
        return {"ids": given["input_ids"], "segments": [0] * len(label), "label": label}

    def _label(self, example: Example) -> float | int:
        if self.metric == "spearman":
            return float(str(example.label))
        return self.labels.get(str(example.label), -1)

    def batch(self, rows: list[Job]) -> dict[str, torch.Tensor]:
        """Padded tensors on the device."""
        if self.apart:
            sides = [[row["ids"][: row["cut"]] for row in rows]]
            sides += [[row["ids"][row["cut"] :] for row in rows]]
            found = {}
            for name, some in zip(("first", "second"), sides, strict=True):
                padded = self.tokenizer.pad({"input_ids": some}, return_tensors="pt")
                found[name] = padded["input_ids"].to(self.runtime.device)
                found[f"{name}_mask"] = padded["attention_mask"].to(self.runtime.device)
            labels = torch.tensor([row["label"] for row in rows])
            return {**found, "labels": labels.to(self.runtime.device)}
        longest = max(len(row["ids"]) for row in rows)

        def padded(name: str, fill: int) -> torch.Tensor:
            data = [row[name] + [fill] * (longest - len(row[name])) for row in rows]
            return torch.tensor(data).to(self.runtime.device)

        found = {"input_ids": padded("ids", self.tokenizer.pad_token_id or 0)}
        found["attention_mask"] = torch.tensor(
            [[1] * len(row["ids"]) + [0] * (longest - len(row["ids"])) for row in rows]
        ).to(self.runtime.device)
        if "token_type_ids" in self.tokenizer.model_input_names:
            found["token_type_ids"] = padded("segments", 0)
        labels: Any = [row["label"] for row in rows]
        found["labels"] = (
            padded("label", IGNORED)
            if self.metric == "upos"
            else torch.tensor(labels).to(self.runtime.device)
        )
        return found

    @torch.no_grad()
    def measured(self, rows: list[Job]) -> float:
        """The figure on some rows, in batches of similar length."""
        self.model.eval()
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]["ids"]))
        numbers = self.metric == "spearman"
        measure: Any = RegressionMetric() if numbers else ClassificationMetric(len(self.labels))
        for start in range(0, len(order), 128):
            given = self.batch([rows[i] for i in order[start : start + 128]])
            gold = given.pop("labels").cpu().numpy()
            with self.runtime.autocast():
                scores = self.model(**given).logits.float().cpu().numpy()
            if numbers:
                measure.add(scores[:, 0].astype(np.float64), gold.astype(np.float64))
                continue
            said = scores.argmax(-1)
            real = gold != IGNORED
            measure.add(said[real], gold[real])
        self.model.train()
        name = "accuracy" if self.metric == "upos" else self.metric
        return measure.compute(resamples=0)[name].value


class Towers(torch.nn.Module):
    """Two texts, each the mean of its states; [x; y; |x − y|; x ⊙ y] goes to a perceptron."""

    def __init__(self, network: Any, head: Job, labels: int, train: list[Example]):
        super().__init__()
        self.network, drop = network, torch.nn.Dropout(head["dropout"])
        wide = torch.nn.Linear(4 * network.config.hidden_size, head["hidden"])
        last = torch.nn.Linear(head["hidden"], labels or 1)
        self.head = torch.nn.Sequential(drop, wide, torch.nn.ReLU(), drop, last)
        self.numbers = not labels
        if self.numbers:  # learned in standard deviations from the mean
            given = torch.tensor([float(str(e.label)) for e in train])
            self.mean, self.deviation = float(given.mean()), float(given.std())

    def forward(self, labels: torch.Tensor | None = None, **given: torch.Tensor) -> Any:
        x, y = (self.vector(given[n], given[f"{n}_mask"]) for n in ("first", "second"))
        logits = self.head(torch.cat([x, y, (x - y).abs(), x * y], 1)).float()  # (B, C)
        if labels is None:
            return SimpleNamespace(logits=logits)
        if self.numbers:
            wanted = (labels.float() - self.mean) / self.deviation
            return SimpleNamespace(loss=(logits[:, 0] - wanted).square().mean())
        return SimpleNamespace(loss=torch.nn.functional.cross_entropy(logits, labels))

    def vector(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.network(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, T, H)
        real = mask[..., None].to(states.dtype)
        return (states * real).sum(1) / real.sum(1)


def trained(job: Job, config: Config, parts: Parts, metric: str) -> Job:
    """Fine-tune once, and give back figures by the names that Weft's have."""
    from finetune import fallen

    full = resolve_config(config)
    train = full["train"]
    began = time.perf_counter()
    with use_threads(train["threads"]):
        peer = Peer(job, full, parts, metric)
        rows = {part: peer.rows(examples) for part, examples in parts.items()}
        dev, losses, best = _learn(peer, rows, train)
        peer.model.load_state_dict(best)
        found = {part: peer.measured(rows[part]) for part in rows.keys() - {"train", "dev"}}
    figures = {f"dev_{metric}": dev, f"test_{metric}": found.pop("test")}
    figures |= {f"test_{part}_{metric}": value for part, value in found.items()}
    return {
        **{key: round(100 * value, 3) for key, value in figures.items()},
        "n": len(parts["train"]),
        "seconds": round(time.perf_counter() - began, 1),
        "collapsed": fallen(metric, parts["test"], figures[f"test_{metric}"]),
        "losses": [round(loss, 4) for loss in losses],
    }


def _learn(peer: Peer, rows: dict[str, list[Job]], train: Job) -> tuple[float, list[float], Job]:
    """The best figure on dev, the loss of each epoch, and the weights of the best one."""
    from transformers import get_linear_schedule_with_warmup

    store = TokenStore()
    for row in rows["train"]:
        store.append(np.array(row["ids"], np.int32), 0)
    given = {"rows": train["batch_size"], "budget": train["max_tokens"], "seed": train["seed"]}
    order = BatchLoader(store.close(), **given, epochs=train["epochs"])
    plan = [(batch.rows.tolist(), position) for batch, position in order]
    optimiser = torch.optim.AdamW(_groups(peer.model, train), lr=train["learning_rate"])
    warm = round(train["warmup"] * len(plan))
    schedule = get_linear_schedule_with_warmup(optimiser, warm, len(plan))
    learned = [p for p in peer.model.parameters() if p.requires_grad]
    peer.model.train()
    best, figure, losses, total, count = {}, -2.0, [], torch.zeros(()), 0
    for chosen, position in plan:
        with peer.runtime.autocast():
            loss = peer.model(**peer.batch([rows["train"][i] for i in chosen])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, train["clip_norm"])
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        total, count = total + loss.detach().float().cpu() * len(chosen), count + len(chosen)
        if position.batch == 0:
            losses.append(float(total) / count)
            total, count = torch.zeros(()), 0
            now = peer.measured(rows["dev"])
            if now > figure:
                figure = now
                best = {n: t.detach().clone() for n, t in peer.model.state_dict().items()}
    return figure, losses, best


def _groups(model: torch.nn.Module, train: Job) -> list[Job]:
    """Parameters with their decay and, of the head, a rate of its own where it has one."""
    out: dict[tuple[float, float], list[Any]] = {}
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        head = name.startswith(("classifier", "head")) and train["head_learning_rate"]
        rate = train["head_learning_rate"] if head else train["learning_rate"]
        out.setdefault((rate, train["weight_decay"] if p.dim() > 1 else 0.0), []).append(p)
    return [{"params": some, "lr": r, "weight_decay": w} for (r, w), some in out.items()]


def _tags(example: Example) -> tuple[str, ...]:
    return example.label.columns["upos"]  # type: ignore[union-attr]


def _labels(examples: list[Example], metric: str) -> dict[str, int]:
    names = (_tags(e) if metric == "upos" else (str(e.label),) for e in examples)
    return {name: i for i, name in enumerate(sorted({one for some in names for one in some}))}
