"""How fast is the CRF? Against pytorch-crf where it is installed, and plain loops as torchcrf has.

    python bench/crf.py

One training step, the loss and its gradient, of a batch of sentences, and the best sequences. The
loops are the usual way to write it, in logarithmic space over a tensor of (rows, labels, labels);
pytorch-crf (module `torchcrf`) is written that way too. All must agree: given is the largest
difference of the loss per word, of the emissions' gradient and of the weights' gradients per word,
and the share of sentences with the same best labels.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from record import Record, interleaved, options, ratios, spread
from torch import Tensor, nn

from weft.batch.padded import Padded
from weft.decode.heads.crf import CRF

BAR = 1.5  # times as fast as the peers, forwards and backwards
CLOSE = 1e-5


class Loops(nn.Module):
    """The textbook's recursions with autograd through them."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        self.start_transitions = nn.Parameter(torch.zeros(labels))
        self.end_transitions = nn.Parameter(torch.zeros(labels))

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """The log-likelihood of the tags, summed over the rows."""
        rows = torch.arange(len(tags))
        gold = self.start_transitions[tags[:, 0]] + emissions[rows, 0, tags[:, 0]]
        total = self.start_transitions + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            move = self.transitions[tags[:, t - 1], tags[:, t]] + emissions[rows, t, tags[:, t]]
            gold = gold + move * mask[:, t]
            ways = total[:, :, None] + self.transitions + emissions[:, t, None]
            total = torch.where(mask[:, t, None], ways.logsumexp(1), total)
        last = tags[rows, mask.sum(1) - 1]
        gold = gold + self.end_transitions[last]
        return (gold - (total + self.end_transitions).logsumexp(1)).sum()

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> list[list[int]]:
        """The best labels of each row."""
        best = self.start_transitions + emissions[:, 0]
        origins = []
        for t in range(1, emissions.shape[1]):
            ways, origin = (best[:, :, None] + self.transitions + emissions[:, t, None]).max(1)
            best = torch.where(mask[:, t, None], ways, best)
            origins.append(origin)
        out = []
        for row, length in enumerate(mask.sum(1).tolist()):
            path = [int((best[row] + self.end_transitions).argmax())]
            for origin in reversed(origins[: length - 1]):
                path.append(int(origin[row, path[-1]]))
            out.append(path[::-1])
        return out


def peers(labels: int) -> dict[str, nn.Module]:
    """What the CRF is measured against."""
    found: dict[str, nn.Module] = {"loops": Loops(labels)}
    try:
        import torchcrf
    except ImportError:
        return found
    return {"pytorch-crf": torchcrf.CRF(labels, batch_first=True), **found}


def learned(model: nn.Module) -> list[nn.Parameter]:
    """Transitions, start and end, whatever they are called."""
    names = dict(model.named_parameters())
    return [
        names["transitions"],
        names.get("start_transitions", names.get("start")),
        names.get("end_transitions", names.get("end")),
    ]


def clocked(work: Callable[[], Any], times: int) -> Callable[[], float]:
    """Seconds of one run of the work, as the mean over several."""

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - begin) / times

    return run


def measure(record: Record, given: Any, what: str, lengths: Tensor) -> None:
    """One line for training and one for decoding."""
    torch.manual_seed(0)
    own, others = CRF(given.labels), peers(given.labels)
    start = [torch.randn_like(weight) * 0.3 for weight in learned(own)]
    with torch.no_grad():
        for model in (own, *others.values()):
            for weight, value in zip(learned(model), start, strict=True):
                weight.copy_(value)
    data = torch.randn(given.batch, given.steps, given.labels, requires_grad=True)
    tags = torch.randint(0, given.labels, (given.batch, given.steps))
    emissions = Padded(data, lengths)
    mask, words = emissions.mask, int(lengths.sum())

    def step(model: nn.Module) -> list[Tensor]:
        data.grad = None
        model.zero_grad()
        if isinstance(model, CRF):
            # A new value each time: what it keeps of its mask is part of the work.
            loss = model.loss(Padded(data, lengths), tags)[0]
        else:
            loss = -model(data, tags, mask)
        loss.backward()
        found = [loss / words, data.grad, *(weight.grad / words for weight in learned(model))]
        return [each.detach().clone() for each in found]

    def decode(model: nn.Module) -> list[list[int]]:
        if isinstance(model, CRF):
            rows = model.viterbi(Padded(data, lengths))[0].tolist()
            return [row[:n] for row, n in zip(rows, lengths.tolist(), strict=True)]
        return model.decode(data, mask)

    models = {"weft": own, **others}
    for question, work in (("training", step), ("decoding", decode)):
        ways = {name: clocked(lambda w=work, m=m: w(m), given.times) for name, m in models.items()}
        seconds = interleaved(ways, given.repeats)
        line: dict[str, Any] = {
            f"{name}_ms": spread([1000 * s for s in each]) for name, each in seconds.items()
        }
        for name in others:
            line[f"times_{name}"] = ratios(seconds[name], seconds["weft"])
        line |= agreement(work, models)
        if question == "training":
            fast = min(line[f"times_{name}"]["median"] for name in others)
            line |= {"bar": BAR, "passed": fast >= BAR and line["difference"] <= CLOSE}
        sizes = {"labels": given.labels, "batch": given.batch, "steps": given.steps}
        record.line(f"{question}, {what}", **sizes, threads=torch.get_num_threads(), **line)


def agreement(work: Callable[[nn.Module], Any], models: dict[str, nn.Module]) -> dict[str, Any]:
    """How far apart the answers of the models are."""
    own, *others = (work(model) for model in models.values())
    if isinstance(own[0], Tensor):
        pairs = [(a, b) for other in others for a, b in zip(own, other, strict=True)]
        return {"difference": max(float((a - b).abs().max()) for a, b in pairs)}
    same = [np.mean([a == b for a, b in zip(own, other, strict=True)]) for other in others]
    return {"same_sequences": float(min(same))}


def main() -> None:
    parser = options(__doc__, repeats=7)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--times", type=int, default=10, help="runs in each repeat")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    record = Record(given.record)
    full = torch.full((given.batch,), given.steps)
    measure(record, given, "all of one length", full)
    torch.manual_seed(1)
    ragged = torch.randint(1, given.steps + 1, (given.batch,))
    ragged[0] = given.steps
    measure(record, given, "of different lengths", ragged)


if __name__ == "__main__":
    main()
