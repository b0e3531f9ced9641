"""All targets: importing this registers them. A file of targets is added here by its name."""

from tests.fuzz import faulty, models, readers
from tests.fuzz.harness import TARGETS

FILES = (faulty, models, readers)
ALL = TARGETS
SOUND = [name for name in TARGETS if not name.startswith("_")]  # those that keep the promise
