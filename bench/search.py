"""What does a search cost beyond the model? Milliseconds a step with scores that are ready-made.

    python bench/search.py --threads 1 --steps 50

Processor time, so that neighbours on the machine do not count.
"""

import argparse
import time

import torch
from torch import Tensor

from weft.decode.search.search import SearchSettings, search

EOS = 3
WAYS = {
    "greedy": SearchSettings(method="greedy"),
    "beam 5": SearchSettings(),
    "beam 5, repetition and 3-grams": SearchSettings(
        repetition_penalty=1.2, no_repeat_ngram_size=3
    ),
    "sample": SearchSettings(method="sample"),
    "top-k 50": SearchSettings(method="sample", top_k=50),
    "top-p 0.9": SearchSettings(method="sample", top_p=0.9),
}


def cost(settings: SearchSettings, rows: int, vocabulary: int) -> float:
    """Milliseconds a step; no sequence ends before the last."""
    width = settings.num_beams if settings.method == "beam" else 1
    make = torch.Generator().manual_seed(1)
    ready = torch.randn(3, rows * width, vocabulary, generator=make) * 3
    ready[..., EOS] = -99.0
    taken = 0

    def step(ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal taken
        taken += 1
        return ready[taken % 3], state

    times = []
    for _ in range(3):
        taken, begun = 0, time.process_time()
        search(step, torch.zeros(rows, 1), settings, batch=rows, bos=2, eos=EOS)
        times.append((time.process_time() - begun) / taken)
    return 1000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for rows, vocabulary in ((1, 8000), (1, 32000), (32, 8000), (32, 32000)):
        for name, settings in WAYS.items():
            limited = SearchSettings(**{**vars(settings), "max_length": given.steps})
            spent = cost(limited, rows, vocabulary)
            print(f"{rows:3} rows, {vocabulary:6,} entries, {name:32} {spent:8.2f} ms a step")


if __name__ == "__main__":
    main()
