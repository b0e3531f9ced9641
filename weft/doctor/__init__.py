"""The data doctor: find faults in labelled texts before training on them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.doctor.diagnose import examine as examine
    from weft.doctor.finding import Diagnosis as Diagnosis
    from weft.doctor.finding import Finding as Finding
    from weft.doctor.finding import Place as Place

# Name -> module. Every predictor reads fingerprints of drift, but few processes examine data.
_HOMES = {
    "Diagnosis": "finding",
    "Finding": "finding",
    "Place": "finding",
    "examine": "diagnose",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft.doctor' has no attribute '{name}'")
    return getattr(importlib.import_module(f"weft.doctor.{_HOMES[name]}"), name)
