"""How fast are trees level by level? Against the same cells node by node, over SST.

    python bench/trees.py --data DATA --threads 1,2 --repeats 5

Both sides take a step of training without the update: forward, cross-entropy over the labels of
all nodes, backward; batch 64, the same weights, the same trees. Node by node is what a plain
implementation does: a module called for each node, children first, the states kept in a list and
stacked for the labels. Losses must be equal to 1e-5; the bar is 15 times the speed.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from record import Record, interleaved, options, ratios, spread
from torch import Tensor, nn
from torch.nn import functional as F

from weft.batch import Padded
from weft.batch.trees import batch_trees, flatten_tree
from weft.encode.tree import RNTN, TreeLSTM, TreeRNN
from weft.runtime import use_threads
from weft.text.annotation.trees import parse

BAR, CLOSE = 15, 1e-5
BATCH, LABELS = 64, 5
WINDOW = 30  # batches among which trees are sorted by size
# Of words and states: among the best on SST's development part.
WIDTHS = {
    "tree-rnn": (50, 50),
    "rntn": (30, 30),
    "tree-lstm": (100, 128),
    "tree-lstm sum": (100, 128),
}
State = tuple[Tensor, ...]


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA", ""), help="the data folder")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batches", type=int, default=3)
    chosen = parser.parse_args()
    record = Record(chosen.record)
    batches = read(Path(chosen.data) / "classification" / "sst" / "train.txt", chosen.batches)
    nodes = sum(int(batch.lengths.sum()) for batch, _ in batches)
    for count in map(int, chosen.threads.split(",")):
        for name in WIDTHS:
            race = Race(name, batches)
            with use_threads(count):
                found = interleaved({"levels": race.levels, "nodes": race.nodes}, chosen.repeats)
            gain = ratios(found["nodes"], found["levels"])
            record.line(
                "trees",
                encoder=name,
                threads=count,
                batch=BATCH,
                width=WIDTHS[name][1],
                levels_ms=spread([1000 * s / len(batches) for s in found["levels"]], 1),
                nodes_ms=spread([1000 * s / len(batches) for s in found["nodes"]], 1),
                nodes_per_second=round(nodes / min(found["levels"])),
                times=gain,
                apart=race.apart,
                bar=BAR,
                reached=gain["median"] >= BAR and race.apart <= CLOSE,
            )


def read(path: Path, batches: int) -> list[tuple[Padded, Tensor]]:
    """Batches of trees of similar size, as training cuts them: small, middling and large ones."""
    lines = path.read_text("utf-8").splitlines()[: BATCH * WINDOW]
    trees = [flatten_tree(parse(line, f"{path}:{i}")) for i, line in enumerate(lines, 1)]
    trees.sort(key=lambda tree: len(tree.words))
    known: dict[str, int] = {"": 0}
    for tree in trees:
        for word in tree.words:
            known.setdefault(word, len(known))
    cuts = [BATCH * (WINDOW * (2 * k + 1) // (2 * batches)) for k in range(batches)]
    return [batch_trees(trees[i : i + BATCH], known.__getitem__, int) for i in cuts]


class Race:
    """One encoder and the same cell node by node, both with the same table of words and labels."""

    def __init__(self, name: str, batches: list[tuple[Padded, Tensor]]):
        torch.manual_seed(0)
        self.batches = batches
        words = 1 + max(int(batch.data.max()) for batch, _ in batches)
        wide, hidden = WIDTHS[name]
        self.table = nn.Embedding(words, wide, padding_idx=0)
        self.score = nn.Linear(hidden, LABELS)
        if name == "tree-rnn":
            self.encoder: nn.Module = TreeRNN(wide)
        elif name == "rntn":
            self.encoder = RNTN(wide)
        else:
            self.encoder = TreeLSTM(wide, hidden, "sum" if "sum" in name else "ordered")
        self.cell = CELLS[name]
        self.losses: dict[str, list[float]] = {}

    @property
    def apart(self) -> float:
        """The largest difference between the losses of a batch."""
        pairs = zip(self.losses["levels"], self.losses["nodes"], strict=True)
        return max(abs(a - b) for a, b in pairs)

    def levels(self) -> float:
        return self._steps("levels", self._by_level)

    def nodes(self) -> float:
        return self._steps("nodes", self._by_node)

    def _steps(self, name: str, states: Callable[[Padded], Tensor]) -> float:
        self.losses[name] = []
        started = time.perf_counter()
        for batch, labels in self.batches:
            for module in (self.table, self.encoder, self.score):
                module.zero_grad(set_to_none=True)
            made = states(batch)
            # One state a step with padding, or one a node without.
            wanted = labels[batch.mask] if made.dim() == 2 else labels.flatten()
            scores = self.score(made).reshape(-1, LABELS)
            loss = F.cross_entropy(scores, wanted, ignore_index=-1)
            loss.backward()
            self.losses[name].append(float(loss.detach()))
        return time.perf_counter() - started

    def _by_level(self, batch: Padded) -> Tensor:
        embedded = Padded(self.table(batch.data), batch.lengths, parents=batch.parents)
        return self.encoder(embedded).data

    def _by_node(self, batch: Padded) -> Tensor:
        out = []
        leaf, inner = self.cell(self.encoder)
        assert batch.parents is not None
        lengths = batch.lengths.tolist()
        table = self.table(batch.data)
        for row, above, length in zip(table, batch.parents.tolist(), lengths, strict=True):
            words = row.unbind()
            below: list[list[State]] = [[] for _ in range(length)]
            for step in range(length):  # children come before their parent
                children = below[step]
                state = inner(children) if children else leaf(words[step])
                out.append(state[0])
                if above[step] >= 0:
                    below[above[step]].append(state)
        return torch.stack(out)


Cell = tuple[Callable[[Tensor], State], Callable[[list[State]], State]]


def tanh(e: nn.Module) -> Cell:
    """tanh(W [l; r] + b), and + [l; r]ᵀ V [l; r] where there is a tensor."""

    def inner(children: list[State]) -> State:
        c = torch.cat([child[0] for child in children])
        made = F.linear(c, e.weight, e.bias)
        return ((made if e.slices is None else made + e.slices @ c @ c).tanh(),)

    return lambda word: (word.tanh(),), inner


def ordered(e: nn.Module) -> Cell:
    """The binary Tree-LSTM, its five gates in one product."""
    H = e.output_size
    two, candidate, forget = e.bias.split([2 * H, H, H])
    bias = torch.cat([two, forget, forget, candidate])

    def inner(children: list[State]) -> State:
        h = torch.cat([child[0] for child in children])
        i, o, left, right, u = F.linear(h, e.weight, bias).chunk(5)
        c = i.sigmoid() * u.tanh() + left.sigmoid() * children[0][1]
        c = c + right.sigmoid() * children[1][1]
        return o.sigmoid() * c.tanh(), c

    return lambda word: _leaf(e, word), inner


def summed(e: nn.Module) -> Cell:
    """The child-sum Tree-LSTM, the forget gates of a node's children in one product."""
    H = e.output_size

    def inner(children: list[State]) -> State:
        h = torch.stack([child[0] for child in children])
        i, o, u = F.linear(h.sum(0), e.weight[: 3 * H], e.bias[: 3 * H]).chunk(3)
        f = F.linear(h, e.weight[3 * H :], e.bias[3 * H :]).sigmoid()
        kept = f * torch.stack([child[1] for child in children])
        c = i.sigmoid() * u.tanh() + kept.sum(0)
        return o.sigmoid() * c.tanh(), c

    return lambda word: _leaf(e, word), inner


def _leaf(e: nn.Module, word: Tensor) -> State:
    i, o, u = F.linear(word, e.word, e.bias[: 3 * e.output_size]).chunk(3)
    c = i.sigmoid() * u.tanh()
    return o.sigmoid() * c.tanh(), c


CELLS = {"tree-rnn": tanh, "rntn": tanh, "tree-lstm": ordered, "tree-lstm sum": summed}

if __name__ == "__main__":
    main()
