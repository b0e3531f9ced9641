"""Does a page open offline, whole and readable? Looked at by a real browser, wide and narrow.

    python bench/report.py out/report.html --pictures pictures

Headless Chromium is driven through its debugging pipe. For 1440 and 390 px, light and dark, this
counts requests that leave the page, console errors, text that is cut off or sticks out of its box,
and texts of one chart that overlap; every switch, key and column head is tried; and PICTURES
receives a screenshot of each, and the printed page.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import Record, options

WIDTHS, SCHEMES = (1440, 390), ("light", "dark")
LARGEST = 5_000_000  # bytes of a page
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--remote-debugging-pipe"
)

# Text may be wider than its box only where the box scrolls.
LAYOUT = """(() => {
  const scrolls = (e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  const inScroll = (e) => e && (scrolls(e) || inScroll(e.parentElement));
  const named = (e) => e.tagName.toLowerCase() + (e.className && e.className.baseVal === undefined
    ? "." + e.className : "") + ": " + e.textContent.trim().slice(0, 40);
  const wide = [], clipped = [], overlaps = [], outside = [];
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) wide.push("the page: " + page.scrollWidth);
  for (const e of document.querySelectorAll("body *:not(svg *):not(script):not(style)")) {
    if (!e.clientWidth || e.scrollWidth <= e.clientWidth + 1 || scrolls(e)) continue;
    if (getComputedStyle(e).overflowX === "visible") { if (!inScroll(e)) wide.push(named(e)); }
    else clipped.push(named(e));
  }
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")]
      .map((e) => [e.textContent, e.getBoundingClientRect()]);
    texts.forEach(([text, a], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1
          || a.bottom > frame.bottom + 1) outside.push(text);
      for (const [other, b] of texts.slice(0, i)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const up = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && up > 3) overlaps.push(text + " / " + other);
      }
    });
  }
  return { wide, clipped, overlaps, outside };
})()"""

# Every control is used once; what it should have changed is looked at.
CONTROLS = """(() => {
  const failed = [];
  for (const head of document.querySelectorAll("table.sortable th button")) {
    const table = head.closest("table"), before = table.tBodies[0].rows.length;
    head.click(); head.click();
    if (!head.parentElement.getAttribute("aria-sort")) failed.push("sort: " + head.textContent);
    if (table.tBodies[0].rows.length !== before) failed.push("rows lost: " + head.textContent);
  }
  for (const map of document.querySelectorAll(".map")) {
    const picture = map.querySelector("svg"), card = map.querySelector(".map-card");
    const places = () => [...picture.querySelectorAll("circle")].slice(0, 50)
      .map((c) => c.getAttribute("cx")).join();
    const colour = () => [...picture.querySelectorAll("circle")]
      .map((c) => getComputedStyle(c).fill).join();
    const text = () => card.textContent;
    const changes = (what, see, act) => {
      const was = see();
      act();
      if (see() === was) failed.push(what);
    };
    const press = (key) =>
      picture.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    changes("arrow key", text, () => press("ArrowLeft"));
    changes("second arrow key", text, () => press("ArrowLeft"));
    const dot = picture.querySelector("circle").getBoundingClientRect();
    const where = { clientX: dot.x + 2, clientY: dot.y + 2, bubbles: true };
    changes("pointer", text, () => picture.dispatchEvent(new PointerEvent("pointermove", where)));
    for (const radio of map.querySelectorAll("input[type=radio]:not(:checked)"))
      changes(radio.value, radio.name.endsWith("method") ? places : colour, () => radio.click());
    for (const key of map.querySelectorAll(".map-keys button")) { key.click(); key.click(); }
    if (picture.querySelector(".dim")) failed.push("legend");
  }
  for (const box of document.querySelectorAll(".fold input")) {
    const seen = () => box.closest(".folded").getBoundingClientRect().height, was = seen();
    box.click(); if (seen() <= was) failed.push("fold"); box.click();
  }
  return failed;
})()"""


class Browser:
    """A headless Chromium with one empty page; commands go in, replies and events come out."""

    def __init__(self, program: str, profile: str):
        inward, self.to = os.pipe()
        self.source, outward = os.pipe()

        def connect() -> None:
            # The browser reads commands on 3 and writes on 4; either pipe may lie there already.
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (inward, outward)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        words = [program, *FLAGS.split(), f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(
            words, preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(inward)
        os.close(outward)
        self.count, self.rest, self.session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        page = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its reply."""
        self.count += 1
        order = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.to, json.dumps(order).encode() + b"\0")
        while True:
            message = self.receive()
            if message.get("id") == self.count:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]

    def receive(self) -> dict[str, Any]:
        """The next message; events are kept."""
        while b"\0" not in self.rest:
            if not (more := os.read(self.source, 1 << 20)):
                sys.exit("the browser went away")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def evaluate(self, script: str) -> Any:
        """What a script in the page gives back."""
        found = self("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in found:
            sys.exit(json.dumps(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def open(self, address: str, width: int, scheme: str) -> None:
        """Load a page anew under a width and a scheme."""
        self.events.clear()
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self("Emulation.setEmulatedMedia", features=media)
        self("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
             mobile=width < 600)  # fmt: skip
        self("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.receive()

    def picture(self, width: int) -> bytes:
        """The whole page as PNG."""
        height = min(self("Page.getLayoutMetrics")["cssContentSize"]["height"], 16_000)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])

    def close(self) -> None:
        self.session = ""
        self("Browser.close")
        self.process.wait(30)


def complaints(events: list[dict[str, Any]], address: str) -> tuple[list[str], list[str]]:
    """Requests other than the page itself, and what the console says is wrong."""
    requests, console = [], []
    for event in events:
        values = event["params"]
        if event["method"] == "Network.requestWillBeSent":
            url = values["request"]["url"]
            if url != address and not url.startswith("data:"):
                requests.append(url)
        elif event["method"] == "Runtime.exceptionThrown":
            console.append(values["exceptionDetails"]["text"])
        elif event["method"] == "Runtime.consoleAPICalled":
            console.append(f"console.{values['type']}")
        elif event["method"] == "Log.entryAdded":
            console.append(values["entry"]["text"])
    return requests, console


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("page", type=Path)
    parser.add_argument("--pictures", type=Path, default=None)
    given = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium")
    address = given.page.resolve().as_uri()
    record = Record(given.record)
    size = given.page.stat().st_size
    good = size < LARGEST
    name = given.page.name
    record.line("page size", page=name, value=size, bar=LARGEST, good=good)
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        for width in WIDTHS:
            for scheme in SCHEMES:
                browser.open(address, width, scheme)
                found = browser.evaluate(LAYOUT)
                if given.pictures:
                    picture = f"{given.page.stem}-{width}-{scheme}.png"
                    (given.pictures / picture).write_bytes(browser.picture(width))
                found["controls"] = browser.evaluate(CONTROLS)
                found["requests"], found["console"] = complaints(browser.events, address)
                fine = not any(found.values())
                good = good and fine
                record.line(
                    "page layout", page=name, width=width, scheme=scheme, good=fine, **found
                )
        if given.pictures:
            printed = browser("Page.printToPDF")["data"]
            path = given.pictures / f"{given.page.stem}.pdf"
            path.write_bytes(base64.b64decode(printed))
        browser.close()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
