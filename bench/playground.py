"""Updates per second of the playground in Chromium, for every model, and the requests it makes.

    python bench/playground.py --widths 16,32 --record playground
    python bench/playground.py --seconds 2 --pictures /tmp/pictures

The page runs as for a reader: its own loop between frames, with all charts drawn.
"""

import base64
import itertools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import record

from weft.lab.playground.build import write_playground

MODELS = ("bag", "cnn", "elman", "gru", "lstm", "attention", "transformer")
TASKS = ("order", "count", "recall")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--remote-debugging-pipe",
)  # fmt: skip
TIMEOUT = 120.0  # seconds for one answer of the browser


class Browser:
    """A page in Chromium, driven over two pipes by the DevTools protocol."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.out, self.source, self.buffer = to_browser, from_browser, b""
        self.ids, self.session, self.events = itertools.count(1), "", []  # type: ignore[var-annotated]
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self.ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)
        raise TimeoutError(method)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            part = os.read(self.source, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has stopped")
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        return dict(json.loads(text))

    def evaluate(self, code: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def open(self, page: Path, **settings: Any) -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{page.as_uri()}#{urlencode(settings)}")
        for _ in range(300):
            if self.evaluate("document.readyState === 'complete' && !!document.title"):
                return
            time.sleep(0.1)
        raise TimeoutError(f"{page} was not loaded")


@contextmanager
def open_browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("Chromium is not installed.")
    (read_there, write_here), (read_here, write_there) = os.pipe(), os.pipe()
    # Chromium reads descriptor 3 and writes 4; a shell puts the pipes there.
    shell = f'exec "$@" 3<&{read_there} 4>&{write_there}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_there, write_there), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_there)
        os.close(write_there)
        try:
            yield Browser(write_here, read_here)
        finally:
            process.terminate()
            process.wait(20)
            os.close(write_here)
            os.close(read_here)


def measure(
    browser: Browser, page: Path, seconds: float, **settings: Any
) -> tuple[float, float, str]:
    """Return updates per second, updates per CPU second of the page's thread, and accuracy."""
    browser.open(page, **settings)
    browser.evaluate("document.getElementById('run').click()")
    time.sleep(1)  # until the code is compiled
    first = _progress(browser)
    time.sleep(seconds)
    last = _progress(browser)
    updates, wall, cpu = (b - a for a, b in zip(first, last, strict=True))
    accuracy = browser.evaluate("document.getElementById('accuracy-now').textContent")
    return updates / wall, updates / cpu, str(accuracy)


def _progress(browser: Browser) -> tuple[float, float, float]:
    """Return the number of updates, the clock, and the CPU time of the page's thread."""
    text = "document.getElementById('updates').textContent.replace(/,/g, '')"
    updates, clock = browser.evaluate(f"[+{text}, performance.now()]")
    metrics = browser.call("Performance.getMetrics")["metrics"]
    cpu = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
    return updates, clock / 1000, cpu


def take_pictures(browser: Browser, page: Path, folder: Path, seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    views = (
        ("lstm", "recall", {}), ("transformer", "order", {"layers": 2}), ("attention", "own", {}),
    )  # fmt: skip
    for width, scheme in itertools.product((1280, 390), ("light", "dark")):
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.call("Emulation.setEmulatedMedia", features=[feature])
        for model, task, more in views[: 3 if scheme == "light" else 2]:
            browser.open(page, model=model, task=task, **more)
            browser.evaluate("document.getElementById('run').click()")
            time.sleep(seconds)
            browser.evaluate("document.getElementById('run').click()")
            overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
            size = browser.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1}
            shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
            name = f"{model}-{width}-{scheme}.png"
            (folder / name).write_bytes(base64.b64decode(shot["data"]))
            print(f"{name}: {overflow} px too wide")


def main() -> None:
    parser = record.options(__doc__, repeats=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--widths", default="16", help="units, comma-separated")
    parser.add_argument("--tasks", default="recall")
    parser.add_argument("--pictures", type=Path, help="folder for screenshots; no measurements")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        page = write_playground(Path(folder) / "playground.html")
        if args.pictures is not None:
            take_pictures(browser, page, args.pictures, args.seconds)
        else:
            rec = record.Record(args.record)
            for width, task, model in itertools.product(
                args.widths.split(","), args.tasks.split(","), MODELS
            ):
                settings = {"model": model, "task": task, "width": width}
                runs = [
                    measure(browser, page, args.seconds, **settings) for _ in range(args.repeats)
                ]
                wall, cpu = [run[0] for run in runs], [run[1] for run in runs]
                rec.line(
                    "updates per second in Chromium", **settings, length=10, batch=16,
                    median=round(statistics.median(wall), 1), lowest=round(min(wall), 1),
                    highest=round(max(wall), 1), per_cpu_second=round(statistics.median(cpu), 1),
                    load=round(os.getloadavg()[0], 1), accuracy=runs[-1][2],
                )  # fmt: skip
            requests = [
                event["params"]["request"]["url"]
                for event in browser.events
                if event.get("method") == "Network.requestWillBeSent"
            ]
            sent = [url for url in requests if not url.startswith(("file:", "about:", "data:"))]
            rec.line("requests to a network", requests=len(sent), bytes=page.stat().st_size)
        for event in browser.events:
            if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                print(json.dumps(event["params"])[:600])


if __name__ == "__main__":
    main()
