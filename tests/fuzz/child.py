"""The process in which inputs run: `python -m tests.fuzz.child JOBS SEED KEEP SCRATCH`."""

import json
import sys
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.harness import Job, child

if __name__ == "__main__":
    assert targets.ALL
    jobs, seed, keep, scratch = sys.argv[1:]
    child([Job(*job) for job in json.loads(jobs)], int(seed), Path(keep), Path(scratch))
