"""Jobs as tasks of a Ray cluster. Ray is imported in this file only.

A task runs the job in a process of its own, as on one machine. Ray's own retries are off: a job
whose worker or node was lost is started again here, after a look whether its result is there.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from weft.errors import MissingLibrary, UserError
from weft.jobs.job import Job, Resources, RunningJob
from weft.jobs.local import pack, run_to_end, unpack
from weft.machine import available_cpus

RETRIES = 3  # of a job whose worker or node was lost
RETRY_SECONDS = 1.0  # until the process of a lost worker has ended, too
POLL_SECONDS = 0.1  # between two questions to the cluster
CONNECT_SECONDS = 5.0  # to reach the head node
KILL_SECONDS = 10.0  # to wait for the end of a job that was killed
OBJECT_STORE_BYTES = 80 * 2**20  # of a cluster started here: results of tasks are small
LOST = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "ObjectLostError",
        "NodePreemptedError", "RaySystemError")  # fmt: skip


class RayCluster:
    """A cluster that this process has joined."""

    is_remote = True

    def __init__(self, ray: Any, address: str):
        self.ray, self.address = ray, address
        self.tasks: dict[Any, RayJob] = {}  # by the reference of their result
        self.waiting: list[RayJob] = []  # to be started again
        self.polled = 0.0

    def start(self, job: Job) -> RunningJob:
        """Hand a job to the cluster, which starts it when a node has room."""
        running = RayJob(self, job)
        self.submit(running)
        return running

    def submit(self, running: "RayJob") -> None:
        """Send the task of a job."""
        needs = running.job.needs
        task = self.ray.remote(_run_task).options(
            name=running.job.name,
            num_cpus=running.job.threads or 1 if needs.cpus is None else needs.cpus,
            num_gpus=needs.gpus or 0,
            memory=needs.memory or None,
            max_retries=0,
        )
        running.reference = task.remote(pack(running.job), os.getcwd())
        self.tasks[running.reference] = running

    def update(self) -> None:
        """Collect the tasks that have ended, and start lost ones again."""
        now = time.monotonic()
        if now < self.polled + POLL_SECONDS:
            return
        self.polled = now
        if self.tasks:
            ended, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0)
            for reference in ended:
                self.tasks.pop(reference).collect()
        for running in [one for one in self.waiting if now >= one.start_at]:
            self.waiting.remove(running)
            self.submit(running)

    def count_slots(self, needs: Resources) -> int:
        """Return how many jobs the nodes hold at once; UserError if not even one."""
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        slots = sum(
            min(int(node.get(name, 0) / amount + 1e-9) for name, amount in wanted.items() if amount)
            for node in nodes
        )
        if not slots:
            raise UserError(
                f"No node of the Ray cluster has {needs} for a job; there are {len(nodes)} nodes, "
                f"the largest with {max((node.get('CPU', 0) for node in nodes), default=0):g} "
                "CPUs. Ask for less with --needs."
            )
        return slots

    @property
    def gpus(self) -> float:
        """The number of GPUs."""
        return float(self.ray.cluster_resources().get("GPU", 0))


class RayJob:
    """A job on a cluster."""

    def __init__(self, cluster: RayCluster, job: Job):
        self.cluster, self.job = cluster, job
        self.reference: Any = None
        self.returncode: int | None = None
        self.seconds: float | None = None
        self.losses = 0
        self.start_at = 0.0  # when a lost job is sent again
        self.error = ""

    def poll(self) -> int | None:
        if self.returncode is None:
            self.cluster.update()
        return self.returncode

    def kill(self) -> None:
        if self.returncode is not None:
            return
        self.returncode = -signal.SIGKILL
        if self in self.cluster.waiting:
            self.cluster.waiting.remove(self)
            return
        self.cluster.tasks.pop(self.reference, None)
        self.cluster.ray.cancel(self.reference, force=True)
        self.cluster.ray.wait([self.reference], timeout=KILL_SECONDS)

    def last_line(self) -> str:
        return self.error

    def collect(self) -> None:
        """Take over the result of the task, or arrange for another attempt."""
        try:
            self.returncode, self.error, self.seconds = self.cluster.ray.get(self.reference)
        except self.cluster.ray.exceptions.OutOfMemoryError:
            self.returncode = -signal.SIGKILL
        except Exception as error:
            if type(error).__name__ not in LOST:
                self.returncode, self.error = 1, " ".join(str(error).split())
            elif self.job.is_finished():
                self.returncode = 0
            elif self.losses == RETRIES:
                self.returncode = 1
                self.error = f"its worker or node was lost {RETRIES + 1} times"
            else:
                self.losses += 1
                self.start_at = time.monotonic() + RETRY_SECONDS
                self.cluster.waiting.append(self)


def _run_task(plain: dict[str, Any], folder: str) -> tuple[int, str, float]:
    """Run a job on a node."""
    return run_to_end(unpack(plain), folder)


@contextlib.contextmanager
def join_cluster(address: str) -> Iterator[RayCluster]:
    """Join the cluster at HOST:PORT, or at RAY_ADDRESS, or start one on this machine.

    A program that has joined a cluster itself stays in it.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray would try to connect for 13 minutes.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "10")
    ray = _import_ray()
    if ray.is_initialized():
        yield RayCluster(ray, address)
        return
    address = address or os.environ.get("RAY_ADDRESS", "")
    if address:
        _check_address(ray, address)
    options = {} if address else {
        "num_cpus": available_cpus(), "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
    }  # fmt: skip
    _silence(ray)
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        where = f"join the Ray cluster at {address}" if address else "start Ray on this machine"
        raise UserError(f"Cannot {where}: {reason}") from error
    finally:
        if main and handler is not None:
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own in its place
    try:
        yield RayCluster(ray, address)
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingLibrary("--on ray needs the ray package: pip install 'weft[ray]'.") from None
    return ray


def _silence(ray: Any) -> None:
    """Keep Ray from printing pages of a lost node's log on our standard output.

    It has no option for that, and the caller reports every loss in one line.
    """
    with contextlib.suppress(AttributeError):
        ray._private.worker.print_to_stdstream = lambda *values, **options: None


def _check_address(ray: Any, address: str) -> None:
    """Raise UserError unless something answers at HOST:PORT; Ray itself would wait for minutes."""
    found = re.fullmatch(r"\[?([^\[\]/\s]+)\]?:(\d{1,5})", address)
    if found is None:
        raise UserError(f"--on ray:{address}: give HOST:PORT of the head node, such as head:6379.")
    host, port = found[1], int(found[2])
    if host in ("localhost", "127.0.0.1", "::1"):
        host = ray.util.get_node_ip_address()  # where Ray will look
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"No Ray cluster answers at {host}:{port} ({reason}). Start one with `ray start "
            "--head`, or correct --on."
        ) from None
