"""Does `weft serve` hold under load, and is it fast? Servers and load on loopback, in turns.

    python bench/serve.py classic embeddings single overload endurance stop killed disconnected

`--peers PYTHON` is an interpreter with fastapi and litserve (bench/requirements.txt); without it
the peers are left out. The load generator (bench/serve_load.py) is a process of its own that ends
by itself; `client_ms` is its own processor time per request. Ratios are taken within a round, and
each round begins with another server. Where other work shares the machine, `cpu_ms` (processor time
of all processes of the server per request) varies less than rates.

All servers choose their threads and processes themselves: ours and FastAPI have one process,
LitServe one for HTTP, one that manages and one that computes. None writes an access log.

Models are trained here on the built-in reviews, except `minilm`. Texts are those of the test part.
"""

import json
import os
import pickle
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import record

import weft
from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write

HERE = Path(__file__).parent
QUESTIONS = (
    "classic", "embeddings", "single", "overload", "endurance", "stop", "killed", "disconnected",
)  # fmt: skip
MB = 2**20
DEADLINE_MS = 2000
REST_SECONDS = 3.0  # after an overload, before memory is compared
PARTS = 10  # of the requests of endurance


@dataclass
class Running:
    """A server process."""

    process: subprocess.Popen
    port: int

    def rss(self, field: str = "VmRSS") -> float:
        """Megabytes in memory; VmHWM is the most that there ever were."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024 / MB
        return 0.0

    def cpu_seconds(self) -> float:
        """Processor time of the process group."""
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self.process.pid:  # its group
                    total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextmanager
def running(command: list[str], port: int, seconds: float = 120.0) -> Iterator[Running]:
    """Run a server until the block ends, once it accepts connections and is ready."""
    # Every server chooses its threads itself.
    environment = {name: one for name, one in os.environ.items() if name != "OMP_NUM_THREADS"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env=environment,
    )  # fmt: skip
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            with suppress(OSError):
                with socket.create_connection(("127.0.0.1", port), 1):
                    pass
                with suppress(urllib.error.HTTPError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5)
                    break
                if "weft" not in command:
                    break
            time.sleep(0.1)
        else:
            raise RuntimeError(f"{command} did not start")
        yield Running(process, port)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def weft_server(model: str, *options: str) -> "contextmanager[Running]":
    port = free_port()
    # Without an access log, as the peers.
    command = [sys.executable, "-m", "weft", "serve", f"m={model}", "--port", str(port)]
    command += ["--no-access-log", *options]
    return running(command, port)


def peer_server(python: str, kind: str, model: str) -> "contextmanager[Running]":
    port = free_port()
    return running([python, str(HERE / "serve_peer.py"), kind, str(port), model], port)


def load(port: int, route: str, bodies: Path, *options: object, wait: bool = True):
    """Run the load generator and return what it measured; or the process, not to wait."""
    command = [sys.executable, str(HERE / "serve_load.py"), str(port), route, str(bodies)]
    process = subprocess.Popen([*command, *map(str, options)], stdout=subprocess.PIPE, text=True)
    return read_load(process) if wait else process


def read_load(process: subprocess.Popen) -> dict:
    out, _ = process.communicate(timeout=1000)
    return json.loads(out)


class Bench:
    """The models, texts and settings that the questions share."""

    def __init__(self, folder: Path, arguments, out: record.Record):
        self.folder, self.arguments, self.out = folder, arguments, out
        self.parts = generate_reviews()
        texts = [example.text for example in self.parts["test"]][:500]
        self.texts = texts
        self.predict_bodies = self._write("predict", [{"text": text} for text in texts])
        self.embed_bodies = self._write("embed", [{"input": text} for text in texts])
        write(self.parts["train"], folder / "train.tsv")
        write(self.parts["dev"], folder / "dev.tsv")

    def _write(self, name: str, bodies: list[dict]) -> Path:
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
        return path

    def train(self, recipe: str) -> str:
        folder = self.folder / recipe
        if not folder.exists():
            values = {name: str(self.folder / f"{name.split('.')[1]}.tsv")
                      for name in ("data.train", "data.dev")}  # fmt: skip
            weft.train(weft.recipe(recipe).with_values(values, "bench"), folder, quiet=True)
        return str(folder)

    def sklearn_model(self) -> str:
        """A pipeline with TF-IDF and logistic regression, as one writes it."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        path = self.folder / "sklearn.pickle"
        if not path.exists():
            vectorizer = TfidfVectorizer(ngram_range=(1, 2))
            pipeline = make_pipeline(vectorizer, LogisticRegression(max_iter=1000))
            rows = self.parts["train"]
            pipeline.fit([one.text for one in rows], [one.label for one in rows])
            path.write_bytes(pickle.dumps(pipeline))
        return str(path)

    def rounds(self, servers: dict[str, Running], route: str, bodies: Path) -> dict[str, list]:
        """Answers per second of each server under 32 clients, in rounds."""
        seconds = self.arguments.seconds
        for server in servers.values():
            load(server.port, route, bodies, "--seconds", 1)
        found: dict[str, list[dict]] = {name: [] for name in servers}
        names = list(servers)
        for turn in range(self.arguments.repeats):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                before = servers[name].cpu_seconds()
                row = load(servers[name].port, route, bodies, "--seconds", seconds)
                row["cpu_ms"] = 1000 * (servers[name].cpu_seconds() - before) / row["requests"]
                assert set(row["statuses"]) == {"200"}, (name, row)
                found[name].append(row)
        return found

    def report(self, question: str, found: dict[str, list], ours: str) -> None:
        rates = {name: [row["per_second"] for row in rows] for name, rows in found.items()}
        for name, rows in found.items():
            self.out.line(
                "serve rate", model=question, system=name, clients=32,
                per_second=record.spread(rates[name], 1),
                cpu_ms=record.spread([row["cpu_ms"] for row in rows]),
                client_ms=record.spread([row["client_ms"] for row in rows]),
                p50_ms=record.spread([row["p50_ms"] for row in rows], 1),
                p99_ms=record.spread([row["p99_ms"] for row in rows], 1),
            )  # fmt: skip
            if name != ours:
                ratio = record.ratios(rates[ours], rates[name])
                self.out.line("serve ratio", model=question, system=ours, to=name, times=ratio)


def classic(bench: Bench) -> None:
    """tfidf and fasttext against FastAPI and LitServe with scikit-learn."""
    with ExitStack() as stack:
        servers = {
            "weft tfidf": stack.enter_context(weft_server(bench.train("tfidf"))),
            "weft fasttext": stack.enter_context(weft_server(bench.train("fasttext"))),
        }
        if peers := bench.arguments.peers:
            for kind in ("fastapi-sklearn", "litserve-sklearn", "litserve-sklearn-at-once"):
                server = peer_server(peers, kind, bench.sklearn_model())
                servers[kind] = stack.enter_context(server)
        found = bench.rounds(servers, "/predict", bench.predict_bodies)
    for name in ("weft tfidf", "weft fasttext"):
        peers = {k: v for k, v in found.items() if not k.startswith("weft") or k == name}
        bench.report(name.split()[1], peers, name)


def embeddings(bench: Bench) -> None:
    """MiniLM against FastAPI with transformers, and against the Predictor without HTTP."""
    from weft.convert.locate import locate

    checkpoint = str(locate("minilm"))
    with ExitStack() as stack:
        servers = {
            "weft": stack.enter_context(weft_server("minilm")),
            "weft int8": stack.enter_context(weft_server("minilm", "--int8")),
        }
        if peers := bench.arguments.peers:
            server = peer_server(peers, "fastapi-transformers", checkpoint)
            servers["fastapi-transformers"] = stack.enter_context(server)
        found = bench.rounds(servers, "/v1/embeddings", bench.embed_bodies)
        offline = []
        predictor = weft.load("minilm")
        for turn in range(bench.arguments.repeats + 1):
            began = time.perf_counter()
            predictor.embed(bench.texts)
            seconds = time.perf_counter() - began
            row = load(servers["weft"].port, "/v1/embeddings", bench.embed_bodies,
                       "--seconds", bench.arguments.seconds)  # fmt: skip
            if turn:
                offline.append(row["per_second"] / (len(bench.texts) / seconds))
    bench.report("minilm", {k: v for k, v in found.items() if k != "weft int8"}, "weft")
    bench.report("minilm, int8", {k: v for k, v in found.items() if k != "weft"}, "weft int8")
    bench.out.line("serve ratio", model="minilm", system="weft", to="Predictor.embed",
                   times=record.spread(offline))  # fmt: skip


def single(bench: Bench) -> None:
    """The time to answer one client, compared with the Predictor in Python."""
    for name, model, route, bodies in (
        ("tfidf", bench.train("tfidf"), "/predict", bench.predict_bodies),
        ("minilm", "minilm", "/v1/embeddings", bench.embed_bodies),
    ):
        predictor = weft.load(model)
        call = predictor.embed if name == "minilm" else predictor
        with weft_server(model) as server:
            rows = []
            for _ in range(bench.arguments.repeats):
                alone = []
                for text in bench.texts[:200]:
                    began = time.perf_counter()
                    call([text])
                    alone.append(1000 * (time.perf_counter() - began))
                served = load(server.port, route, bodies, "--clients", 1, "--seconds", 3)
                rows.append((statistics.median(alone), served["p50_ms"]))
        bench.out.line(
            "serve single", model=name, predictor_p50_ms=record.spread([a for a, _ in rows]),
            served_p50_ms=record.spread([b for _, b in rows]),
            more_ms=record.spread([b - a for a, b in rows]),
        )  # fmt: skip


def overload(bench: Bench) -> None:
    """Three times the requests a server can answer."""
    for name, model, route, bodies in (
        ("minilm", "minilm", "/v1/embeddings", bench.embed_bodies),
        ("tfidf", bench.train("tfidf"), "/predict", bench.predict_bodies),
    ):
        with weft_server(model, "--deadline-ms", str(DEADLINE_MS)) as server:
            load(server.port, route, bodies, "--seconds", 1)
            before = load(server.port, route, bodies, "--seconds", bench.arguments.seconds)
            rss = server.rss()
            rate = 3 * before["per_second"]
            row = load(server.port, route, bodies, "--rate", rate, "--seconds",
                       bench.arguments.overload_seconds)  # fmt: skip
            peak = server.rss("VmHWM") - rss
            began = time.monotonic()
            while True:
                after = load(server.port, route, bodies, "--clients", 1, "--requests", 5)
                if set(after["statuses"]) == {"200"} and after["p50_ms"] < DEADLINE_MS / 4:
                    break
                if time.monotonic() - began > 30:
                    break
            recovery = time.monotonic() - began
            time.sleep(REST_SECONDS)
            grown = server.rss() - rss
            again = load(server.port, route, bodies, "--seconds", bench.arguments.seconds)
        capacity = (before["per_second"] + again["per_second"]) / 2
        bench.out.line(
            "serve overload", model=name, capacity_per_second=round(capacity, 1),
            offered_per_second=round(rate, 1), seconds=bench.arguments.overload_seconds,
            statuses=row["statuses"], unsent=row["unsent"],
            goodput=round(row["per_second"] / capacity, 3),
            p99_ms=round(row["p99_ms"]), deadline_ms=DEADLINE_MS,
            recovery_seconds=round(recovery, 2), rss_grown_mb=round(grown, 1),
            peak_grown_mb=round(peak, 1),
        )  # fmt: skip


def endurance(bench: Bench) -> None:
    """Many small requests: errors, and growth of memory."""
    count = bench.arguments.requests
    with weft_server(bench.train("tfidf")) as server:
        load(server.port, "/predict", bench.predict_bodies, "--requests", 5000, "--seconds", 60)
        before = server.rss()
        statuses: Counter = Counter()
        grown, began = [], time.monotonic()
        for _ in range(PARTS):
            row = load(server.port, "/predict", bench.predict_bodies, "--requests", count // PARTS,
                       "--seconds", 900)  # fmt: skip
            statuses.update(row["statuses"])
            grown.append(round(server.rss() - before, 1))
        seconds = time.monotonic() - began
        bench.out.line(
            "serve endurance", model="tfidf", requests=sum(statuses.values()), statuses=statuses,
            per_second=round(sum(statuses.values()) / seconds, 1), rss_mb=round(before, 1),
            rss_grown_mb=grown,
        )  # fmt: skip


def stop(bench: Bench) -> None:
    """SIGHUP and SIGTERM while 64 clients ask."""
    one = bench._write("one", [{"text": bench.texts[0]}])
    model = bench.train("tfidf")
    with weft_server(model) as server:
        process = load(server.port, "/predict", one, "--clients", 64, "--seconds", 6, "--keep",
                       wait=False)  # fmt: skip
        for _ in range(2):
            time.sleep(1.5)
            server.process.send_signal(signal.SIGHUP)
        row = read_load(process)
        done = server.metric("weft_reloads_total")
    bench.out.line("serve reload", clients=64, reloads=done, statuses=row["statuses"],
                   different_answers=row["bodies"])  # fmt: skip
    totals: dict[str, int] = {}
    bodies = set()
    for _ in range(bench.arguments.repeats):
        with weft_server("minilm") as server:
            first = load(server.port, "/v1/embeddings", bench.embed_bodies, "--seconds", 1)
            process = load(server.port, "/v1/embeddings", bench.embed_bodies, "--clients", 64,
                           "--requests", 64, wait=False)  # fmt: skip
            while server.metric("weft_queue_requests") < 32:
                time.sleep(0.002)
            server.process.send_signal(signal.SIGTERM)
            row = read_load(process)
            assert first["statuses"] == {"200": first["requests"]}
            bodies.add(server.process.wait(20))
            for status, count in row["statuses"].items():
                totals[status] = totals.get(status, 0) + count
    bench.out.line("serve stop", in_flight=64, times=bench.arguments.repeats, statuses=totals,
                   exit_status=sorted(bodies))  # fmt: skip


def listeners(port: int) -> set[int]:
    """The processes that listen to a port."""
    found = subprocess.run(["ss", "-Hltnp", f"sport = :{port}"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    return {int(pid) for pid in re.findall(r"pid=(\d+)", found.stdout)}


def killed(bench: Bench) -> None:
    """kill -9 of one of two workers under load."""
    with weft_server(bench.train("tfidf"), "--workers", "2") as server:
        first = listeners(server.port)
        process = load(server.port, "/predict", bench.predict_bodies, "--clients", 16,
                       "--seconds", 25, wait=False)  # fmt: skip
        time.sleep(2)
        os.kill(min(first), signal.SIGKILL)
        began = time.monotonic()
        replaced = 0.0
        while time.monotonic() - began < 22 and not replaced:
            time.sleep(0.05)
            if len(listeners(server.port) - {min(first)}) == 2:
                replaced = time.monotonic() - began
        row = read_load(process)
    bench.out.line("serve killed", workers=2, statuses=row["statuses"],
                   replaced_after_seconds=round(replaced, 1) or None)  # fmt: skip


def disconnected(bench: Bench) -> None:
    """Clients that leave while they wait."""
    with weft_server("minilm") as server:
        busy = load(server.port, "/v1/embeddings", bench.embed_bodies, "--clients", 32,
                    "--seconds", 6, wait=False)  # fmt: skip
        time.sleep(2)
        gone = sum(
            load(server.port, "/v1/embeddings", bench.embed_bodies, "--leave", 100)["statuses"]["0"]
            for _ in range(3)
        )
        row = read_load(busy)
        time.sleep(0.5)
        computed = server.metric("weft_batch_texts_sum") - row["statuses"]["200"]
    bench.out.line("serve disconnected", clients=gone, never_computed=round(1 - computed / gone, 3),
                   others=row["statuses"])  # fmt: skip


def versions(python: str) -> dict[str, str]:
    """The versions of the peers."""
    names = ("fastapi", "litserve", "uvicorn", "scikit-learn", "transformers", "torch")
    code = (
        "import json; from importlib.metadata import version; "
        f"print(json.dumps({{name: version(name) for name in {names}}}))"
    )
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(found.stdout))


def main() -> None:
    parser = record.options(__doc__, repeats=5)
    parser.add_argument("questions", nargs="+", choices=QUESTIONS)
    parser.add_argument("--peers", default="", help="an interpreter with fastapi and litserve")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load in each round")
    parser.add_argument("--overload-seconds", type=float, default=30.0)
    parser.add_argument("--requests", type=int, default=1_000_000, help="of endurance")
    arguments = parser.parse_args()
    out = record.Record(arguments.record)
    if arguments.peers:
        out.line("serve peers", **versions(arguments.peers))
    with tempfile.TemporaryDirectory(prefix="weft-serve-") as folder:
        bench = Bench(Path(folder), arguments, out)
        for question in arguments.questions:
            globals()[question](bench)


if __name__ == "__main__":
    main()
