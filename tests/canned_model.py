"""A model of lm_eval that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval.api.model import LM


class CannedModel(LM):  # type: ignore[misc]
    """Answers each prompt by a function; it is asked for texts alone."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        super().__init__()
        self._answer = answer

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """One text a request."""
        return [self._answer(request.args[0]) for request in requests]

    def loglikelihood(self, requests: Any) -> Any:
        """Fails the test: what it evaluates generates."""
        raise AssertionError(f"{len(requests)} likelihoods were asked for, and only texts are")

    loglikelihood_rolling = loglikelihood
