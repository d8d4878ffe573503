"""Judge many responses on all cores, with any verifier."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import Gold, Response, Verdict
from gapft_harness.hooks.checked import answers_of
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Progress, Verifier
from gapft_harness.hooks.registered import VerifierTraits
from gapft_harness.rejudge.choice import Rule
from gapft_harness.stages.generation.sealing import closing_verifier
from gapft_harness.verification.judging import (
    VerdictAndAnswer,
    check_golds,
    judge_and_answer,
    once_each,
)
from gapft_harness.verification.pool import Outcome, WorkerPool

T = TypeVar("T")

#: Number of pairs judged at once; number of pairs sent to a process at once.
AT_ONCE, _SENT = 4096, 64
#: Fewer pairs are judged in this process, since starting others would take longer.
_FEW = 512
#: Maximum seconds of a process for a batch; after that, each pair is judged alone.
_PATIENCE = 120.0
_WORKERS = 8


class Judge:
    """A rule that judges pairs of responses and golds.

    Attributes:
        rule: the verifier's name and parameters.
        verifier: the verifier in this process.
        uses_processes: whether many pairs are judged in other processes.
        progress: called with the number of responses judged so far.
    """

    def __init__(self, rule: Rule, verifier: Verifier, pool: WorkerPool | None) -> None:
        self.rule, self.verifier, self._pool = rule, verifier, pool
        self.by_processes = pool is not None
        self.progress: Progress = lambda *_: None
        self._judged = 0
        self._answers = answers_of(verifier)

    def check(self, golds: Iterable[tuple[Gold, str]], remedy: str) -> None:
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
        if self._pool is None or len(texts) < _FEW:
            found = judge_and_answer(self.verifier, self._answers, _responses(texts), golds)
        else:
            found = once_each(self._by_processes, texts, golds)
        self._judged += len(texts)
        self.progress(f"verdicts of {self.rule.name}", self._judged, 0)
        return found

    def _by_processes(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[VerdictAndAnswer]:
        assert self._pool is not None
        pairs = list(zip(texts, golds, strict=True))
        batches = [pairs[start : start + _SENT] for start in range(0, len(pairs), _SENT)]
        outcomes = self._pool.map([_sent(batch) for batch in batches])
        found: list[VerdictAndAnswer] = []
        for batch, outcome in zip(batches, outcomes, strict=True):
            if outcome.status == "done":
                found += [_read(one) for one in outcome.value]
            else:
                alone = self._pool.map([_sent([pair]) for pair in batch])
                found += [self._alone(one) for one in alone]
        return found

    def _alone(self, outcome: Outcome) -> VerdictAndAnswer:
        """Read the outcome of a pair that was judged alone after its batch had failed."""
        if outcome.status == "done":
            return _read(outcome.value[0])
        if outcome.status == "raised":
            raise PluginError(outcome.reason)
        return Verdict("timeout" if outcome.status == "timeout" else "error", outcome.reason), None


def _sent(pairs: Sequence[tuple[str, Gold]]) -> tuple[Any, ...]:
    """Pack pairs for a process, with each shared gold only once."""
    golds = {id(gold): gold for _, gold in pairs}
    numbers = {key: number for number, key in enumerate(golds)}
    return list(golds.values()), [(text, numbers[id(gold)]) for text, gold in pairs]


def _responses(texts: Sequence[str]) -> list[Response]:
    return [Response("", 0, text, (), "stop", 0) for text in texts]


def _read(one: Sequence[Any]) -> VerdictAndAnswer:
    status, reason, answer = one
    return Verdict(status, reason), answer


@contextlib.contextmanager
def judging(rule: Rule, plugin_files: Sequence[str] = ()) -> Iterator[Judge]:
    """Open a rule's verifier for the length of the block.

    A verifier without its own workers is also loaded in several processes.

    Raises:
        UserError: unknown verifier or invalid parameters.
    """
    plugins = load_plugins(plugin_files)
    own = plugins.get("verifier", rule.name).declared(VerifierTraits).own_workers
    with contextlib.ExitStack() as stack:
        verifier = stack.enter_context(closing_verifier(plugins.verifier(rule.name, rule.params)))
        pool = None
        if not own:
            count = min(_WORKERS, os.cpu_count() or 1)
            made_of = (rule.name, dict(rule.params), list(plugin_files))
            pool = stack.enter_context(
                WorkerPool(
                    f"{__name__}:work", count, _PATIENCE, setup=f"{__name__}:prepare",
                    setup_arguments=made_of,
                )
            )  # fmt: skip
        yield Judge(rule, verifier, pool)


def ahead(made: Iterator[T]) -> Iterator[T]:
    """Yield an iterator's values, while a thread computes the next one."""
    with ThreadPoolExecutor(1) as thread:
        making = thread.submit(next, made, None)
        while (one := making.result()) is not None:
            making = thread.submit(next, made, None)
            yield one


#: In a worker process: the verifier loaded by ``prepare``, and the reader of its answers.
_prepared: list[Any] = []


def prepare(name: str, params: dict[str, Any], plugin_files: list[str]) -> None:
    """Load the rule's verifier in a worker process, before its first batch."""
    verifier = load_plugins(plugin_files).verifier(name, params)
    _prepared[:] = verifier, answers_of(verifier)


def work(item: Sequence[Any]) -> list[tuple[str, str, str | None]]:
    """Judge one batch of ``_pack_pairs`` in a worker process."""
    golds, pairs = item
    verifier, answers = _prepared
    texts, of_texts = [text for text, _ in pairs], [golds[number] for _, number in pairs]
    judged = judge_and_answer(verifier, answers, _responses(texts), of_texts)
    return [(verdict.status, verdict.reason, answer) for verdict, answer in judged]
