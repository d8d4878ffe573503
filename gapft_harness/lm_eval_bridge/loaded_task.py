"""An lm-eval task in the form that the stages use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.identities import (
    assign_problem_ids,
    canonical_json,
    content_hash,
    is_repeat,
)
from gapft_harness.core.records import Decoding, Gold, Problem, Turn
from gapft_harness.core.streams import derive_key
from gapft_harness.hooks.judge import Judge
from gapft_harness.lm_eval_bridge.fewshot import (
    OrderFreeExamples,
    check_examples,
    has_listed_examples,
)
from gapft_harness.lm_eval_bridge.task import GapTask
from gapft_harness.lm_eval_bridge.task_file.documents import (
    Document,
    Documents,
    number_records,
    to_json_record,
)
from gapft_harness.lm_eval_bridge.task_file.settings import (
    Episode,
    build_greedy_decoding,
    describe_task,
)
from gapft_harness.recipe.sections import Search


@dataclass(frozen=True, slots=True)
class ChatLayout:
    """How a task's prompts become chats; the options have lm-eval's names.

    Attributes:
        system_instruction: text before the task's ``description`` in the system turn.
        fewshot_as_multiturn: True: each few-shot example is a user turn and an assistant turn.
            False: all examples and the problem are in one user turn.
    """

    system_instruction: str | None = None
    fewshot_as_multiturn: bool = True


class LoadedTask:
    """An lm-eval task with its splits as problems. Each split is read once, on demand.

    Attributes:
        name: the task's name.
        version: ``metadata.version`` as text.
        verifier: name of the verifier; ``task_metric`` for lm-eval's own tasks.
        verifier_params: its parameters.
        keep: name of the task's response rule.
        episode: numbers of attempts and executions of one decode.
        dropped: notes on the splits read so far: how many problems were dropped, and how many
            repeat another problem and were kept.
        warnings: for the splits read so far, a warning if its counts differ from the paper's.
    """

    def __init__(
        self, task: Any, include_path: Path | None = None, chat: ChatLayout | None = None
    ) -> None:
        """Wrap an lm-eval task.

        Args:
            task: the task as lm-eval built it.
            include_path: the user's folder that contains its YAML; None: lm-eval finds it.
            chat: how prompts become chats; None: prompts are plain text.

        Raises:
            UserError: the task does not generate text, so it cannot be searched.
        """
        self._task = task
        self._chat = chat
        self.name: str = task.config.task
        self.version = str(task.VERSION)
        self.dropped: list[str] = []
        self.warnings: list[str] = []
        self._problems: dict[str, list[Problem]] = {}
        self._golds: dict[str, list[tuple[Gold, str]]] = {}
        self._questions: dict[str, str] = {}  # by prompt, if it has few-shot examples
        if task.OUTPUT_TYPE != "generate_until":
            raise UserError(
                f"{describe_task(task.config)}: output_type is {task.OUTPUT_TYPE}; expected "
                "generate_until, since search needs generated text; docs/gap.md shows how to "
                "convert the task"
            )
        if isinstance(task, GapTask):
            self.verifier = task.settings.verifier
            self.verifier_params: dict[str, Any] = dict(task.settings.params)
            self.keep = task.settings.keep
            self.episode = task.settings.episode
        else:
            self.verifier = "task_metric"
            self.verifier_params = {"task": self.name}
            if include_path is not None:
                self.verifier_params["include_path"] = str(include_path)
            self.keep = "shortest"
            self.episode = Episode()

    @property
    def location(self) -> str:
        """The task's name and file, for messages."""
        return describe_task(self._task.config)

    def compute_fingerprint(self) -> str:
        """Hash the version and the configuration; the hash is the same on every machine."""
        return content_hash({"config": self.resolve_config(), "version": self.version})

    def resolve_config(self) -> dict[str, Any]:
        """Return the resolved YAML of the task as JSON values; a function becomes its name."""
        return resolve_task_config(self._task)

    def read(self, label: str) -> list[Problem]:
        """Read the split ``pool``, ``audit`` or ``calibration``.

        The pool is the training split; the audit is the test split, or the validation split if
        there is no test split; the calibration problems are the validation split beside a test
        split.

        Raises:
            UserError: the task has no such split, or its data are missing or malformed.
        """
        if label not in self._problems:
            self._problems[label] = self._read_problems(label, *self._find_split(label))
        return [*self._problems[label]]

    def _find_split(self, label: str) -> tuple[str, Callable[[], Any]]:
        """Find the task's own name of a split, and the method of lm-eval that returns its rows."""
        task = self._task
        if label == "pool":
            if not task.has_training_docs():
                raise UserError(
                    f"{self.location}: the key training_split is missing, so there is no pool to "
                    "search; add it with the split to learn from, or choose another task"
                )
            return task.config.training_split, task.training_docs
        if label == "calibration" and not (task.has_validation_docs() and task.has_test_docs()):
            raise UserError(
                f"{self.location}: expected both keys test_split (the audit) and "
                "validation_split; add them to the task, or set experiments.scaling.calibration to "
                "a number of problems to take from the training split"
            )
        if label == "audit" and task.has_test_docs():
            return task.config.test_split, task.test_docs
        return task.config.validation_split, task.validation_docs

    @property
    def has_answer_prefix(self) -> bool:
        """Whether the task sets the beginning of every answer (``gen_prefix``)."""
        return self._task.config.gen_prefix is not None

    @property
    def num_fewshot(self) -> int:
        """Number of few-shot examples in a prompt."""
        return int(self._task.config.num_fewshot or 0)

    def list_examples(self) -> list[tuple[str, str]]:
        """List id and question of each record that can be a few-shot example.

        lm-eval draws from ``fewshot_split``; without it, from examples that the task lists; without
        these, from the task's first split.
        """
        if not self.num_fewshot:
            return []
        self._examples = OrderFreeExamples(self._task)
        task = self._task
        rows = self._examples.list_documents()
        has_own_ids = isinstance(task, GapTask) and not has_listed_examples(task)
        ids = (
            task.ids(rows)
            if has_own_ids
            else assign_problem_ids([to_json_record(row) for row in rows])
        )
        return [(name, str(task.doc_to_text(row))) for name, row in zip(ids, rows, strict=True)]

    def find_question(self, problem: Problem) -> str:
        """Return a problem's prompt without few-shot examples."""
        return self._questions.get(problem.prompt, problem.prompt)

    def check_golds(self, judge: Judge, split: str) -> None:
        """Check all gold answers of a split, and the answers in few-shot examples.

        Args:
            judge: the verifier of the recipe, which may differ from the task's own.
            split: ``pool``, ``audit`` or ``calibration``; read if necessary.

        Raises:
            UserError: the verifier refuses a gold answer (the message names the record's file and
                line), or too many answers in few-shot examples do not pass.
        """
        self.read(split)
        judge.check_golds(self._golds[split])
        if isinstance(self._task, GapTask) and self._task.config.num_fewshot:
            check_examples(self._task, judge.verify)

    def build_decoding(self, search: Search | None = None) -> Decoding:
        """Build the settings of the greedy decode: the task's length limit and stop strings.

        Args:
            search: the recipe's section, with which the task's sampling options must agree; None:
                the section's defaults.

        Raises:
            UserError: a key of ``generation_kwargs`` is unknown or unsupported.
        """
        config = self._task.config
        return build_greedy_decoding(
            config.generation_kwargs or {}, search or Search(), describe_task(config)
        )

    def _read_problems(self, label: str, split: str, read: Callable[[], Any]) -> list[Problem]:
        """Read and render the problems of a split.

        Args:
            label: ``pool``, ``audit`` or ``calibration``.
            split: the task's name of the split.
            read: the method of lm-eval's task that returns its rows.
        """
        task = self._task
        if isinstance(task, GapTask):
            documents = task.split(split)
            notes = list(documents.dropped)
            if documents.unpublished:
                self.warnings.append(
                    f"{self.name} {label}: counts {documents.unpublished}; these are not the "
                    "paper's data, so the run's figures cannot be compared with the paper's; "
                    "docs/tasks.md lists the files to use"
                )
            ids = task.ids(documents)
        else:
            rows = [to_json_record(row) for row in read()]
            documents = number_records(rows, f"task {self.name}, {split}")
            notes = []
            ids = assign_problem_ids(rows)
        if repeats := sum(is_repeat(name) for name in ids):
            notes.append(
                f"{self.name} {label}: {repeats} of {len(ids)} problems repeat the content of "
                "another; they are kept, with #2, #3, ... in their ids"
            )
        self.dropped += [note for note in notes if note not in self.dropped]
        if self.num_fewshot:
            self._examples = OrderFreeExamples(self._task)
        problems = [self._build_problem(documents, row, name) for row, name in enumerate(ids)]
        self._golds[label] = [
            (problem.gold, documents.describe_place(row)) for row, problem in enumerate(problems)
        ]
        return problems

    def _build_problem(self, documents: Documents, row: int, name: str) -> Problem:
        task = self._task
        document = documents[row]
        try:
            prompt = self._build_prompt(document, name)
            turns = self._build_turns(document, name)
            if self.num_fewshot:
                self._questions[prompt] = str(task.doc_to_text(document))
            gold: Gold = task.gold(document) if isinstance(task, GapTask) else document
        except GapftError as error:
            raise UserError(f"{documents.describe_place(row)}: {self.location}: {error}") from error
        except Exception as error:  # a template or the task's own code may raise anything
            raise UserError(
                f"{documents.describe_place(row)}: {self.location} cannot render this record: "
                f"{describe_error(error)}"
            ) from error
        if isinstance(task, GapTask):
            hidden = task.settings.gold_only
            document = {key: value for key, value in document.items() if key not in hidden}
        return Problem(id=name, prompt=prompt, gold=gold, document=document, turns=turns)

    def _build_prompt(self, document: Document, name: str, **chat: Any) -> Any:
        """Build the prompt with lm-eval's code; its examples depend only on the problem.

        Args:
            document: the problem's document.
            name: the problem's id.
            chat: lm-eval's options for chats.
        """
        if self.num_fewshot:
            self._examples.reseed(derive_key("fewshot", name), document)
        start = self._task.doc_to_prefix(document)
        return self._task.fewshot_context(
            document, num_fewshot=self.num_fewshot, gen_prefix=start, **chat
        )

    def _build_turns(self, document: Document, name: str) -> tuple[Turn, ...]:
        """Build the turns of the chat; empty without a chat template."""
        if self._chat is None:
            return ()
        turns: tuple[Turn, ...] = self._build_prompt(
            document,
            name,
            **asdict(self._chat),
            apply_chat_template=True,
            chat_template=lambda turns, add_generation_prompt: tuple(turns),
        )
        return turns


def resolve_task_config(task: Any) -> dict[str, Any]:
    """Return the configuration of a task as JSON values; a function becomes its name."""
    config = task.config.to_dict(keep_callable=True)
    metadata = config.get("metadata") or {}
    config["metadata"] = {key: metadata.get(key) for key in ("version", "gapft")}
    if not config.get("num_fewshot"):  # without examples, their answer format has no effect
        config["fewshot_config"]["doc_to_target"] = config.get("doc_to_target")
    plain: dict[str, Any] = _to_json_value(config)
    return plain


def _to_json_value(value: Any) -> Any:
    """Convert to JSON values; a function becomes the last part of its module and its name."""
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(inner) for key, inner in sorted(value.items(), key=str)}
    if isinstance(value, list | tuple):
        return [_to_json_value(inner) for inner in value]
    if callable(value):
        module = str(getattr(value, "__module__", "")).replace("/", ".").rpartition(".")[2]
        return f"{module}.{getattr(value, '__qualname__', type(value).__name__)}"
    return (
        value if isinstance(value, str | int | float | bool | None) else canonical_json(str(value))
    )
