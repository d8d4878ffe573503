"""An lm_eval model with predefined answers, and evaluations with lm_eval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager


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


def evaluate(model: LM | str, tasks: Sequence[str], folder: Path, **options: Any) -> dict[str, Any]:
    """Evaluate a model with lm_eval on tasks of a folder.

    Each result would list the packages of the machine, which takes most of the time.
    """
    manager = TaskManager(include_defaults=False, include_path=str(folder))
    with mock.patch("torch.utils.collect_env.get_pip_packages", return_value=("pip", None)):
        results: dict[str, Any] = simple_evaluate(
            model=model, tasks=[*tasks], task_manager=manager, bootstrap_iters=0, **options
        )
    return results
