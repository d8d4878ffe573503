"""Where the two policies that ship lie: arithmetic chains, and short programs that are really run.

Nothing heavy is imported here, so that asking where the policy lies costs nothing.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["code_policy_path", "policy_path"]


def policy_path() -> Path:
    """Folder of the shipped policy, loadable by ``AutoModelForCausalLM.from_pretrained``."""
    return Path(__file__).resolve().parent / "policy"


def code_policy_path() -> Path:
    """Folder of the shipped policy that writes programs."""
    return Path(__file__).resolve().parent / "code_policy"
