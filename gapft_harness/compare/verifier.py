"""Judge many responses on all cores, with any verifier."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gapft_harness.compare.choice import Rule
from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import Gold, Response, Verdict
from gapft_harness.hooks.checked import find_answer_reader
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.hooks.registration import VerifierTraits
from gapft_harness.verification.judging import (
    VerdictAndAnswer,
    check_golds,
    closing_verifier,
    judge_and_answer,
    judge_once_each,
)
from gapft_harness.verification.pool import Outcome, WorkerPool

T = TypeVar("T")

#: Number of pairs judged at once; number of pairs sent to a process at once.
CHUNK_SIZE, _BATCH_SIZE = 4096, 64
#: Fewer pairs are judged in this process, since starting others would take longer.
_MIN_POOLED = 512
#: Maximum seconds of a process for a batch; after that, each pair is judged alone.
_TIMEOUT_S = 120.0
_WORKERS = 8


class RuleJudge:
    """A rule that judges pairs of responses and golds.

    Attributes:
        rule: the verifier's name and parameters.
        verifier: the verifier in this process.
    """

    def __init__(self, rule: Rule, verifier: Verifier, pool: WorkerPool | None) -> None:
        self.rule, self.verifier, self._pool = rule, verifier, pool
        self._answers = find_answer_reader(verifier)

    def check_golds(self, golds: Iterable[tuple[Gold, str]], remedy: str) -> None:
        """Check that the rule accepts gold answers.

        Args:
            golds: pairs of gold answer and its place.
            remedy: added to the error message.

        Raises:
            UserError: the rule refuses a gold answer.
            PluginError: the verifier is broken.
        """
        try:
            check_golds(self.verifier, golds)
        except UserError as error:
            if type(error) is not UserError:  # a broken plugin, not the user's mistake
                raise
            raise UserError(f"{error} {remedy}") from error

    def judge(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[VerdictAndAnswer]:
        """Return each response's verdict and answer; equal pairs are judged once.

        Raises:
            PluginError: the verifier is broken.
        """
        if self._pool is None or len(texts) < _MIN_POOLED:
            return judge_and_answer(self.verifier, self._answers, _build_responses(texts), golds)
        return judge_once_each(self._judge_in_processes, texts, golds)

    def _judge_in_processes(
        self, texts: Sequence[str], golds: Sequence[Gold]
    ) -> list[VerdictAndAnswer]:
        assert self._pool is not None
        pairs = list(zip(texts, golds, strict=True))
        batches = [
            pairs[start : start + _BATCH_SIZE] for start in range(0, len(pairs), _BATCH_SIZE)
        ]
        outcomes = self._pool.map([_pack_pairs(batch) for batch in batches])
        verdicts: list[VerdictAndAnswer] = []
        for batch, outcome in zip(batches, outcomes, strict=True):
            if outcome.status == "done":
                verdicts += [_read_verdict(item) for item in outcome.value]
            else:
                single_outcomes = self._pool.map([_pack_pairs([pair]) for pair in batch])
                verdicts += [self._read_single(item) for item in single_outcomes]
        return verdicts

    def _read_single(self, outcome: Outcome) -> VerdictAndAnswer:
        """Read the outcome of a pair that was judged alone after its batch had failed."""
        if outcome.status == "done":
            return _read_verdict(outcome.value[0])
        if outcome.status == "raised":
            raise PluginError(outcome.reason)
        return Verdict("timeout" if outcome.status == "timeout" else "error", outcome.reason), None


def _pack_pairs(pairs: Sequence[tuple[str, Gold]]) -> tuple[Any, ...]:
    """Pack pairs for a process, with each shared gold only once."""
    golds = {id(gold): gold for _, gold in pairs}
    numbers = {key: number for number, key in enumerate(golds)}
    return list(golds.values()), [(text, numbers[id(gold)]) for text, gold in pairs]


def _build_responses(texts: Sequence[str]) -> list[Response]:
    return [Response("", 0, text, (), "stop", 0) for text in texts]


def _read_verdict(values: Sequence[Any]) -> VerdictAndAnswer:
    status, reason, answer = values
    return Verdict(status, reason), answer


@contextlib.contextmanager
def open_judge(rule: Rule, plugin_files: Sequence[str] = ()) -> Iterator[RuleJudge]:
    """Open a rule's verifier for the length of the block.

    A verifier without its own workers is also loaded in several processes.

    Raises:
        UserError: unknown verifier or invalid parameters.
    """
    plugins = load_plugins(plugin_files)
    has_own_workers = plugins.get("verifier", rule.name).require_traits(VerifierTraits).own_workers
    with contextlib.ExitStack() as stack:
        verifier = stack.enter_context(
            closing_verifier(plugins.create_verifier(rule.name, rule.params))
        )
        pool = None
        if not has_own_workers:
            count = min(_WORKERS, os.cpu_count() or 1)
            rule_arguments = (rule.name, dict(rule.params), list(plugin_files))
            pool = stack.enter_context(
                WorkerPool(
                    f"{__name__}:work", count, _TIMEOUT_S, setup=f"{__name__}:prepare",
                    setup_arguments=rule_arguments,
                )
            )  # fmt: skip
        yield RuleJudge(rule, verifier, pool)


def prefetch(values: Iterator[T]) -> Iterator[T]:
    """Yield an iterator's values, while a thread computes the next one."""
    with ThreadPoolExecutor(1) as thread:
        pending = thread.submit(next, values, None)
        while (value := pending.result()) is not None:
            pending = thread.submit(next, values, None)
            yield value


#: In a worker process: the verifier loaded by ``prepare``, and the reader of its answers.
_prepared: list[Any] = []


def prepare(name: str, params: dict[str, Any], plugin_files: list[str]) -> None:
    """Load the rule's verifier in a worker process, before its first batch."""
    verifier = load_plugins(plugin_files).create_verifier(name, params)
    _prepared[:] = verifier, find_answer_reader(verifier)


def work(item: Sequence[Any]) -> list[tuple[str, str, str | None]]:
    """Judge one batch of ``_pack_pairs`` in a worker process."""
    golds, pairs = item
    verifier, answers = _prepared
    texts, pair_golds = [text for text, _ in pairs], [golds[number] for _, number in pairs]
    judged = judge_and_answer(verifier, answers, _build_responses(texts), pair_golds)
    return [(verdict.status, verdict.reason, answer) for verdict, answer in judged]
