"""One lm-eval task as the harness's stages use it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gapft_harness.errors import GapftError, UserError
from gapft_harness.identities import canonical, content_hash, is_repeat, problem_ids
from gapft_harness.lm_eval_bridge.benchmarks.splits import Published, Splits
from gapft_harness.lm_eval_bridge.documents import Document, Documents
from gapft_harness.lm_eval_bridge.settings import Episode
from gapft_harness.lm_eval_bridge.task import GapTask
from gapft_harness.lm_eval_bridge.templates import compiled_templates
from gapft_harness.protocols import Verifier
from gapft_harness.records import Decoding, Gold, Problem
from gapft_harness.streams import derive
from gapft_harness.verification import check_golds

#: lm-eval's own default for generation without ``max_gen_toks``.
DEFAULT_MAX_GEN_TOKS = 256


class LoadedTask:
    """A task with its splits as problems.

    Attributes:
        name: the task's name.
        version: ``metadata.version`` as text.
        verifier: name of the verifier; ``task_metric`` for lm-eval's own tasks.
        verifier_params: its parameters.
        keep: the response rule of the task.
        episode: how one decode of it goes.
        dropped: sentences with counts on the splits read so far: what was dropped, and what
            repeats another problem and was kept. Each says which.
    """

    def __init__(self, task: Any, include_path: Path | None = None) -> None:
        """Wraps an lm-eval task.

        Args:
            task: the task as lm-eval built it.
            include_path: the user's folder that its YAML was found in, if any.

        Raises:
            UserError: the task does not generate text, so that nothing can be searched.
        """
        self._task = task
        self.name: str = task.config.task
        self.version = str(task.VERSION)
        self.dropped: list[str] = []
        self._golds: dict[str, list[tuple[Gold, str]]] = {}
        if task.OUTPUT_TYPE != "generate_until":
            raise UserError(
                f"task {self.name} has output_type {task.OUTPUT_TYPE}; search needs a task that "
                "generates text (generate_until)"
            )
        if isinstance(task, GapTask):
            self.verifier = task.settings.verifier
            self.verifier_params: dict[str, Any] = dict(task.settings.params)
            self.keep = task.settings.keep
            self.episode = task.settings.episode
        else:
            self.verifier, self.verifier_params = "task_metric", {"task": self.name}
            if include_path is not None:
                self.verifier_params["include_path"] = str(include_path)
            self.keep = "shortest"
            self.episode = Episode()

    @property
    def fingerprint(self) -> str:
        """Hash of the task's configuration and version: equal on every machine, new on change."""
        config = self._task.config.to_dict(keep_callable=True)
        metadata = config.get("metadata") or {}
        config["metadata"] = {key: metadata.get(key) for key in ("version", "gapft")}
        return content_hash(_plain({"config": config, "version": self.version}))

    def published(self) -> Published | None:
        """The benchmark's published counts beside those of the files; None where it has none.

        Raises:
            UserError: its data are missing or malformed.
        """
        data = self._task.dataset
        return data.published() if isinstance(data, Splits) else None

    def pool(self) -> list[Problem]:
        """The training split: where search looks for what to train on.

        Raises:
            UserError: the task has no training split, or its data are missing or malformed.
        """
        if not self._task.has_training_docs():
            raise UserError(
                f"task {self.name} has no training_split, so there is no pool to search; choose "
                "a task that has one"
            )
        return self._problems("pool", self._task.config.training_split, self._task.training_docs)

    def audit(self) -> list[Problem]:
        """The test split (or else the validation split): where models are judged.

        Raises:
            UserError: the task has neither, or its data are missing or malformed.
        """
        task = self._task
        if task.has_test_docs():
            return self._problems("audit", task.config.test_split, task.test_docs)
        if task.has_validation_docs():
            return self._problems("audit", task.config.validation_split, task.validation_docs)
        raise UserError(f"task {self.name} has neither test_split nor validation_split")

    def validation(self) -> list[Problem]:
        """The validation split, where it is not the audit: problems to calibrate on.

        Raises:
            UserError: the task has none beside its audit, or its data are missing or malformed.
        """
        task = self._task
        if not task.has_validation_docs():
            raise UserError(
                f"task {self.name} has no validation_split; give scaling.calibration a number of "
                "problems to take out of the training split, or add the split to the task"
            )
        if not task.has_test_docs():
            raise UserError(
                f"task {self.name} has no test_split, so its validation split is the audit; give "
                "scaling.calibration a number of problems to take out of the training split"
            )
        return self._problems("calibration", task.config.validation_split, task.validation_docs)

    def shots_from(self, split: Literal["pool", "calibration"]) -> int:
        """How many few-shot examples a prompt holds that come from the split of this name.

        lm-eval takes them from ``fewshot_split``, else from examples that the task lists itself
        (a ``GapTask`` lists none), else from the first split there is.
        """
        task, config = self._task, self._task.config
        if not config.num_fewshot:
            return 0
        drawn = task.fewshot_cfg.split
        if drawn is None and (isinstance(task, GapTask) or task.fewshot_cfg.samples is None):
            drawn = config.training_split or config.validation_split or config.test_split
        names = {"pool": config.training_split, "calibration": config.validation_split}
        return int(config.num_fewshot) if drawn is not None and drawn == names[split] else 0

    def check_golds(
        self, verifier: Verifier, split: Literal["pool", "audit", "calibration"]
    ) -> None:
        """Checks every gold answer of a split by the verifier that will judge with it.

        The verifier is the one in use: a recipe may override the task's own.

        Args:
            verifier: its optional method ``check_gold`` is asked (``verification.check_golds``).
            split: read now if it was not before.

        Raises:
            UserError: a gold answer is refused; the message names its record's file and line.
        """
        if split not in self._golds:
            _ = {"pool": self.pool, "audit": self.audit, "calibration": self.validation}[split]()
        check_golds(verifier, self._golds[split])

    def decoding(self) -> Decoding:
        """The greedy deployment decode: the task's length and stop strings, no sampling."""
        options = self._task.config.generation_kwargs or {}
        length = options.get("max_gen_toks", options.get("max_new_tokens", DEFAULT_MAX_GEN_TOKS))
        until = options.get("until") or ()
        stops = (until,) if isinstance(until, str) else tuple(until)
        return Decoding(do_sample=False, max_gen_toks=int(length), until=stops)

    def _problems(self, label: str, split: str, read: Any) -> list[Problem]:
        task = self._task
        if isinstance(task, GapTask):
            loaded = task.split(split)
            documents, notes = loaded.documents, list(loaded.dropped)
            ids = task.ids(documents)
        else:
            rows = [_json_document(row) for row in read()]
            place = f"task {self.name}, {split}, record"
            documents = Documents(rows, [f"{place} {n}" for n in range(1, len(rows) + 1)])
            notes, ids = [], problem_ids(rows)
        if repeats := sum(is_repeat(name) for name in ids):
            notes.append(
                f"{self.name} {label}: {repeats} of {len(ids)} problems repeat the content of "
                "another; they are kept, and told apart by #2, #3, ..."
            )
        self.dropped += [note for note in notes if note not in self.dropped]
        self._seed_examples(label)
        with compiled_templates():
            found = [self._problem(documents, row, name, split) for row, name in enumerate(ids)]
        self._golds[label] = [
            (problem.gold, documents.place(row)) for row, problem in enumerate(found)
        ]
        return found

    def _problem(self, documents: Documents, row: int, name: str, split: str) -> Problem:
        task, document = self._task, documents[row]
        try:
            prompt = self._prompt(document, name)
            gold: Gold = task.gold(document) if isinstance(task, GapTask) else document
        except GapftError as error:
            raise UserError(f"{documents.place(row)}: {error}") from error
        except (KeyError, TypeError, ValueError, IndexError, AssertionError) as error:
            raise UserError(
                f"{documents.place(row)}: task {self.name} cannot render this record: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(prompt, str):
            raise UserError(f"task {self.name} renders {type(prompt).__name__}, expected text")
        if isinstance(task, GapTask):
            hidden = task.settings.gold_only
            document = {key: value for key, value in document.items() if key not in hidden}
        return Problem(id=name, prompt=prompt, gold=gold, document=document)

    def _prompt(self, document: Document, name: str) -> Any:
        """The prompt as lm-eval builds it, with the description and any few-shot examples."""
        task = self._task
        shots = task.config.num_fewshot or 0
        if shots:
            # A problem's examples depend on the problem alone, not on those rendered before.
            self._examples.reseed(derive("fewshot", name), document)
        return task.fewshot_context(
            document, num_fewshot=shots, gen_prefix=task.doc_to_prefix(document)
        )

    def _seed_examples(self, label: str) -> None:
        if self._task.config.num_fewshot:
            self._examples = _OrderFreeExamples(self._task)


class _OrderFreeExamples:
    """Stands for a task's few-shot sampler: never the problem itself, the same in any order."""

    def __init__(self, task: Any) -> None:
        sampler = task.sampler
        self._inner: Any = sampler._inner if isinstance(sampler, _OrderFreeExamples) else sampler
        self._document: Document = {}
        task.sampler = self

    def reseed(self, seed: int, document: Document) -> None:
        self._inner.rnd = random.Random(seed)
        self._document = document

    def sample(self, n: int, **_: Any) -> Sequence[Document]:
        drawn: Sequence[Document] = self._inner.sample(n=n, eval_doc=self._document)
        return drawn


def _json_document(row: Mapping[str, Any]) -> Document:
    """A dataset's row as JSON values (a date becomes its text)."""
    import json

    document: Document = json.loads(json.dumps(dict(row), default=str, ensure_ascii=False))
    return document


def _plain(value: Any) -> Any:
    """JSON values; a function stands as its module's last name and its own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in sorted(value.items(), key=str)}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if callable(value):
        module = str(getattr(value, "__module__", "")).replace("/", ".").rpartition(".")[2]
        return f"{module}.{getattr(value, '__qualname__', type(value).__name__)}"
    return value if isinstance(value, str | int | float | bool | None) else canonical(str(value))
