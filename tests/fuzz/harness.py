"""Fuzzing: damaged files in, and a clean result or a UserError out, in bounded time and memory.

A target is a folder of sound files and what is done with it. An input is that folder with one of
its files damaged; it depends on nothing but the seed, the target's name and its own number, so
that every failure can be made again.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.mutate import mutated
from weft.errors import UserError

Files = Mapping[str, bytes]  # by their path inside the folder

SECONDS = 5.0  # of the processor's time an input may take
WAIT = 10  # times as many of the clock's, where other processes are busy too
ALLOWANCE = 512 << 20  # bytes of address space that inputs may take, beyond what was there before


@dataclass(frozen=True)
class Target:
    """Sound folders, and what is done with a folder whose files may be damaged.

    `seeds` makes the folders; it runs once in a process. `run` raises nothing but UserError.
    `prepare` runs before memory is limited (imports, caches); only files named in `damage` (all,
    where it is empty) are mutated.
    """

    name: str
    seeds: Callable[[], Sequence[Files]]
    run: Callable[[Path], None]
    prepare: Callable[[], None] = lambda: None
    damage: tuple[str, ...] = ()
    weight: int = 1  # share of the inputs
    seconds: float = SECONDS
    allowance: int = ALLOWANCE


@dataclass
class Report:
    """What inputs of one target came to."""

    target: str
    inputs: int = 0
    clean: int = 0
    refused: int = 0  # by a UserError
    failures: list[dict[str, Any]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)  # seconds, number of the input
    peak: int = 0  # bytes of memory beyond what was used before the first input

    def add(self, part: "Report") -> None:
        """Count what another process came to as well."""
        self.inputs += part.inputs
        self.clean += part.clean
        self.refused += part.refused
        self.failures += part.failures
        self.slowest = max(self.slowest, (part.slowest[0], part.slowest[1]))
        self.peak = max(self.peak, part.peak)

    def lines(self) -> Iterator[str]:
        """What to tell a person."""
        yield (
            f"{self.target}: {self.inputs:,} inputs, {self.clean:,} clean, {self.refused:,} "
            f"refused, {len(self.failures)} failed; slowest {self.slowest[0]:.2f} s (input "
            f"{self.slowest[1]}); peak {self.peak / 2**20:.0f} MiB"
        )
        for failure in self.failures:
            yield f"  input {failure['number']}: {failure['error']}  [{failure['kept']}]"


class Job(NamedTuple):
    """Inputs of one target, from `first` up to `end`."""

    name: str
    first: int
    end: int


TARGETS: dict[str, Target] = {}


def register(target: Target) -> Target:
    """Make a target known by its name."""
    assert target.name not in TARGETS
    TARGETS[target.name] = target
    return target


def fuzz(
    names: Sequence[str], inputs: int, seed: int = 0, *, first: int = 0, keep: Path | None = None
) -> list[Report]:
    """Run `inputs` inputs over these targets in a child process.

    A child that dies or hangs is a failure of the input it was at, and the rest goes on in
    another. Failing inputs are kept as folders under `keep`.
    """
    keep = keep or Path(tempfile.mkdtemp(prefix="weft-fuzz-"))
    total = sum(TARGETS[name].weight for name in names)
    jobs = [
        Job(name, first, first + max(1, round(inputs * TARGETS[name].weight / total)))
        for name in names
    ]
    reports = {name: Report(name) for name in names}
    while jobs:
        parts, jobs = _child(jobs, seed, keep)
        for part in parts:
            reports[part.target].add(part)
    return list(reports.values())


def _child(jobs: list[Job], seed: int, keep: Path) -> tuple[list[Report], list[Job]]:
    """What jobs in a child process came to, and the jobs that are left when it died."""
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as scratch:
        progress = Path(scratch) / "progress.json"
        wanted = [json.dumps(jobs), str(seed), str(keep), scratch]
        command = [sys.executable, "-m", "tests.fuzz.child", *wanted]
        with open(Path(scratch) / "errors", "w+b") as errors:
            root = Path(__file__).parents[2]
            child = subprocess.Popen(command, cwd=root, stdout=errors, stderr=errors)
            try:
                died = _waited(child, progress, max(TARGETS[job.name].seconds for job in jobs))
            finally:
                child.kill()
                child.wait()
            errors.seek(0)
            told = errors.read().decode("utf-8", "replace").strip()[-500:]
        if not progress.exists():
            raise RuntimeError(f"fuzzing did not begin: {told}")
        state = json.loads(progress.read_text("utf-8"))
        reports = [Report(**report) for report in state["reports"]]
        if state["done"]:
            return reports, []
        at, number = state["job"], state["number"]
        if number is None:
            raise RuntimeError(f"the sound files of {jobs[at].name} fail: {told}")
        folder = keep / f"{jobs[at].name}-{seed}-{number}"
        shutil.copytree(Path(scratch) / "case", folder, dirs_exist_ok=True)
        reports[at].inputs += 1
        failure = {"number": number, "error": f"{died}: {told}", "kept": str(folder)}
        reports[at].failures.append(failure)
        left = [jobs[at]._replace(first=number + 1), *jobs[at + 1 :]]
        return reports, [job for job in left if job.first < job.end]


def _waited(child: "subprocess.Popen[bytes]", progress: Path, seconds: float) -> str:
    """Wait for the end of a child, or until one input takes far too long: what became of it."""
    patience = 300.0  # to import and to make the seeds
    last, since = 0, time.monotonic()
    while child.poll() is None:
        time.sleep(0.02)
        changed = progress.stat().st_mtime_ns if progress.exists() else 0
        if changed != last:
            last, since = changed, time.monotonic()
        elif time.monotonic() - since > (2 * WAIT * seconds if last else patience):
            return "hangs where no signal reaches it"
    return f"died with status {child.returncode}"


class Overdue(BaseException):
    """An input took too long; no Exception, so that no reader takes it for a fault of a file."""


def child(jobs: list[Job], seed: int, keep: Path, scratch: Path) -> None:
    """Run inputs in this process, and write down before each how far it is."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _overdue)
    signal.signal(signal.SIGALRM, _overdue)
    reports: list[Report] = []
    for job in jobs:
        reports.append(Report(job.name))
        _note(scratch, reports, None)
        target = TARGETS[job.name]
        case = scratch / "case"
        shutil.rmtree(case, ignore_errors=True)
        seeds = [dict(files) for files in target.seeds()]
        target.prepare()
        for files in seeds:  # sound files first: what they take is not the damage's doing
            _place(case, files)
            target.run(case)
        before = _restart_peak()
        _limit(target.allowance)
        for number in range(job.first, job.end):
            random = Random(f"{seed}:{job.name}:{number}")
            _place(case, damaged(seeds, random, target.damage))
            _note(scratch, reports, number)
            _one(target, case, number, keep / f"{job.name}-{seed}-{number}", reports[-1])
            reports[-1].peak = _memory("VmHWM") - before
        _limit(None)
    _note(scratch, reports, None, done=True)


def _one(target: Target, case: Path, number: int, kept: Path, report: Report) -> None:
    """Run one input and count it."""
    started = time.process_time()
    error = _outcome(target, case)
    report.slowest = max(report.slowest, (time.process_time() - started, number))
    report.inputs += 1
    if error is None:
        report.clean += 1
        return
    if isinstance(error, UserError):
        report.refused += 1
        error = _complaint(error)
        if error is None:
            return
    shutil.copytree(case, kept, dirs_exist_ok=True)
    told = "".join(traceback.format_exception(error))
    (kept / "traceback.txt").write_text(told, "utf-8", "backslashreplace")
    where = [line.strip() for line in told.splitlines() if "/weft/" in line][-1:]
    said = f"{type(error).__name__}: {str(error)[:200]!r} {' '.join(where)}"
    report.failures.append({"number": number, "error": said, "kept": str(kept)})


def damaged(seeds: Sequence[Files], random: Random, only: Sequence[str] = ()) -> dict[str, bytes]:
    """One of the folders with one of its files damaged."""
    files = dict(random.choice(seeds))
    name = random.choice([name for name in files if not only or name in only])
    mates = [other[name] for other in seeds if name in other]
    files[name] = mutated(files[name], random, mates)
    return files


def _outcome(target: Target, case: Path) -> BaseException | None:
    signal.setitimer(signal.ITIMER_PROF, target.seconds)
    signal.setitimer(signal.ITIMER_REAL, WAIT * target.seconds)
    try:
        target.run(case)
        return None
    except Overdue:
        return TimeoutError(f"took longer than {target.seconds} s")
    except Exception as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _complaint(error: UserError) -> BaseException | None:
    """What is wrong with the message itself: it is one line that a terminal can show."""
    said = str(error)
    if not said.strip() or len(said) > 5000:
        return AssertionError(f"a message of {len(said):,} characters: {said[:100]}")
    return None


def _place(case: Path, files: Files) -> None:
    """Make the folder hold these files and nothing else."""
    if case.exists():
        for path in sorted(case.rglob("*"), reverse=True):
            inside = str(path.relative_to(case))
            if path.is_file() and inside not in files:
                path.unlink()
    for name, data in files.items():
        path = case / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            path.write_bytes(data)


def _note(scratch: Path, reports: list[Report], number: int | None, done: bool = False) -> None:
    state = {"reports": list(map(asdict, reports)), "job": len(reports) - 1, "number": number}
    part = scratch / "progress.part"
    part.write_text(json.dumps({**state, "done": done}), "utf-8")
    os.replace(part, scratch / "progress.json")


def _limit(allowance: int | None) -> None:
    """Give inputs so much address space beyond what this process has now; None: all there is."""
    limit = resource.RLIM_INFINITY if allowance is None else _memory("VmSize") + allowance
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _memory(what: str) -> int:
    """Bytes of this process: VmSize, VmRSS, or VmHWM, the peak of it."""
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    return 0


def _restart_peak() -> int:
    """Measure the peak of memory from here on; bytes in use now."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return _memory("VmHWM")


def _overdue(signum: int, frame: object) -> None:
    raise Overdue
