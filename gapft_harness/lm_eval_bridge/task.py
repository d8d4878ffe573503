"""GapTask: the class of a task YAML that names a verifier instead of metrics.

With ``class: !function gapft_harness.lm_eval_bridge.task.GapTask`` in the YAML, the stock
``lm_eval`` judges responses with the verifier of ``metadata: gapft:``. A task with ``repeats: 1``
reports pass@1, one with ``repeats: K`` the unbiased pass@k.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jinja2 import TemplateError
from lm_eval.api.metrics import mean
from lm_eval.api.samplers import get_sampler
from lm_eval.api.task import ConfigurableTask

from gapft_harness import load_verifier
from gapft_harness.analysis.pass_at_k import list_reported_k, pass_at_k
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.identities import assign_problem_ids, content_hash
from gapft_harness.core.records import Gold
from gapft_harness.hooks.judge import Judge, VerdictAndAnswer
from gapft_harness.lm_eval_bridge.benchmarks.splits import (
    are_all_local,
    build_local_splits,
    resolve_data_files,
)
from gapft_harness.lm_eval_bridge.fewshot import check_examples, find_examples
from gapft_harness.lm_eval_bridge.judge import Scores, judge_pairs
from gapft_harness.lm_eval_bridge.task_file.documents import Document, Documents, number_records
from gapft_harness.lm_eval_bridge.task_file.settings import (
    build_own_ids,
    check_named_fields,
    describe_task,
    parse_settings,
)
from gapft_harness.lm_eval_bridge.task_file.templates import (
    refuse_nulls,
    render,
    require_fields,
)


class GapTask(ConfigurableTask):  # type: ignore[misc]
    """An lm-eval task whose responses are judged by a verifier."""

    def __init__(self, config: dict[str, Any] | None = None, **_: Any) -> None:
        """Build the task from its YAML.

        Raises:
            UserError: missing prompt or answer, or missing or malformed data.
        """
        config = {key: value for key, value in (config or {}).items() if key != "class"}
        for key, meaning in (("doc_to_text", "the prompt"), ("doc_to_target", "the answer")):
            if config.get(key) is None and config.get("use_prompt") is None:
                raise UserError(
                    f"{describe_task(config)}: the key {key!r} is missing; expected {meaning}"
                )
        self.settings = parse_settings(describe_task(config), config.get("metadata"))
        options = config.get("generation_kwargs") or {"do_sample": False, "temperature": 0.0}
        # Without these keys lm-eval would load the default metric exact_match and cut responses at
        # the few-shot delimiter, a blank line.
        own = {
            "metric_list": config.get("metric_list") or [],
            "generation_kwargs": {**options, "until": options.get("until") or []},
        }
        super().__init__(config={**config, **own})
        chosen = self.fewshot_cfg.sampler
        self._sampler_class: Any = get_sampler(chosen) if isinstance(chosen, str) else chosen
        #: Verdicts and answers, by response and hash of the gold answer.
        self._judged: dict[tuple[str, str], VerdictAndAnswer] = {}

    @property
    def is_predict_only(self) -> bool:
        """Whether ``--predict_only`` was given: nothing is judged."""
        return "bypass" in self._metric_fn_list

    @cached_property
    def judge(self) -> Judge:
        """The task's verifier, loaded at the first use.

        Raises:
            UserError: unknown verifier or parameter.
        """
        try:
            return load_verifier(self.settings.verifier, **self.settings.params)
        except UserError as error:
            raise error.with_place(f"{describe_task(self.config)}: metadata.gapft") from error

    def build_all_requests(self, **options: Any) -> None:
        """Build lm-eval's requests.

        Raises:
            UserError: unknown verifier or parameter, an invalid gold answer, or few-shot examples
                that the verifier does not pass. All before anything is generated.
        """
        judge = self.judge
        needs_golds = not self.is_predict_only  # --predict_only needs no gold answer
        if needs_golds and self.config.num_fewshot:
            check_examples(self, judge.verify)
        super().build_all_requests(**options)
        if needs_golds:
            judge.check_golds(self._iterate_golds())

    # Data

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        """Open the splits: from the benchmark's loader, local JSON files, or the hub."""
        options = dict(dataset_kwargs or {})
        if callable(self.config.custom_dataset):
            self.dataset = self.config.custom_dataset(**options)
            return
        files = options.get("data_files")
        if self.DATASET_PATH == "json" and files is not None:
            options["data_files"] = files = resolve_data_files(self.config, files)
            if set(options) == {"data_files"} and are_all_local(files):
                self.dataset = build_local_splits(files)
                return
        super().download(options)

    def split(self, name: str) -> Documents:
        """Return a split's problems, with notes on dropped ones.

        Raises:
            UserError: unknown split, or ``doc_to_text`` names a field that the first record lacks.
        """
        if name not in self.dataset:
            raise UserError(
                f"{describe_task(self.config)}: unknown split {name!r}; "
                f"{did_you_mean(name, self.dataset)}"
            )
        source = rows = self.dataset[name]
        if self.config.process_docs is not None:
            rows = self.config.process_docs(source)
        documents = number_records(rows, f"{self.DATASET_PATH}, {name}")
        template = self.config.doc_to_text
        if isinstance(template, str) and self.prompt is None and len(documents):
            try:
                require_fields(template, documents[0])
                if template not in documents[0]:
                    render(template, documents[0])
            except (UserError, TemplateError) as error:
                where = f"{describe_task(self.config)}: doc_to_text"
                raise UserError(f"{documents.describe_place(0)}: {where}: {error}") from error
        if isinstance(source, Documents) and documents is not source:
            return documents.with_notes(source.dropped, source.unpublished)
        return documents

    def training_docs(self) -> Documents | None:
        """Return the pool, or None without one."""
        return self.split(self.config.training_split) if self.has_training_docs() else None

    def validation_docs(self) -> Documents | None:
        """Return the validation split, or None without one."""
        name = self.config.validation_split
        return self.split(name) if self.has_validation_docs() else None

    def test_docs(self) -> Documents | None:
        """Return the audit, or None without one."""
        return self.split(self.config.test_split) if self.has_test_docs() else None

    def ids(self, documents: Sequence[Document]) -> list[str]:
        """Return the problems' ids (see ``core/identities.py``) in the documents' order.

        Raises:
            UserError: ``metadata.gapft.id`` gives all problems the same id, or a field named in
                ``content`` or ``gold_only`` is missing.
        """
        check_named_fields(self.settings, documents, describe_task(self.config))
        try:
            own = build_own_ids(self.settings.id, documents)
        except (UserError, TemplateError) as error:
            raise UserError(f"{describe_task(self.config)}: metadata.gapft.id: {error}") from error
        return assign_problem_ids(documents, own, self.settings.content)

    def gold(self, document: Document) -> Gold:
        """Return the gold answer that the verifier compares responses with."""
        if self.settings.gold is not None:
            return self.settings.build_gold(document, None)
        template = self.config.doc_to_target
        if isinstance(template, str) and template not in document and self.prompt is None:
            require_fields(template, document)
            refuse_nulls(template, document)
        return self.settings.build_gold(document, self.doc_to_target(document))

    def _iterate_golds(self) -> Iterable[tuple[Gold, str]]:
        """Yield the gold answers of all requests, each with the place of its record."""
        name = self.config.test_split if self.has_test_docs() else self.config.validation_split
        documents = self.split(name)
        for row in sorted({instance.doc_id for instance in self.instances or ()}):
            try:
                gold = self.gold(documents[row])
            except UserError as error:
                raise UserError(f"{documents.describe_place(row)}: {error}") from error
            yield gold, documents.describe_place(row)

    # Prompts

    def doc_to_text(self, doc: Document, doc_to_text: Any = None) -> Any:
        """Return the prompt without few-shot examples and chat template."""
        template = self.config.doc_to_text if doc_to_text is None else doc_to_text
        if isinstance(template, str) and self.prompt is None:
            require_fields(template, doc)
        return super().doc_to_text(doc, doc_to_text)

    def doc_to_target(self, doc: Document, doc_to_target: Any = None) -> Any:
        """Return the target that lm-eval logs; also the gold, unless the YAML sets ``gold``.

        A field's value is unchanged, also if lm-eval does not find the field in the audit. A text
        in brackets stays text, which lm-eval would evaluate as Python.
        """
        template = self.config.doc_to_target if doc_to_target is None else doc_to_target
        if isinstance(template, str) and self.prompt is None:
            if template in doc:
                return doc[template]
            if self.config.doc_to_choice is None:
                return render(template, doc)
        return super().doc_to_target(doc, doc_to_target)

    def fewshot_docs(self) -> None:
        """Return None: the examples of ``--num_fewshot`` are read only when they are drawn."""

    @cached_property
    def sampler(self) -> Any:
        """The sampler of few-shot examples, from the YAML's examples or else from the pool."""
        return self._sampler_class(list(find_examples(self)), rnd=self._fewshot_seed)

    _fewshot_seed: int | None = None

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        """Seed the draw of few-shot examples without reading them."""
        self._fewshot_seed = seed
        self.fewshot_rnd = random.Random(seed)
        if "sampler" in self.__dict__:
            self.sampler.set_rnd(seed)

    # Results

    def process_results(self, doc: Document, results: Sequence[Any]) -> dict[str, Any]:
        """Score one problem; the first call judges the responses of all problems at once.

        Args:
            doc: the problem's document.
            results: a list with one response, or for ``repeats: K`` with one list of K responses.

        Raises:
            UserError: the number of responses is not K.
        """
        if self.is_predict_only:  # --predict_only
            return {"bypass": 999}
        responses = self._check_responses(doc, results[0])
        gold_hash = content_hash(self.gold(doc))
        if any((text, gold_hash) not in self._judged for text in responses):
            self._judge_all()
        outcomes = [self._judged[text, gold_hash] for text in responses]
        verdicts = [verdict for verdict, _ in outcomes]
        rates = self._compute_rates(sum(verdict.passed for verdict in verdicts))
        return Scores(rates, verdicts, [answer for _, answer in outcomes])

    def _check_responses(self, doc: Document, result: Any) -> list[str]:
        """Return the responses to one problem, after a check that there are ``repeats``."""
        responses = [result] if isinstance(result, str) else list(result)
        expected = self.config.repeats
        if len(responses) != expected:
            raise UserError(
                f"task {self.task_name}, problem {self.ids([doc])[0]}: found {len(responses)} "
                f"responses, expected {expected} (repeats); a task with repeats needs the filter "
                "take_first_k with k equal to repeats"
            )
        return responses

    def _judge_all(self) -> None:
        """Judge all responses to all problems in one call, so that the verifier can parallelize."""
        gold_by_pair: dict[tuple[str, str], Gold] = {}
        for instance in self.instances or ():
            gold = self.gold(instance.doc)
            gold_hash = content_hash(gold)
            for result in instance.filtered_resps.values():
                for text in self._check_responses(instance.doc, result):
                    gold_by_pair[text, gold_hash] = gold
        texts = [text for text, _ in gold_by_pair]
        outcomes = judge_pairs(self.judge, texts, list(gold_by_pair.values()))
        self._judged = dict(zip(gold_by_pair, outcomes, strict=True))

    def _compute_rates(self, passing: int) -> dict[str, float]:
        """Compute pass@1 of one decode, or the unbiased pass@k of K samples."""
        if self.config.repeats == 1:
            return {"pass@1": float(passing)}
        counts = np.array([passing])
        n = self.config.repeats
        return {f"pass@{k}": float(pass_at_k(counts, n, k)[0]) for k in list_reported_k(n)}

    def aggregation(self) -> dict[str, Callable[[Sequence[float]], float]]:
        """Return lm-eval's aggregations: means of rates (with standard errors), sums of counts."""
        if self.is_predict_only:
            inherited: dict[str, Any] = super().aggregation()
            return inherited
        return {
            **{f"pass@{k}": mean for k in list_reported_k(self.config.repeats)},
            "verifier_timeouts": sum,
            "verifier_errors": sum,
        }

    def higher_is_better(self) -> dict[str, bool]:
        """Return True for rates and False for counts."""
        return {name: name.startswith("pass@") for name in self.aggregation()}


if __name__ != "gapft_harness.lm_eval_bridge.task":
    # lm-eval loaded this file beside a task's YAML in a clone: use the installed class.
    from gapft_harness.lm_eval_bridge.task import GapTask  # noqa: F401
