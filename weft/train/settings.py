"""The [train] section: names, types and defaults. Importable without torch."""

from dataclasses import dataclass
from typing import Literal

from weft.text.class_balance import Balance, BalanceKind

Init = Literal[
    "default", "xavier-uniform", "xavier-normal", "kaiming-uniform", "kaiming-normal",
    "orthogonal", "normal", "uniform",
]  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The settings of a training run."""

    epochs: int = 10
    batch_size: int = 32  # rows in a batch, at most
    max_tokens: int = 16384  # tokens in a padded batch, padding included, at most
    accumulate: int = 1  # batches in one update
    optimiser: Literal["sgd", "adam", "adamw", "adagrad"] = "adamw"
    learning_rate: float = 1e-3  # in a configuration also "auto": by the width of a GPT or BERT
    embedder_learning_rate: float = 0.0  # learning rate of the embedders; 0 = learning_rate
    head_learning_rate: float = 0.0  # learning rate of the head; 0 = learning_rate
    layer_decay: float = 1.0  # of a pre-trained embedder: how much slower each layer learns than
    # the one above it, the last one as fast as the rest of the model (Howard & Ruder 2018)
    # Of a pre-trained embedder: epochs until one more layer begins to learn, from the top down,
    # after the rest of the model has learned alone; 0 = all from the start.
    unfreeze_epochs: float = 0.0
    # Weight matrices of what is not pre-trained; default: as each part's paper has it.
    init: Init = "default"
    init_scale: float = 1.0  # gain; of normal the standard deviation, of uniform the largest weight
    momentum: float = 0.9  # of sgd
    beta2: float = 0.999  # of adam and adamw: decay of the squared gradients
    weight_decay: float = 0.0  # of adamw, on matrices only
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "constant"
    warmup: float = 0.0  # fraction of the run during which the rate rises from zero
    warmup_updates: int = 0  # fewest updates of warm-up, but at most a quarter of all
    clip_norm: float = 1.0  # maximum gradient norm; 0 = no clipping
    ema_decay: float = 0.0  # of a moving average of the weights, which is saved; 0 = off
    patience: int = 0  # evaluations without improvement before it stops; 0 = never
    # Decides early stopping and the best checkpoint; empty = the task's metric, or macro_f1 where
    # the classes of texts are uneven.
    metric: str = ""
    # Uneven classes: weights in the loss, inverse to frequency; class-balanced sampling of each
    # epoch; or the focal loss.
    balance: BalanceKind = "none"
    focal_gamma: float = 2.0  # of train.balance = "focal": 0 is cross-entropy
    evaluate_every: int = 0  # updates between evaluations; 0 = once an epoch
    # Time limit, set-up included; the schedule ends with the updates that fit. 0 = no limit.
    minutes: float = 0.0
    save_every: int = 0  # updates between checkpoints; 0 = once an evaluation and once a minute
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 on a GPU, fp32 elsewhere
    # Compile the blocks of Transformers. auto: on a GPU, in a language model with 2,000 updates
    # ahead or more and no time limit below five minutes: compiling takes half a minute.
    compile: bool | Literal["auto"] = "auto"
    # On a GPU: whole updates as CUDA graphs, in pre-training and language models, and in
    # fine-tuning of a network such as BERT on texts, where each length has a graph.
    cuda_graphs: bool = True
    seed: int = 1
    ensemble: int = 1  # seeds that are trained as the members of one model, from `seed` on
    # Processes that train together (weft train --processes) each hold a part of the weights,
    # gradients and optimiser state, for models that are too large for one device.
    shard: bool = False
    threads: int = 0  # of the CPU; 0 = one or all, whichever is faster (one in short runs)
    # Experiment trackers that log the run beside metrics.jsonl: tensorboard, mlflow, wandb.
    loggers: tuple[str, ...] = ()
    diagnose: bool = False  # gradient health at every evaluation, in metrics.jsonl

    @property
    def class_balance(self) -> Balance:
        """The way to train on uneven classes."""
        return Balance(self.balance, self.focal_gamma)
