"""Export preference pairs of samples of one problem, in the format of TRL's ``DPOTrainer``.

The format is TRL 1.16's preference format with an explicit prompt: ``prompt``, ``chosen`` and
``rejected``, as texts, or with a chat template as lists of messages. The trainer drops all other
columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_text
from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, Response, Status
from gapft_harness.exporting.cards import find_model_name
from gapft_harness.exporting.dataset import (
    COLUMNS,
    SPLITS,
    build_dataset_card,
    require_same_problem,
)
from gapft_harness.exporting.formats import Record
from gapft_harness.exporting.problem_choice import (
    ProblemChoice,
    compute_solve_rate,
    count_chosen,
    describe_choice,
)
from gapft_harness.exporting.prompt_sets import FACTS, build_prompt_chat, write_parquet_rows
from gapft_harness.report.frame import Frame
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.report.rendering.wording import format_count
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_rows
from gapft_harness.run_directory.tables import (
    JudgedResponse,
    ProblemState,
    read_judged,
    read_states,
)

_FILE = "train.parquet"
_PROBLEM_COLUMNS = ("problem_id", "origin", "state", "samples", "passing_samples", "solve_rate")
#: Columns besides the trainer's, with their meanings.
PAIR_COLUMNS = {
    **{name: {**COLUMNS, **FACTS}[name] for name in _PROBLEM_COLUMNS},
    "pair": "the number of the pair within its problem, from 0",
    "chosen_index": "the number of the sample that passed",
    "rejected_index": "the number of the sample that failed",
    "chosen_finish_reason": "how the sample that passed ended; length: cut at the limit",
    "rejected_finish_reason": "how the sample that failed ended; length: cut at the limit",
}
_PLACES = tuple(
    kind("pool") for kind in (layout.problems_path, layout.states_path, layout.responses_path)
)


@dataclass(slots=True)
class _PairCounts:
    """Counts of written pairs, and of problems by state, filled while rows are read.

    Attributes:
        pairs: the number of pairs.
        problems: by state, the problems that have a pair.
        statuses: by status, the problems that have a usable sample with this verdict.
    """

    pairs: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)


def write_preference_pairs(run: RunDirectory, out: Path, choice: ProblemChoice) -> list[Path]:
    """Write pairs of samples that passed and failed, and the dataset card ``README.md``.

    Rows are ordered by problem id, then by pair.

    Args:
        run: the run; its pool must have states.
        out: the folder to write.
        choice: the problems to use.

    Returns:
        The paths of the files.

    Raises:
        UserError: as in ``count_chosen``; or there is no pair, the task has episodes of several
            attempts or begins answers (``gen_prefix``), or a table was changed after it was sealed.
        GapftError: tables contradict each other.
    """
    _reject_episodes(run)
    chosen, counts = count_chosen(run, choice), _PairCounts()
    rows = _read_rows(run, choice, counts)
    first = next(rows, None)
    if first is None:
        raise UserError(
            f"{run.path}: no preference pair: a pair needs a sample that passed and one that "
            f"failed on the same problem, with different texts; of {chosen.total()} chosen "
            f"problems, {counts.statuses['pass']} have a sample that passed and "
            f"{counts.statuses['fail']} one that failed; choose other problems, or search with a "
            "larger search.k"
        )
    # A null solve rate would have no type.
    write_parquet_rows(out / _FILE, {**first, "solve_rate": 0.0}, chain([first], rows))
    write_text(out / "README.md", _build_card(run, choice, counts))
    return [out / _FILE, out / "README.md"]


def pair_samples(judged: Sequence[JudgedResponse]) -> list[tuple[Response, Response]]:
    """Pair a problem's samples that passed with those that failed, in the order of their numbers.

    The first that passed is paired with the first that failed, the second with the second, until
    one side has no more. So each sample is in at most one pair. Of samples with the same text, only
    the first is used. A text that both passed and failed is not used.

    Args:
        judged: the problem's responses, ordered by index. Deployment decodes are not used, nor are
            samples without a verdict (timeout, error) or without a text (beyond the context).
    """
    texts = {status: _collect_texts(judged, status) for status in _PAIRED}
    passed, failed = (
        [response for text, response in texts[status].items() if text not in texts[other]]
        for status, other in (_PAIRED, _PAIRED[::-1])
    )
    return [*zip(passed, failed, strict=False)]


_PAIRED: tuple[Status, Status] = ("pass", "fail")


def _collect_texts(judged: Sequence[JudgedResponse], status: Status) -> dict[str, Response]:
    """Collect the texts of samples with a verdict, each with its first sample."""
    texts: dict[str, Response] = {}
    for item in judged:
        response = item.response
        is_usable = response.index != GREEDY and response.finish_reason != CONTEXT_EXCEEDED
        if is_usable and item.verdict.status == status:
            texts.setdefault(response.text, response)
    return texts


def _reject_episodes(run: RunDirectory) -> None:
    if run.manifest()["task"].get("episode", {"attempts": 1})["attempts"] > 1:
        raise UserError(
            f"{run.path}: the samples are episodes of several attempts, which have no common "
            "prompt, so pairs cannot represent them; read them with --to dataset"
        )


def _read_rows(run: RunDirectory, choice: ProblemChoice, counts: _PairCounts) -> Iterator[Record]:
    problems, states, responses = map(run.sealed, _PLACES)
    origin = run.manifest()["task"]["name"]
    table_rows = zip(read_rows(problems), read_states(states), read_judged(responses), strict=True)
    for problem, state, (problem_id, judged) in table_rows:
        require_same_problem(run, "pool", problem["problem_id"], state.problem_id, problem_id)
        if not choice.includes(state):
            continue
        counts.statuses.update(status for status in _PAIRED if _collect_texts(judged, status))
        pairs = pair_samples(judged)
        counts.problems[state.state] += bool(pairs)
        counts.pairs += len(pairs)
        chat = build_prompt_chat(run, problem) if pairs else []
        for number, pair in enumerate(pairs):
            yield {
                **_build_fields(run, problem["prompt"], chat, pair),
                **_build_facts(run, origin, state, number, pair),
            }


def _build_fields(
    run: RunDirectory, prompt: str, chat: Sequence[Any], pair: tuple[Response, Response]
) -> Record:
    chosen, rejected = (response.text for response in pair)
    if not run.recipe.model.chat_template:
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    return {
        "prompt": chat,
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
    }


def _build_facts(
    run: RunDirectory,
    origin: str,
    state: ProblemState,
    number: int,
    pair: tuple[Response, Response],
) -> Record:
    chosen, rejected = pair
    return {
        "problem_id": state.problem_id,
        "origin": origin,
        "state": state.state,
        "samples": state.samples,
        "passing_samples": state.passing_samples,
        "solve_rate": compute_solve_rate(state),
        "pair": number,
        "chosen_index": chosen.index,
        "rejected_index": rejected.index,
        "chosen_finish_reason": chosen.finish_reason,
        "rejected_finish_reason": rejected.finish_reason,
    }


def _build_card(run: RunDirectory, choice: ProblemChoice, counts: _PairCounts) -> str:
    text = (
        f"{format_count(counts.pairs)} preference pairs in the format of TRL's DPOTrainer: for a "
        f"prompt of {run.manifest()['task']['name']}, a sample of {find_model_name(run.recipe)} "
        "that the verifier passed (chosen) and one that it failed (rejected). "
        f"{describe_choice(choice)}The table counts problems that have a pair. The problems come "
        "from the benchmark and have its licence."
    )
    return build_dataset_card(
        run,
        f"Preference pairs of {run.recipe.name}",
        "preference",
        {"train": Path(_FILE)},
        [Text(text), Frame(SPLITS, [("pool", "train", counts.problems)]).table(words=2)],
        ("Other columns", PAIR_COLUMNS),
        _PLACES,
    )
