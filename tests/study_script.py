"""The script beside the page of the real-model study, imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[1] / "docs" / "real-model" / "study.py"


def import_study() -> Any:
    """Import ``docs/real-model/study.py``."""
    spec = importlib.util.spec_from_file_location("study", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["study"] = module
    spec.loader.exec_module(module)
    return module
