"""Without Optuna, an extra, there is nothing to test here."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("optuna") else ["test_*.py"]
