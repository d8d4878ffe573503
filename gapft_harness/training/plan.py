"""Which example is seen at which step, and what that costs: the budget B = (N, L, J).

No torch here: selection computes and enforces budgets before anything is trained, and the trainer
follows the same plan.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Budget, Example
from gapft_harness.core.streams import Stream
from gapft_harness.recipe.sections import Training


@dataclass(frozen=True, slots=True)
class Fitted:
    """An example as it is trained on: token ids after truncation.

    Attributes:
        slot: the example's id, told apart if a selector chose the problem more than once.
        prompt_ids: never supervised.
        target_ids: the response's ids, all supervised; the end-of-sequence id not included.
        eos: whether the end-of-sequence id follows and is supervised.
        truncated: whether the response lost its end to ``max_length``.
    """

    slot: str
    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    eos: bool
    truncated: bool

    @property
    def supervised(self) -> int:
        """Supervised tokens."""
        return len(self.target_ids) + self.eos

    @property
    def tokens(self) -> int:
        """All tokens."""
        return len(self.prompt_ids) + self.supervised


def sequences(examples: Sequence[Example], settings: Training) -> list[Fitted]:
    """Examples as they are trained on, in order: the training prompt, and the length policy.

    Raises:
        UserError: an example is too long and the policy is ``refuse``, or nothing of it would be
            left to learn. The message names the problem, its length and the limit.
    """
    return [
        _fit(example, slot, settings)
        for example, slot in zip(examples, _slots(examples), strict=True)
    ]


def training_prompt(ids: Sequence[int], settings: Training) -> tuple[int, ...]:
    """A prompt as it is trained on: its own ids, or other start tokens before the same text.

    The paper's older protocol trains on one start token where the generator saw two (Appendix A,
    "Logic run families").

    Args:
        ids: the prompt as the generator saw it. Where ``start_tokens`` is said it begins with the
            model's start token, as ``model.start_tokens`` is said too.
        settings: ``start_tokens`` says how many there are to be; None: as there are.

    Returns:
        The prompt. Its own training prompt is itself.
    """
    if settings.start_tokens is None or not ids:
        return tuple(ids)
    start = ids[0]
    return (*[start] * settings.start_tokens, *dropwhile(start.__eq__, ids))


def plan(slots: Iterable[str], settings: Training, seed: int) -> list[list[str]]:
    """The (step → slots) table of one arm.

    The R repetitions are one list of R·n exposures, shuffled once, and batches cross
    repetitions: J = ceil(R·n / (micro_batch · accumulation)) (Table 5). With ``update_groups`` G,
    J = G steps whose sizes differ by at most one, the larger spread evenly over the run (code,
    Table 7). An exposure's place depends on (seed, slot, copy) alone, so the order of ``slots``
    changes nothing.

    Raises:
        UserError: see ``count_steps``.
    """
    rng = Stream(seed, "train/order")
    exposures = [(slot, copy) for slot in slots for copy in range(settings.repetitions)]
    exposures.sort(key=lambda exposure: rng.key(f"{exposure[0]}/{exposure[1]}"))
    total = len(exposures)
    if settings.update_groups is None:
        cuts = [*range(0, total, settings.micro_batch * settings.accumulation), total]
    else:
        groups = count_steps(total, settings)
        cuts = [group * total // groups for group in range(groups + 1)]
    return [[slot for slot, _ in exposures[start:end]] for start, end in pairwise(cuts)]


def count_steps(exposures: int, settings: Training) -> int:
    """J, the optimizer steps that a number of exposures takes.

    Raises:
        UserError: there are fewer exposures than ``update_groups``; a step would be empty.
    """
    groups = settings.update_groups
    if groups is None:
        return -(-exposures // (settings.micro_batch * settings.accumulation))
    if exposures < groups:
        raise UserError(
            f"training.update_groups is {groups}, but there are only {exposures} exposures "
            f"(training.repetitions is {settings.repetitions}), so some step would be empty; "
            "raise budget.n, budget.replay or training.repetitions, or lower training.update_groups"
        )
    return groups


def table_hash(table: Sequence[Sequence[str]]) -> str:
    """SHA-256 of a (step → slots) table."""
    return hashlib.sha256(json.dumps(table, separators=(",", ":")).encode()).hexdigest()


def budget(examples: Sequence[Example], settings: Training) -> Budget:
    """Return the training budget of one arm (Equation 7), counted without its plan.

    Args:
        examples: the training set, an example for each slot.
        settings: how the arm is trained.

    Raises:
        UserError: see ``sequences`` and ``count_steps``.
    """
    fitted = sequences(examples, settings)
    repetitions = settings.repetitions
    exposures = repetitions * len(fitted)
    return Budget(
        n=len(fitted),
        repetitions=repetitions,
        exposures=exposures,
        tokens=repetitions * sum(sequence.tokens for sequence in fitted),
        supervised_tokens=repetitions * sum(sequence.supervised for sequence in fitted),
        steps=count_steps(exposures, settings),
    )


def _slots(examples: Sequence[Example]) -> list[str]:
    """A name for each example: its problem's id, with ``~2``, ``~3``, … if it was chosen again.

    A ``~`` of the id itself is doubled, so that no two examples share a name. Examples of one
    problem are numbered by what they are, so that their order has no say.
    """

    def content(row: int) -> tuple[object, ...]:
        example = examples[row]
        return (example.response_index, example.response_ids, example.prompt_ids, example.ended)

    copies: dict[str, list[int]] = defaultdict(list)
    for row, example in enumerate(examples):
        copies[example.problem_id].append(row)
    slots = [""] * len(examples)
    for problem_id, rows in copies.items():
        stem = problem_id.replace("~", "~~")
        for number, row in enumerate(sorted(rows, key=content), start=1):
            slots[row] = stem if number == 1 else f"{stem}~{number}"
    return slots


def _fit(example: Example, slot: str, settings: Training) -> Fitted:
    if not example.response_ids:
        raise UserError(f"problem {example.problem_id}: its response is empty; nothing to learn")
    if not example.prompt_ids:
        raise UserError(
            f"problem {example.problem_id}: its prompt is empty; a response's first token is "
            "learned from the token before it, so give the task a prompt, or the model a start "
            "token"
        )
    prompt = training_prompt(example.prompt_ids, settings)
    eos = settings.supervise_eos and example.ended
    room = settings.max_length - len(prompt)
    needed = len(example.response_ids) + eos
    if needed <= room:
        return Fitted(slot, prompt, example.response_ids, eos, False)
    if settings.too_long == "refuse" or room < 1:
        remedy = (
            "raise training.max_length"
            if room < 1
            else "raise training.max_length, or set training.too_long: truncate"
        )
        raise UserError(
            f"problem {example.problem_id}: prompt and response have "
            f"{len(prompt) + needed} tokens, training.max_length is "
            f"{settings.max_length}; {remedy}"
        )
    return Fitted(slot, prompt, example.response_ids[:room], False, True)
