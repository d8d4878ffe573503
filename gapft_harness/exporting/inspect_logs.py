"""Responses with their verdicts as logs of Inspect, which its viewer opens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import CONTEXT, GREEDY, Arm, Response
from gapft_harness.exporting.cards import model_name
from gapft_harness.exporting.formats import arms_of
from gapft_harness.report.reading.columns import plain_gold
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, Split, stated
from gapft_harness.run_directory.manifest import task_of
from gapft_harness.run_directory.parquet import read_rows
from gapft_harness.run_directory.tables import (
    Judged,
    read_judged,
    read_states,
)

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

#: Inspect's words for how a response ended.
_STOPPED = {"stop": "stop", "length": "max_tokens", CONTEXT: "model_length"}
#: The scorer of verdicts that were taken over from a file.
IMPORTED = "imported verdict"


@dataclass(frozen=True, slots=True)
class _Decoded:
    """One log: the responses of one model to one split.

    Attributes:
        name: of the file.
        split: whose problems.
        table: the sealed table of responses.
        samples: whether the samples are meant, each an epoch, or the greedy responses.
        arm: the trained model; None: the source.
    """

    name: str
    split: Split
    table: str
    samples: bool = False
    arm: Arm | None = None


def write_inspect_logs(
    run: RunDirectory, out: Path, conditions: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[Path]:
    """Writes a log for each decode of each split: the source's greedy one, its samples, the arms'.

    Args:
        run: the run; its splits have states.
        out: the folder.
        conditions: of the arms only these; none: all.
        seeds: likewise.

    Returns:
        The files.

    Raises:
        UserError: inspect_ai is not installed, there is no such arm, or a table is not there or
            was changed after it was sealed.
        GapftError: a log cannot be written.
    """
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as error:
        raise UserError(
            "--to inspect: the package inspect-ai is not installed; pip install "
            f"'gapft-harness[inspect]' ({error})"
        ) from error
    decodes = [*_decodes(run, conditions, seeds)]
    _require_names(decodes)
    for decoded in decodes:
        for place in (decoded.table, layout.problems(decoded.split), layout.states(decoded.split)):
            run.sealed(place)
    files = []
    for decoded in decodes:
        files.append(out / f"{decoded.name}.eval")
        log = _log(run, decoded)
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_eval_log(log, str(files[-1]))
        except OSError as error:
            raise GapftError(f"{files[-1]}: cannot be written: {error}") from error
    return files


def _decodes(
    run: RunDirectory, conditions: Sequence[str], seeds: Sequence[int]
) -> Iterator[_Decoded]:
    """The source's decodes of every split, then the chosen arms' of every audit."""
    known = run.manifest()["files"]
    splits = [split for split in stated(run.recipe) if layout.states(split) in known] or ["pool"]
    for split in splits:
        name, table = f"{split.replace('/', '-')}-source", layout.responses(split)
        yield _Decoded(name, split, table)
        yield _Decoded(f"{name}-samples", split, table, samples=True)
    audits = {layout.further(split): split for split in splits if split != "pool"}
    trained = any(layout.folder_of(name) == layout.DECISIONS for name in known)
    asked = trained or conditions or seeds
    for arm in arms_of(run, conditions, seeds, layout.DECISIONS) if asked else ():
        if arm.variant in audits:  # else the recipe no longer names it
            of = audits[arm.variant]
            name = f"{of.replace('/', '-')}-{arm.original.name}"
            yield _Decoded(name, of, layout.decisions(arm), arm=arm.original)


def _require_names(decodes: Sequence[_Decoded]) -> None:
    """Each log has a file of its own.

    Raises:
        UserError: two have one name.
    """
    names = Counter(of.name for of in decodes)
    for name in (name for name, count in names.items() if count > 1):
        places = " and ".join(of.table for of in decodes if of.name == name)
        raise UserError(
            f"--to inspect: the logs of {places} would both be {name}.eval; choose one of the "
            "conditions by --condition"
        )


def _log(run: RunDirectory, decoded: _Decoded) -> EvalLog:
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalMetric,
        EvalResults,
        EvalScore,
        EvalSpec,
    )
    from inspect_ai.model import GenerateConfig

    manifest, search = run.manifest(), run.recipe.search
    task, seal = task_of(manifest, decoded.split), manifest["files"][decoded.table]
    scorer, params = _scorer(run, decoded)
    limit = task["decoding"]["max_gen_toks"] if "decoding" in task else None
    problems = {
        row["problem_id"]: row for row in read_rows(run.path / layout.problems(decoded.split))
    }
    states = {
        one.problem_id: one.state for one in read_states(run.path / layout.states(decoded.split))
    }
    judged = {
        problem: [one for one in all_of if (one.response.index != GREEDY) == decoded.samples]
        for problem, all_of in read_judged(run.path / decoded.table)
    }
    samples = [
        _sample(run, scorer, problems[problem], states[problem], one)
        for problem, every in judged.items()
        for one in every
    ]
    epochs = {len(every) for every in judged.values()}
    passed = sum(one.verdict.passed for every in judged.values() for one in every)
    # where search stopped early, a mean over what was drawn would be no accuracy
    metrics = {"accuracy": passed / len(samples)} if len(epochs) == 1 and samples else {}
    score = EvalScore(
        name=scorer,
        scorer=scorer,
        scored_samples=len(samples),
        params=params,
        metrics={name: EvalMetric(name=name, value=value) for name, value in metrics.items()},
    )
    drawn = GenerateConfig(
        temperature=search.temperature,
        top_p=search.top_p,
        max_tokens=search.max_gen_toks or limit,
    )
    return EvalLog(
        status="success",
        eval=EvalSpec(
            **dict.fromkeys(("eval_id", "run_id", "task_id"), f"{seal[:20]}-{decoded.samples:d}"),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            task=task["name"],
            task_version=task.get("version", ""),
            dataset=EvalDataset(name=decoded.split, samples=len(judged), sample_ids=[*judged]),
            model=model_name(run.recipe) + (f"+{decoded.arm.name}" if decoded.arm else ""),
            model_generate_config=drawn
            if decoded.samples
            else GenerateConfig(temperature=0, max_tokens=limit),
            config=EvalConfig(epochs=max(epochs, default=1)),
            packages={"gapft_harness": manifest["gapft_harness"]},
            metadata={
                "run": run.recipe.name,
                "split": decoded.split,
                "seals": {decoded.table: seal},
                "warnings": manifest["warnings"],
            },
        ),
        results=EvalResults(
            total_samples=len(samples), completed_samples=len(samples), scores=[score]
        ),
        samples=samples,
    )


def _scorer(run: RunDirectory, decoded: _Decoded) -> tuple[str, dict[str, Any]]:
    """Whose the verdicts are, with its parameters: the task's verifier's, or an imported file's."""
    manifest = run.manifest()
    imported = manifest.get("imported", {}).get(decoded.split) if decoded.arm is None else None
    if imported is not None and imported["verdicts"] == "file":
        return IMPORTED, {}
    task = task_of(manifest, decoded.split)
    return task["verifier"], task.get("verifier_params", {})


def _sample(
    run: RunDirectory, scorer: str, problem: Mapping[str, Any], state: str, decoded: Judged
) -> EvalSample:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import CORRECT, INCORRECT, Score

    response, verdict = decoded.response, decoded.verdict
    output = ModelOutput.from_content(
        model_name(run.recipe),
        response.text,
        stop_reason=_STOPPED.get(response.finish_reason, "unknown"),
    )
    score = Score(
        value=CORRECT if verdict.passed else INCORRECT,
        answer=decoded.answer,
        explanation=verdict.reason or None,
        metadata={"verdict": verdict.status},
    )
    return EvalSample(
        id=problem["problem_id"],
        epoch=1 if response.index == GREEDY else response.index + 1,
        input=problem["prompt"],
        target=plain_gold(problem["gold"]),
        messages=_messages(run.recipe.model.system_instruction, problem["prompt"], response),
        output=output,
        scores={scorer: score},
        metadata={"state": state},
    )


def _messages(system: str | None, prompt: str, response: Response) -> list[Any]:
    """The conversation; of an episode with each attempt and what the model was told of it."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    said: list[Any] = [ChatMessageSystem(content=system)] if system else []
    said.append(ChatMessageUser(content=prompt))
    for attempt in response.attempts:
        said.append(ChatMessageAssistant(content=attempt.text))
        said.append(ChatMessageUser(content=attempt.feedback))
    return [*said, ChatMessageAssistant(content=response.text)]
