"""Run a checked ONNX graph with onnxruntime."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.export.runtime.check import DamagedGraph, check_graph
from weft.machine import available_cpus

Arrays = dict[str, np.ndarray]
FATAL_ONLY = 4  # a log level: errors come as exceptions


class Session:
    """One graph: named arrays in, named arrays out."""

    def __init__(self, path: Path, size: int) -> None:
        """Load a graph; `size` is how many bytes its metadata say it has."""
        self.path = path
        try:
            if path.stat().st_size != size:
                raise DamagedGraph(path, f"{path.stat().st_size:,} bytes, {size:,} were written")
            data = path.read_bytes()
        except FileNotFoundError:
            raise UserError(
                f"{path} is missing: the export is incomplete. Export the model again."
            ) from None
        check_graph(path, data)
        runtime = import_onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = FATAL_ONLY
        # Threads that wait would keep a core busy that another process could use.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = runtime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has an exception class for every status
            raise DamagedGraph(path, " ".join(str(error).split())[:200]) from None
        self.inputs = [one.name for one in self._session.get_inputs()]
        self.outputs = [one.name for one in self._session.get_outputs()]

    def __call__(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> Arrays:
        """Return the named outputs; feeds that the graph does not read are left out."""
        needed = {name: feeds[name] for name in self.inputs}
        try:
            values = self._session.run(list(names), needed)
        except Exception as error:
            raise DamagedGraph(self.path, " ".join(str(error).split())[:200]) from None
        return dict(zip(names, values, strict=True))


def num_threads() -> int:
    """Return how many threads a graph may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(wanted), available_cpus()) if wanted.isdecimal() and int(wanted) else (
        available_cpus()
    )  # fmt: skip


def import_onnxruntime() -> Any:
    """Return the package onnxruntime, or raise a UserError with the way to install it."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise UserError(
            "An exported model needs the package onnxruntime. Install it: pip install 'weft[onnx]'."
        ) from None
    return onnxruntime
