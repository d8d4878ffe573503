"""Find the two bundled policies: one for arithmetic chains, one for short programs that are run.

This module imports nothing heavy, so finding a policy is fast.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_code_policy", "find_policy"]


def find_policy() -> Path:
    """Find the folder of the arithmetic policy, for ``AutoModelForCausalLM.from_pretrained``."""
    return Path(__file__).resolve().parent / "policy"


def find_code_policy() -> Path:
    """Find the folder of the policy that writes programs."""
    return Path(__file__).resolve().parent / "code_policy"
