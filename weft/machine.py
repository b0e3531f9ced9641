"""The machine a process runs on."""

import json
import os
import sys
import time

from weft.errors import OutOfMemory, UserError

RANK_FAILED = "WEFT_LAUNCHED"  # environment: our launcher prints the error of the rank that failed


class LostRank(UserError):
    """Another process of this run ended, so this one cannot go on."""

    status = 75  # the exit status that tells the launcher that another process failed first


def launched_rank() -> tuple[int, int]:
    """Return this process's rank and the number of processes that train one model together."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def is_restarted() -> bool:
    """Return True if the launcher started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def report_to_launcher(message: str) -> bool:
    """Hand an error to the launcher; return True if it is not to be printed here."""
    rank, size = launched_rank()
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if size == 1 or not path:
        return False
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"message": message, "timestamp": int(time.time())}, file)
    return rank > 0 or RANK_FAILED in os.environ


def available_cpus() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int | None:
    """Return how many bytes this process may still take, or None where the system does not say."""
    limits = [_meminfo(), _cgroup(), _address_space()]
    finite = [limit for limit in limits if limit is not None]
    return max(0, min(finite)) if finite else None


def require_memory(needed: int, what: str, advice: str) -> None:
    """Raise OutOfMemory, before anything is lost, where more is needed than there is."""
    available = available_memory()
    if available is not None and needed > available:
        wanted, there = (f"{count / 2**30:.1f} GiB" for count in (needed, available))
        raise OutOfMemory(
            f"{what} needs about {wanted} of memory, and {there} is available. {advice}"
        )


def _meminfo() -> int | None:
    """Return the memory available without swapping."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _cgroup() -> int | None:
    """Return what the container limit leaves; reclaimable file cache counts as free."""
    try:
        base = "/sys/fs/cgroup/memory."
        limit, used = (_first_number(f"{base}{name}") for name in ("max", "current"))
        with open(f"{base}stat", encoding="ascii") as file:
            stat = dict(line.split() for line in file)
        return limit - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return None


def _first_number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())  # "max" is no number: there is no limit


def _address_space() -> int | None:
    """Return what `ulimit -v` leaves."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        with open("/proc/self/statm", encoding="ascii") as file:
            return limit - int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of Weft as `python -m` does, on our own module path.

    `python -m` would put the working folder first, from which a file called torch.py is imported.
    """
    start = f"import sys; sys.path[:] = {sys.path!r}; import runpy; "
    run = f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", start + run, *arguments]
