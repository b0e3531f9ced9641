"""What does the framework cost? `fit` against a bare PyTorch loop with the same module and batches.

    python bench/overhead.py --recipes lstm,transformer --threads 2,1 --repeats 9

The bare loop is given its batches ready-made, which `fit` has to build from the store as it goes; a
second bare loop pads the same rows itself. A ratio of 1 means equal speed, below 1 that `fit` is
slower. The corpus is the built-in one, so nothing is needed.
"""

import copy
import time
from collections.abc import Callable

import torch
from record import Record, interleaved, options, ratios, spread
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence

import weft
from weft import registry
from weft.batch import BatchLoader, Padded, TokenStore, labelled_batch
from weft.model import Model, build_model
from weft.run.train import resolve_config
from weft.runtime import seed_everything, select_runtime, use_threads
from weft.tasks.task import AnyTask
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import TrainState

BAR = 0.95
Ready = list[tuple[Padded, torch.Tensor]]


class Race:
    """One recipe on the reviews corpus, to be trained for an epoch in three ways."""

    def __init__(self, recipe: str):
        # A constant rate, so that the bare loop needs no schedule to do the same work.
        # Nor a running mean of the weights.
        changes = {"train.epochs": 1, "train.schedule": "constant", "train.warmup": 0.0}
        changes["train.ema_decay"] = 0.0
        full = resolve_config(weft.recipe(recipe).with_values(changes, "bench"))
        self.settings = Settings(**full["train"])
        self.task: AnyTask = registry.build("task", full["task"])
        examples = weft.corpus("reviews")["train"]
        space = self.task.space(examples)
        tokenizer = registry.build("tokenizer", full["tokenizer"]).train(e.text for e in examples)
        self.store = TokenStore()
        for example, ids in zip(
            examples, tokenizer.encode_ids([e.text for e in examples]), strict=True
        ):
            self.store.append(ids, self.task.target(example, space))
        self.store.close()
        seed_everything(self.settings.seed)
        self.model = build_model(full, vocabulary_size=len(tokenizer), outputs=space.size)
        self.rows = [batch.rows for batch, _ in self._batches()]
        made = [labelled_batch(self.store, rows) for rows in self.rows]
        self.ready: Ready = [(batch.source, batch.target) for batch in made]
        tensors = [
            torch.from_numpy(self.store.row(i).astype("int64")) for i in range(len(self.store))
        ]
        self.sentences = tensors
        self.targets = torch.from_numpy(self.store.targets)
        self.losses: dict[str, float] = {}

    def fit(self) -> float:
        """Seconds of an epoch of Weft's loop."""
        model = self._fresh()
        trainee, batches, runtime = (
            TrainState.fresh(model, self.settings),
            self._batches(),
            select_runtime("cpu"),
        )
        total = torch.zeros(())
        started = time.perf_counter()
        for progress in fit(trainee, self.task, batches, self.settings, runtime):
            total += progress.total
        return self._ended("fit", started, total)

    def ready_made(self) -> float:
        """Seconds of an epoch of the bare loop over batches that were padded beforehand."""
        return self._bare("ready-made", lambda i: self.ready[i])

    def padding(self) -> float:
        """Seconds of an epoch of the bare loop that pads as it goes."""

        def batch(i: int) -> tuple[Padded, torch.Tensor]:
            rows = [self.sentences[row] for row in self.rows[i]]
            lengths = torch.tensor([len(row) for row in rows])
            return Padded(pad_sequence(rows, batch_first=True), lengths), self.targets[self.rows[i]]

        return self._bare("padding", batch)

    def _bare(self, name: str, batch: Callable[[int], tuple[Padded, torch.Tensor]]) -> float:
        model = self._fresh().train()
        optimiser = torch.optim.AdamW(
            model.parameters(), lr=self.settings.learning_rate, weight_decay=0.0, fused=True
        )
        total = torch.zeros(())
        started = time.perf_counter()
        for i in range(len(self.rows)):
            source, target = batch(i)
            optimiser.zero_grad()
            loss = F.cross_entropy(model(source), target)
            loss.backward()
            clip_grad_norm_(model.parameters(), self.settings.clip_norm)
            optimiser.step()
            total += loss.detach() * len(target)
        return self._ended(name, started, total)

    def _fresh(self) -> Model:
        seed_everything(self.settings.seed)  # the same dropout for all
        return copy.deepcopy(self.model)

    def _batches(self) -> BatchLoader:
        chosen = self.settings
        return BatchLoader(
            self.store, rows=chosen.batch_size, budget=chosen.max_tokens, seed=chosen.seed, epochs=1
        )

    def _ended(self, name: str, started: float, total: torch.Tensor) -> float:
        seconds = time.perf_counter() - started
        self.losses[name] = float(total) / len(self.store)
        return seconds


def main() -> None:
    parser = options(__doc__, repeats=9)
    parser.add_argument("--recipes", default="lstm,transformer")
    parser.add_argument("--threads", default="2,1", help="numbers of processor threads to try")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    for recipe in arguments.recipes.split(","):
        race = Race(recipe)
        for count in map(int, arguments.threads.split(",")):
            with use_threads(count):
                ways = {"fit": race.fit, "ready-made": race.ready_made, "padding": race.padding}
                seconds = interleaved(ways, arguments.repeats)
            apart = max(race.losses.values()) - min(race.losses.values())
            assert apart < 1e-3, f"the loops did not do the same work: {race.losses}"
            record.line(
                "overhead",
                recipe=recipe,
                threads=count,
                updates=len(race.rows),
                rows=len(race.store),
                bar=BAR,
                speed_to_ready_made=ratios(seconds["ready-made"], seconds["fit"]),
                speed_to_padding=ratios(seconds["padding"], seconds["fit"]),
                seconds={name: spread(values) for name, values in seconds.items()},
                loss_apart=float(f"{apart:.2g}"),
            )


if __name__ == "__main__":
    main()
