"""An lm_eval model with predefined answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval.api.model import LM


class CannedModel(LM):  # type: ignore[misc]
    """Answers each prompt with a function; supports text generation only."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        super().__init__()
        self._answer = answer

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Return one text for each request."""
        return [self._answer(request.args[0]) for request in requests]

    def loglikelihood(self, requests: Any) -> Any:
        """Fail the test: only texts may be requested."""
        raise AssertionError(f"{len(requests)} likelihoods were requested, expected texts only")

    loglikelihood_rolling = loglikelihood
