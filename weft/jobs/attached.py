"""Run a module that ends with its parent: a lost worker must not leave a training behind.

python -m weft.jobs.attached PARENT MODULE ARGUMENTS…
"""

import os
import runpy
import sys
import threading
import time

CHECK_SECONDS = 0.1


def exit_with(parent: int) -> None:
    """End this process as soon as its parent is another one than `parent`."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _, pid, module, *arguments = sys.argv
    exit_with(int(pid))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
