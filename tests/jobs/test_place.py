"""Jobs and the places that run them: this machine, and what is said where there is no cluster."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft
from weft.cli.predict import drop_option
from weft.errors import UserError
from weft.jobs import LOCAL, Job, Resources, open_place, parse_resources, spread, stop
from weft.jobs.local import pack, run_to_end, unpack
from weft.machine import python_command

pytestmark = pytest.mark.usefixtures("spawned_workers")
MODULE = """
import os, pathlib, sys, time
print("threads", os.environ["OMP_NUM_THREADS"], *sys.argv[1:], sys.stdin.read())
if "wait" in sys.argv:
    pathlib.Path("ready").write_text(str(os.getpid()))
    time.sleep(60)
sys.exit("out of luck" if "fail" in sys.argv else 0)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module to run."""
    (tmp_path / "work_on_it.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wait_for(condition) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def test_jobs_here_get_arguments_input_threads_and_a_log(folder):
    job = Job("one", "work_on_it", ("a", "b"), "given", threads=3, log=folder / "log.txt")
    failing = Job("two", "work_on_it", ("fail",), threads=1)
    one, two = spread([job, failing], LOCAL)
    wait_for(lambda: one.poll() is not None and two.poll() is not None)
    assert (one.returncode, two.returncode) == (0, 1)
    assert job.log.read_text() == "threads 3 a b given\n"
    assert two.last_line() == "out of luck"


def test_jobs_are_stopped(folder):
    running = spread([Job("one", "work_on_it", ("wait",), threads=1)], LOCAL)
    wait_for((folder / "ready").exists)
    stop(running)
    assert running[0].returncode == -signal.SIGKILL


def test_a_job_for_another_machine_ends_with_the_worker_that_runs_it(folder):
    code = (
        "import sys; sys.path[:0] = ['.']; from weft.jobs.local import run_to_end\n"
        "from weft.jobs import Job; run_to_end(Job('one', 'work_on_it', ('wait',), '', 1), '.')"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parents[1])}
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=environment)
    wait_for(lambda: (folder / "ready").exists() and (folder / "ready").read_text())
    pid = int((folder / "ready").read_text())
    os.kill(pid, 0)  # it runs
    worker.kill()
    worker.wait()
    wait_for(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_for_another_machine_reports_status_error_and_time(folder):
    job = Job("one", "work_on_it", ("fail",), "in", 2, Resources(1), is_finished=lambda: True)
    sent = unpack(pack(job))
    assert (sent.name, sent.arguments, sent.stdin, sent.threads) == ("one", ("fail",), "in", 2)
    code, line, seconds = run_to_end(sent, str(folder))
    assert (code, line) == (1, "out of luck")
    assert 0 < seconds < 60


def test_a_machine_without_the_shared_folder_says_so(folder):
    code, line, _ = run_to_end(Job("one", "work_on_it"), str(folder / "elsewhere"))
    assert code == 1
    assert line.startswith(f"{socket.gethostname()} has no folder {folder}/elsewhere (No such")


def test_resources_of_a_job():
    assert parse_resources("") == Resources(None, None, 0)
    assert parse_resources("cpus=2,gpus=0.5,memory=8GB") == Resources(2.0, 0.5, 8 * 2**30)
    assert parse_resources("memory=512MB").memory == 512 * 2**20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu=2", "Unknown resource 'cpu' in --needs. Did you mean 'cpus'?"),
        ("cpus=two", "--needs: cpus should be an amount such as 2, got 'cpus=two'"),
        ("gpus=1GB", "--needs: gpus should be an amount such as 2, got 'gpus=1GB'"),
        ("memory=8 GB", "--needs: memory should be an amount such as 8GB"),
    ],
)
def test_wrong_resources_are_an_error(text, message):
    with pytest.raises(UserError, match=message):
        parse_resources(text)


def test_unknown_place_is_an_error():
    with (
        pytest.raises(UserError, match=r"Unknown place 'rai' in --on\. Did you mean 'ray'\?"),
        open_place("rai:localhost:1"),
    ):
        pass


def test_missing_ray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(
            UserError, match=r"--on ray needs the ray package: pip install 'weft\[ray\]'"
        ),
        open_place("ray"),
    ):
        pass


def test_the_command_of_a_part_has_no_place():
    words = ["predict", "m", "in.csv", "--on", "ray:a:1", "-o", "out", "--needs=cpus=2", "--int8"]
    assert drop_option(drop_option(words, "--on"), "--needs") == [
        "predict", "m", "in.csv", "-o", "out", "--int8",
    ]  # fmt: skip


def test_attached_modules_see_their_own_arguments(folder):
    words = python_command("weft.jobs.attached", str(os.getpid()), "work_on_it", "a")
    environment = {**os.environ, "OMP_NUM_THREADS": "5"}
    done = subprocess.run(words, capture_output=True, text=True, input="x", env=environment)
    assert (done.returncode, done.stdout) == (0, "threads 5 a x\n")
