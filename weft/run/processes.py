"""Start another Python with the module path of this one."""

import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of Weft as `python -m` does, on our own module path.

    `python -m` would put the working folder first, from which a file called torch.py is imported.
    """
    start = f"import sys; sys.path[:] = {sys.path!r}; import runpy; "
    run = f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", start + run, *arguments]
