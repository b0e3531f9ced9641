"""Drive a headless Chromium over pipes, by the DevTools protocol; no package is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--mute-audio",
    "--remote-debugging-pipe",
)  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER_SCHEMES = ("data:", "blob:", "chrome:", "about:")  # never leave the machine


class Chromium:
    """One page of a browser; everything that it requests or logs is kept."""

    def __init__(self, timeout: float = 120.0) -> None:
        found = next((path for name in NAMES if (path := shutil.which(name))), None)
        if found is None:
            raise SystemExit("no Chromium found; install the package 'chromium'")
        self.timeout = timeout
        self.profile = tempfile.mkdtemp(prefix="weft-chromium-")
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()

        def connect() -> None:
            # The protocol wants descriptors 3 and 4, which may be taken by the pipes themselves.
            first, second = os.dup(to_child), os.dup(from_child)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [found, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._buffer, self._next = b"", 0
        self.requests: list[str] = []
        self.errors: list[str] = []
        page = next(
            one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page"
        )
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the page."""
        return self.send(method, self.session, **params)

    def send(self, method: str, session: str = "", **params: Any) -> Any:
        """Send a message and return its result; events on the way are kept."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        end = time.monotonic() + self.timeout
        while time.monotonic() < end:
            answer = self._receive()
            if answer.get("id") != self._next:
                self._observe(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer.get("result", {})
        raise TimeoutError(method)

    def open(self, path: Path) -> float:
        """Open a page from the disk; return the seconds until its model is ready."""
        begin = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while time.monotonic() - begin < self.timeout:
            ready = self.run("document.body ? document.body.dataset.ready ?? '' : ''")
            if ready == "true":
                return time.monotonic() - begin
            if ready == "failed":
                raise RuntimeError(self.run("document.getElementById('answer').textContent"))
            time.sleep(0.02)
        raise TimeoutError(f"{path}: the model was not ready in {self.timeout} s")

    def run(self, code: str) -> Any:
        """Return the value of an expression, awaited if it is a promise."""
        found = self.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            detail = found["exceptionDetails"]
            raise RuntimeError(detail.get("exception", {}).get("description", detail["text"]))
        return found["result"].get("value")

    def screenshot(self, path: Path, width: int, dark: bool = False, height: int = 0) -> None:
        """Save a picture of the page at a width in pixels: of its top, or of all of it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        metrics = {"width": width, "height": height or 900, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **metrics)
        time.sleep(0.3)
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=not height)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium ended")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def _observe(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                url = params["request"]["url"]
                # The page itself is the one file that it may read.
                if params.get("type") != "Document" and not url.startswith(BROWSER_SCHEMES):
                    self.requests.append(url)
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(params["args"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(params["entry"]["text"])
