"""Fetch onnxruntime-web, which runs the graphs of neural networks inside a page.

It is 5 MB of WebAssembly under the MIT licence: too large for this package, and a page may not load
it later. It is fetched once from the npm registry, checked against the hash in this file, and kept
in the user's cache:

    python -m weft.export.page.runtime [TARBALL]
"""

import base64
import hashlib
import io
import os
import re
import sys
import tarfile
import urllib.request
from pathlib import Path

from weft.errors import UserError
from weft.storage import write_bytes

VERSION = "1.30.0"
REGISTRY = "https://registry.npmjs.org"
# sha512 of the tarball, as in npm's lock files.
DIGEST = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
SCRIPT, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
COMMAND = "python -m weft.export.page.runtime"
LICENCE = """\
MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE."""
_EXPORTS = re.compile(r"export\{([^}]*)\};?\s*(?://# sourceMappingURL=\S*)?\s*$")


def cache_folder() -> Path:
    """Return where the runtime is kept."""
    root = os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache"
    return Path(root) / "weft" / f"onnxruntime-web-{VERSION}"


def read_runtime() -> tuple[str, bytes]:
    """Return the script of onnxruntime-web and its WebAssembly, from the cache."""
    folder = cache_folder()
    try:
        script = (folder / SCRIPT).read_text("utf-8")
        wasm = (folder / WASM).read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"A page of a neural network holds onnxruntime-web {VERSION}, which is not on this "
            f"machine yet. Fetch it once: {COMMAND}"
        ) from None
    return _as_global(script), wasm


def fetch_runtime(tarball: str | Path = "") -> Path:
    """Fetch the package from the npm registry, or read its tarball; return the folder."""
    data = Path(tarball).read_bytes() if tarball else _download()
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != DIGEST:
        raise UserError(
            f"{tarball or 'The download'} is not onnxruntime-web {VERSION} as it was published: "
            "its hash differs. Fetch it again."
        )
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for name in (SCRIPT, WASM):
            file = archive.extractfile(f"package/dist/{name}")
            assert file is not None
            write_bytes(folder / name, file.read())
    return folder


def _download() -> bytes:
    registry = os.environ.get("NPM_CONFIG_REGISTRY", REGISTRY).rstrip("/")
    url = f"{registry}/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
    if not url.startswith("https://"):
        raise UserError(f"NPM_CONFIG_REGISTRY is '{registry}'; it should begin with https://.")
    print(f"fetching {url} (33 MB)", file=sys.stderr)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
    except OSError as error:
        raise UserError(
            f"{url}: {error}. Without a network, copy the file here and pass it: {COMMAND} FILE"
        ) from None
    return data


def _as_global(script: str) -> str:
    """Return the module with its exports in `globalThis.ort`."""
    found = _EXPORTS.search(script)
    assert found is not None, "the script has no exports"
    pairs = (one.split(" as ") for one in found[1].split(","))
    names = ", ".join(f"{outer.strip()}: {inner.strip()}" for inner, outer in pairs)
    return f"{script[: found.start()]}globalThis.ort = {{ {names} }};\n"


if __name__ == "__main__":
    try:
        print(f"onnxruntime-web {VERSION} is in {fetch_runtime(*sys.argv[1:2])}")
    except UserError as problem:
        sys.exit(f"error: {problem}")
