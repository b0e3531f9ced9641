"""Run one function of a student's file on some cases, in a process of its own.

    python -I runner.py JOB RESULTS

The parent starts it by its path, so that nothing of Weft is imported beside the student's code.
Values travel as JSON; an array is {"array": nested lists, "shape": its shape}.
"""

import contextlib
import importlib.util
import io
import json
import os
import sys
import traceback

MAX_MESSAGE_CHARACTERS = 500


def encode(value):
    """Return a value in terms of JSON."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return {"array": encode(value.tolist()), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return {"tuple": [encode(one) for one in value]}
    if isinstance(value, (list, set, frozenset)):
        return [encode(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(one)] for key, one in value.items()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"returned {type(value).__name__}; return arrays, numbers, texts or lists")


def decode(value):
    """Return the value that `encode` was given."""
    import numpy as np

    if isinstance(value, list):
        return [decode(one) for one in value]
    if isinstance(value, dict):
        if "array" in value:
            return np.array(decode(value["array"])).reshape(value["shape"])
        if "tuple" in value:
            return tuple(decode(one) for one in value["tuple"])
        return {decode(key): decode(one) for key, one in value["dict"]}
    return value


def limit(memory, seconds):
    """Limit the memory and CPU time of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows; the parent still limits the time
        return
    for name, value in (("RLIMIT_AS", memory), ("RLIMIT_CPU", int(seconds) + 1)):
        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses RLIMIT_AS
            resource.setrlimit(kind, (value, value))


def load(path):
    """Import a file by its path; modules beside it can be imported, Weft's lab cannot."""
    sys.modules["weft.lab"] = None  # type: ignore[assignment]
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("solution", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["solution"] = module
    spec.loader.exec_module(module)
    return module


def describe(error, path):
    """Return an error in one line, with the student's line at fault."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    where = f", line {lines[-1]}" if lines else ""
    if isinstance(error, SyntaxError) and error.filename == path:
        where = f", line {error.lineno}"
    return f"{type(error).__name__}{where}: {error}"[:MAX_MESSAGE_CHARACTERS]


def main(job_path, results_path):
    with open(job_path, encoding="utf-8") as file:
        job = json.load(file)
    with open(results_path, "w", encoding="utf-8") as results:

        def answer(**values):
            results.write(json.dumps(values) + "\n")
            results.flush()

        import numpy  # noqa: F401 (before the limit of memory)

        limit(job["memory"], job["seconds"])
        sys.stdin = io.StringIO()
        try:
            function = getattr(load(job["path"]), job["function"], None)
            if not callable(function):
                return answer(fatal=f"no function {job['function']} in the file")
        except BaseException as error:
            return answer(fatal=describe(error, job["path"]))
        for case in job["cases"]:
            try:
                first = encode(function(*decode(case)))
                again = encode(function(*decode(case)))
                answer(value=first, same=json.dumps(first) == json.dumps(again))
            except NotImplementedError:
                answer(fatal="not written yet")
                return None
            except BaseException as error:
                answer(error=describe(error, job["path"]))
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
