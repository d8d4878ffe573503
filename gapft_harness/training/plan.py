"""The plan: which example is seen at which step, and its cost: the budget B = (N, L, J).

This module does not import torch: selection computes and checks budgets before anything is trained,
and the trainer follows the same plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Budget, Example
from gapft_harness.core.streams import Stream
from gapft_harness.recipe.sections import Training


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """An example as it is trained on: token ids after truncation.

    Attributes:
        slot: the example's id, made unique if a selector chose the problem more than once.
        prompt_ids: the prompt's ids, never supervised.
        target_ids: the response's ids, all supervised, without the end-of-sequence id.
        eos: whether the end-of-sequence id follows and is supervised.
        truncated: whether the response was cut off at ``max_length``.
    """

    slot: str
    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    eos: bool
    truncated: bool

    @property
    def supervised(self) -> int:
        """Number of supervised tokens."""
        return len(self.target_ids) + self.eos

    @property
    def tokens(self) -> int:
        """Number of all tokens."""
        return len(self.prompt_ids) + self.supervised


def build_sequences(examples: Sequence[Example], settings: Training) -> list[TrainingSequence]:
    """Convert examples to training sequences, in order, with the training prompt and length policy.

    Raises:
        UserError: an example is too long and the policy is ``refuse``, or nothing would remain to
            learn. The message names the problem, its length and the limit.
    """
    return [
        _fit_example(example, slot, settings)
        for example, slot in zip(examples, _name_slots(examples), strict=True)
    ]


def build_training_prompt(ids: Sequence[int], settings: Training) -> tuple[int, ...]:
    """Return the training prompt: the prompt's ids, with another number of start tokens if set.

    In the paper's older protocol, training has one start token but the generator saw two (Appendix
    A, "Logic run families").

    Args:
        ids: the prompt as the generator saw it. If ``start_tokens`` is set, it begins with the
            model's start token, because ``model.start_tokens`` must then be set too.
        settings: ``start_tokens`` is the number of start tokens; None: unchanged.

    Returns:
        The prompt. The function is idempotent.
    """
    if settings.start_tokens is None or not ids:
        return tuple(ids)
    start = ids[0]
    return (*[start] * settings.start_tokens, *dropwhile(start.__eq__, ids))


def plan_steps(slots: Iterable[str], settings: Training, seed: int) -> list[list[str]]:
    """Build the (step → slots) table of one arm.

    The R repetitions are one list of R·n exposures, shuffled once, so batches may span repetitions:
    J = ceil(R·n / (micro_batch · accumulation)) (Table 5). With ``update_groups`` G, there are J =
    G steps whose sizes differ by at most one, with the larger ones spread evenly (code, Table 7).
    An exposure's place depends on (seed, slot, copy) alone, not on the order of ``slots``.

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
    """Return J, the number of optimizer steps for a number of exposures.

    Raises:
        UserError: there are fewer exposures than ``update_groups``, so that a step would be empty.
    """
    groups = settings.update_groups
    if groups is None:
        return -(-exposures // (settings.micro_batch * settings.accumulation))
    if exposures < groups:
        raise UserError(
            f"training.update_groups is {groups}, but there are only {exposures} exposures "
            f"(training.repetitions is {settings.repetitions}), so a step would be empty; "
            "raise budget.n, budget.replay or training.repetitions, or lower training.update_groups"
        )
    return groups


def budget(examples: Sequence[Example], settings: Training) -> Budget:
    """Return the training budget of one arm (Equation 7), counted without its plan.

    Args:
        examples: the training set, one example per slot.
        settings: how the arm is trained.

    Raises:
        UserError: see ``build_sequences`` and ``count_steps``.
    """
    training_sequences = build_sequences(examples, settings)
    repetitions = settings.repetitions
    exposures = repetitions * len(training_sequences)
    return Budget(
        n=len(training_sequences),
        repetitions=repetitions,
        exposures=exposures,
        tokens=repetitions * sum(sequence.tokens for sequence in training_sequences),
        supervised_tokens=repetitions * sum(sequence.supervised for sequence in training_sequences),
        steps=count_steps(exposures, settings),
    )


def _name_slots(examples: Sequence[Example]) -> list[str]:
    """Name each example: its problem's id, with ``~2``, ``~3``, … if it was chosen again.

    A ``~`` in the id is doubled, so that names are unique. Examples of one problem are numbered by
    their content, so that their order has no effect.
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


def _fit_example(example: Example, slot: str, settings: Training) -> TrainingSequence:
    if not example.response_ids:
        raise UserError(f"problem {example.problem_id}: the response is empty; nothing to learn")
    if not example.prompt_ids:
        raise UserError(
            f"problem {example.problem_id}: the prompt is empty, but a response's first token is "
            "learned from the token before it; give the task a prompt, or the model a start token"
        )
    prompt = build_training_prompt(example.prompt_ids, settings)
    eos = settings.supervise_eos and example.ended
    max_response = settings.max_length - len(prompt)
    response_length = len(example.response_ids) + eos
    if response_length <= max_response:
        return TrainingSequence(slot, prompt, example.response_ids, eos, False)
    if settings.too_long == "refuse" or max_response < 1:
        remedy = (
            "raise training.max_length"
            if max_response < 1
            else "raise training.max_length, or set training.too_long: truncate"
        )
        raise UserError(
            f"problem {example.problem_id}: prompt and response have "
            f"{len(prompt) + response_length} tokens, but training.max_length is "
            f"{settings.max_length}; {remedy}"
        )
    return TrainingSequence(slot, prompt, example.response_ids[:max_response], False, True)
