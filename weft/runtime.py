"""Devices, precision and threads. The only file that names devices and processes."""

import contextlib
import ctypes
import logging
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from weft.errors import UserError
from weft.machine import RANK_FAILED, LostRank, available_cpus, launched_rank, python_command

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

T = TypeVar("T")

# Attention in the order in which kernels are tried; cuDNN's is made for the newest devices.
ATTENTION_KERNELS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


@dataclass(frozen=True)
class World:
    """The processes that train one model together; rank 0 alone writes."""

    rank: int = 0
    size: int = 1

    def agree(self, value: T) -> T:
        """Return the value that rank 0 has."""
        if self.size == 1:
            return value
        values = [value]
        torch.distributed.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks."""
        values = [value] * self.size
        if self.size > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Wait until all ranks are here."""
        self.agree(None)


@dataclass(frozen=True)
class Runtime:
    """A device, the precision to use on it, and the processes that work together."""

    device: torch.device
    half: bool = False
    world: World = World()

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context of bf16 arithmetic if the runtime uses it."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.half else nullcontext()

    def attention_kernels(self) -> AbstractContextManager[object]:
        """cuDNN's kernel of attention before the others, in half precision on a GPU.

        For long training without masks. Compiled code keeps the kernel that was chosen when it
        was made, so this goes around the first update and all others.
        """
        if not (self.half and self.device.type == "cuda"):
            return nullcontext()
        _warm_up_attention(self.device)
        return _prefer_cudnn_attention()

    def random_state(self) -> dict[str, Tensor]:
        """Everything that decides what dropout does next."""
        state = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def restore_random(self, state: dict[str, Tensor]) -> None:
        torch.set_rng_state(state["cpu"])
        if self.device.type == "cuda" and "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self.device)

    def peak_memory(self) -> int:
        """The most bytes the accelerator held, 0 without one."""
        return torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else 0

    @property
    def has_cuda_graphs(self) -> bool:
        """True if the device supports CUDA graphs."""
        return self.device.type == "cuda"

    def side_stream(self) -> AbstractContextManager[object]:
        """A stream of its own for a while, in order with what comes before and after."""
        return _on_side_stream(self.device) if self.device.type == "cuda" else nullcontext()

    def capture_graph(
        self, work: Callable[[], None], pool: "torch.cuda._POOL_HANDLE | None" = None
    ) -> Callable[[], None]:
        """A graph of some work over memory that stays; calling it does the work again.

        The work itself is not done here, and must have been done before: what is set up on the
        way the first time is not part of it. Work under autocast is to be `uncached`. Graphs of one
        `pool` use the same memory for what exists only within them, so they are to take turns.
        """
        assert self.has_cuda_graphs
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device), torch.cuda.graph(graph, pool=pool):
            work()
        return graph.replay

    def graph_pool(self) -> "torch.cuda._POOL_HANDLE | None":
        """Memory for graphs that take turns."""
        return torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    def fetch(self, tensor: Tensor) -> Callable[[], list[bool]]:
        """Start to copy a Boolean tensor to the host; calling the result waits for it."""
        if self.device.type != "cuda":
            return tensor.tolist
        here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        here.copy_(tensor, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(self.device))

        def values() -> list[bool]:
            done.synchronize()
            return here.tolist()

        return values

    def wait(self) -> None:
        """Wait until the device has finished all queued work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def pin(tensor: Tensor, device: torch.device) -> Tensor:
    """Pin a host tensor so that the copy to the device is asynchronous.

    From pageable memory the host would wait for all queued work, and the device then for the host.
    """
    away = device.type == "cuda" and tensor.device.type == "cpu"
    return tensor.pin_memory() if away else tensor


@contextlib.contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Without the copies of weights that autocast keeps: a graph would read them once freed.

    Around all work that is captured later, not only at the capture: compiled code is compiled
    again where this changes, which no capture allows.
    """
    kept = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(kept)


@cache
def _warm_up_attention(device: torch.device) -> None:
    """Use attention once, because that is when torch decides which kernels it likes best here.

    What is put back after a change of their order is then its own choice, and not what it had not
    thought about yet: all other attention of the process would be slower from then on.
    """
    x = torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16, device=device)
    torch.nn.functional.scaled_dot_product_attention(x, x, x)


@contextlib.contextmanager
def _prefer_cudnn_attention() -> Iterator[None]:
    # What was compiled in another order of kernels must not come out of the compiler's store, which
    # does not know of the order.
    kept = torch.compiler.config.cache_key_tag
    torch.compiler.config.cache_key_tag = f"{kept} {ATTENTION_KERNELS[0].name}"
    try:
        with sdpa_kernel(ATTENTION_KERNELS, set_priority=True):
            yield
    finally:
        torch.compiler.config.cache_key_tag = kept


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream beside the usual one: each keeps the memory that was used in it."""
    return torch.cuda.Stream(device)


@contextlib.contextmanager
def _on_side_stream(device: torch.device) -> Iterator[None]:
    main, other = torch.cuda.current_stream(device), _side_stream(device)
    other.wait_stream(main)
    with torch.cuda.stream(other):
        yield
    main.wait_stream(other)


def select_runtime(device: str = "auto", precision: str = "fp32") -> Runtime:
    """The runtime for a device name: auto, cpu, cuda, cuda:1, mps."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise UserError(f"Unknown device '{device}'. Use auto, cpu, cuda or cuda:N.") from None
    if chosen.type not in ("cpu", "cuda", "mps"):
        raise UserError(f"Unknown device '{device}'. Use auto, cpu, cuda or cuda:N.")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"Device '{device}' was asked for, but torch cannot use it here. Use cpu.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"Device '{device}' was asked for, but torch sees no GPU here. Use cpu.")
    half = precision == "bf16" or (precision == "auto" and chosen.type == "cuda")
    return Runtime(chosen, half)


@contextlib.contextmanager
def join_processes(runtime: Runtime) -> Iterator[Runtime]:
    """Yield the runtime of this process among those that `launch` or torchrun started with it.

    Each has a GPU of its own. Raises LostRank if another process ends early.
    """
    rank, size = launched_rank()
    if size == 1:
        yield runtime
        return
    device, backend = runtime.device, "gloo"
    if device.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", rank))
        if local >= torch.cuda.device_count():
            raise UserError(
                f"There are more processes than GPUs ({torch.cuda.device_count()}) on this "
                "machine. Start one process per GPU, or pass --device cpu."
            )
        device, backend = torch.device("cuda", local), "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    elif device.type != "cpu":
        raise UserError(f"Several processes train on GPUs or CPUs, not on '{device}'.")
    # A process that dies closes its connections, which the others notice at once; the time limit
    # is for what one rank does alone, such as learning a vocabulary.
    try:
        limit = timedelta(hours=12)
        torch.distributed.init_process_group(
            backend, store=attempt_store(limit), rank=rank, world_size=size, timeout=limit
        )
        yield replace(runtime, device=device, world=World(rank, size))
    except RuntimeError as error:
        lost = ("onnection", "gloo", "NCCL", "Broken pipe")
        if any(word in str(error) for word in lost):
            raise LostRank(f"Rank {rank} lost the connection to another process.") from error
        raise
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def attempt_store(timeout: timedelta) -> torch.distributed.Store:
    """Return the store in which the processes of this attempt find each other.

    torchrun's agent keeps one store over all restarts (pytorch issue 135712): without a prefix, a
    restarted process may read the address of a dead one, and wait for it. Several machines count
    their restarts apart; there, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 gives every attempt a store.
    """
    store: torch.distributed.Store
    store, _, _ = next(torch.distributed.rendezvous("env://", timeout=timeout))
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        return store
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return torch.distributed.PrefixStore(f"attempt-{attempt}", store)


def launch(module: str, arguments: Sequence[str], processes: int, max_restarts: int) -> None:
    """Run a module in several processes that train one model, as torchrun does.

    If one fails, the others are stopped; after `max_restarts` restarts a UserError names it.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    threads = max(1, available_cpus() // processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP warns of what is meant
    os.environ[RANK_FAILED] = "1"
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        1, 1, processes, run_id="weft", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        local_addr="localhost", max_restarts=max_restarts, shutdown_timeout=10,
    )  # fmt: skip
    program, *rest = python_command(module, *arguments)
    try:
        elastic_launch(config, program)(*rest)
    except ChildFailedError as error:
        # Those that lost the connection only followed.
        rank, first = min(error.failures.items(), key=lambda f: f[1].exitcode == LostRank.status)
        raise UserError(_describe_failure(rank, first)) from None
    except SignalException as stopped:
        raise KeyboardInterrupt from stopped


def _describe_failure(rank: int, failure: "ProcessFailure") -> str:
    if os.path.isfile(failure.error_file):
        return failure.message
    end = f"failed with status {failure.exitcode}"
    if failure.exitcode < 0:
        end = f"was killed by {signal.Signals(-failure.exitcode).name}"
    return f"Rank {rank} (process {failure.pid}) {end}, and the other processes were stopped."


def device_names(device: str = "auto") -> tuple[str, ...]:
    """The devices that a name stands for, so that several runs can share them out."""
    chosen = select_runtime(device).device
    if chosen.type == "cuda" and chosen.index is None:
        return tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))
    return (str(chosen),)


def seed_everything(seed: int) -> None:
    """Start every random generator from one number."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Use this many CPU threads for a while; 0 leaves the number alone."""
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _stop_openmp() -> None:
    """End the OpenMP threads of this thread; the next parallel region starts new ones.

    A child inherits libgomp's record of its threads but not the threads, and would wait for them
    forever. Other OpenMP runtimes forget theirs after a fork without help.
    """
    with contextlib.suppress(OSError):
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            mapped = {line.split(maxsplit=5)[-1].rstrip("\n") for line in file}
        for path in mapped:
            if "libgomp" in os.path.basename(path):
                pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
                if pause is not None:
                    pause(1)  # omp_pause_soft


def _before_fork() -> None:
    _stop_openmp()
    _saved_environment.append(os.environ.get(TOKENIZERS_VARIABLE))
    os.environ[TOKENIZERS_VARIABLE] = "false"


def _after_in_parent() -> None:
    before = _saved_environment.pop()
    if before is None:
        os.environ.pop(TOKENIZERS_VARIABLE, None)
    else:
        os.environ[TOKENIZERS_VARIABLE] = before


# A forked child computes with one thread, as do the workers of a DataLoader: the parent forks as
# many as it wants to compute at a time. It may set more.
TOKENIZERS_VARIABLE = (
    "TOKENIZERS_PARALLELISM"  # a child does not inherit the threads of `tokenizers` either
)
_saved_environment: list[str | None] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_in_parent,
        after_in_child=lambda: torch.set_num_threads(1),
    )


def free_memory() -> None:
    """Hand cached blocks back after a failed allocation."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
