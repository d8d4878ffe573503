"""A sealed training set as texts, held to the token ids that were sealed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Example
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_judged, read_problems


@dataclass(frozen=True, slots=True)
class Written:
    """An example as texts.

    Attributes:
        prompt: the task's prompt, before any chat template.
        response: what is trained on.
        example: what was sealed.
    """

    prompt: str
    response: str
    example: Example


#: What a kind of sealed thing is called, and the stage that makes it.
_MADE = {
    layout.SELECTIONS: ("training set", "nothing is selected yet", "select"),
    layout.ADAPTERS: ("adapter", "nothing is trained yet", "train"),
    layout.DECISIONS: ("audited model", "nothing is audited yet", "audit"),
}


def arms_of(
    run: RunDirectory,
    conditions: Sequence[str],
    seeds: Sequence[int],
    kind: str = layout.SELECTIONS,
) -> list[Arm]:
    """The arms with a sealed training set, or adapter, of these conditions and seeds or of all.

    Raises:
        UserError: there is none yet, or nothing of what was named.
    """
    places = [layout.read(path) for path in sorted(run.manifest()["files"])]
    sealed = [of.arm for of in places if of and of.kind == kind and of.arm and not of.of]
    noun, nothing, stage = _MADE[kind]
    if not sealed:
        raise UserError(f"{run.path}: {nothing}; gapft run {run.path} --only {stage} does that")
    known = ", ".join(arm.name for arm in sealed)
    for option, wanted, found in (
        ("--condition", conditions, {arm.condition for arm in sealed}),
        ("--seed", seeds, {arm.seed for arm in sealed}),
    ):
        for one in wanted:
            if one not in found:
                raise UserError(f"{option} {one}: {run.path} has no such {noun}; has {known}")
    return [
        arm
        for arm in sealed
        if arm.condition in (conditions or [arm.condition]) and arm.seed in (seeds or [arm.seed])
    ]


def written(run: RunDirectory, arm: Arm) -> Iterator[Written]:
    """An arm's examples in their order.

    Raises:
        UserError: an example follows a conversation (episodes), or is no whole response: its
            texts would not be what the arm was trained on.
    """
    path = run.sealed(layout.selection(arm))
    examples = read_examples(path)
    problems = {of.problem_id for of in examples}
    origins = {(of.origin, of.response_index) for of in examples}
    prompts = {
        problem.id: (problem.prompt, ids)
        for problem, ids in read_problems(run.sealed(layout.problems("pool")))
        if problem.id in problems
    }
    responses = {
        key: judged.response
        for problem_id, of in read_judged(run.sealed(layout.responses("pool")))
        for judged in of
        if (key := (problem_id, judged.response.index)) in origins
    }
    for slot, example in enumerate(examples):
        prompt, prompt_ids = prompts.get(example.problem_id, ("", ()))
        response = responses.get((example.origin, example.response_index))
        if prompt_ids != example.prompt_ids:
            why = "its prompt is not the problem's own: it follows the attempts of an episode"
        elif response is None or response.token_ids != example.response_ids:
            why = "it is no whole response of this run"
        else:
            yield Written(prompt, response.text, example)
            continue
        raise UserError(
            f"{path}, example {slot}: {why}, so texts would not be what the arm was trained on; "
            "read the token ids with gapft_harness.open_run(RUN).selections"
        )
