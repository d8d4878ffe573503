"""The public API: its names exist, and importing it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gapft_harness import api

#: What takes long to import, and what few plugins use.
HEAVY = {
    "torch", "lm_eval", "vllm", "ray", "pyarrow", "math_verify", "transformers", "numpy",
    "pydantic", "gapft_harness.sandbox", "gapft_harness.lm_eval_bridge",
}  # fmt: skip


@pytest.mark.parametrize("module", ["gapft_harness", "gapft_harness.api", "gapft_harness.cli.main"])
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_every_name_is_there() -> None:
    for name in api.__all__:
        if name != "VllmSampler":  # which needs vllm
            assert getattr(api, name) is not None


def test_a_misspelt_name_is_told_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no 'Verdikt'; did you mean 'Verdict'\?"):
        _ = api.Verdikt  # type: ignore[attr-defined]
