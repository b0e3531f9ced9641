"""How fast does Weft learn and write texts on a GPU? Against transformers and bare PyTorch loops.

    python bench/gpu_generation.py --parts gpt_train,gpt_decode,marian_decode,lstm,chars \\
        --data FOLDER --record gpu_generation

FOLDER holds lm/tinyshakespeare/input.txt.gz (or input.txt), for `chars` only. Both sides run in
this process, on the same device, with the same weights where they compute the same thing. Every
figure is printed when it is there, a part that fails says so and the others go on, and a short
table comes last. `--tiny` does everything with very small shapes, on any machine.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from record import Record, options

from weft.runtime import Runtime, select_runtime

PARTS = (
    "loss", "gpt_train", "gpt_ways", "profile", "bert_short", "bert_long",
    "bert_short_plain", "bert_long_plain", "room", "gpt_decode", "marian_decode", "decode_profile",
    "decode_products", "few", "lstm", "chars",
)  # fmt: skip


@dataclass
class Bench:
    """What all parts share."""

    record: Record
    runtime: Runtime
    tiny: bool
    repeats: int
    data: str
    folder: str
    alone: bool = False  # without the peers
    rows: list[str] = field(default_factory=list)  # of the table at the end
    failures: int = 0

    @property
    def device(self) -> torch.device:
        return self.runtime.device

    def line(self, question: str, told: str = "", **values: Any) -> None:
        """One figure, and a row of the table if there is something to tell."""
        self.record.line(question, **values)
        if told:
            self.rows.append(f"{question}: {told}")

    @contextmanager
    def trying(self, question: str) -> Iterator[None]:
        """Go on with the rest when something fails."""
        try:
            yield
        except Exception as error:
            self.failures += 1
            last = traceback.format_exc().strip().splitlines()[-7:]
            reason = f"{type(error).__name__}: {str(error)[:300]}"
            self.line(question, f"FAILED, {reason[:160]}", error=reason, where=last)

    def seconds(self, work: Callable[[], Any]) -> float:
        """How long the device takes for some work."""
        self.runtime.wait()
        begun = time.perf_counter()
        work()
        self.runtime.wait()
        return time.perf_counter() - begun

    def fresh(self) -> None:
        """Forget what was compiled, so that one measurement does not disturb another."""
        torch._dynamo.reset()
        torch._dynamo.config.recompile_limit = 64
        if self.runtime.has_cuda_graphs:
            torch.cuda.empty_cache()


def main() -> None:
    parser = options(__doc__, 5)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--data", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", default="", help="where `chars` leaves its run folder")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--alone", action="store_true", help="BERT without its peer")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    runtime = select_runtime(asked.device)
    bench = Bench(
        Record(asked.record), runtime, asked.tiny, asked.repeats, asked.data, asked.out, asked.alone
    )
    name = torch.cuda.get_device_name(runtime.device) if runtime.has_cuda_graphs else "processor"
    bench.line("device", name=name, torch=torch.__version__, threads=torch.get_num_threads())
    # Imported here: a part that cannot be loaded must not stop the others.
    homes = dict.fromkeys(("gpt_train", "profile", "lstm"), "gpu_training")
    homes |= dict.fromkeys((part for part in PARTS if "decode" in part), "gpu_decoding")
    homes |= dict.fromkeys((part for part in PARTS if part.startswith("bert")), "gpu_bert")
    homes |= {"room": "gpu_decoding", "loss": "gpu_loss"}
    homes |= {"chars": "gpu_chars", "gpt_ways": "gpu_ways", "few": "gpu_few"}
    for part in asked.parts.split(","):
        begun = time.perf_counter()
        with bench.trying(part):
            getattr(__import__(homes[part]), part)(bench)
        bench.line(f"{part} took", seconds=round(time.perf_counter() - begun, 1))
        bench.fresh()
    print("\n" + "\n".join(bench.rows))
    raise SystemExit(bool(bench.failures))


if __name__ == "__main__":
    main()
