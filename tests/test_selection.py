"""Conditions, what selectors may choose, the files that selection writes, and budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe
from gapft_harness.core.errors import GapftError, PluginError, UserError
from gapft_harness.core.records import Arm, Budget, Evidence, Example, Response, Verdict
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.sections import BudgetChoice
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, list_arms
from gapft_harness.run_directory.evidence import PoolResponses
from gapft_harness.run_directory.parquet import write_batches
from gapft_harness.run_directory.recorded import read_budgets
from gapft_harness.run_directory.tables import (
    build_response_row,
    read_examples,
    response_schema,
)
from gapft_harness.stages.pipeline import STAGES
from gapft_harness.stages.selection.budgets import require_matched, require_similar_tokens
from gapft_harness.stages.selection.choosing import count_condition_slots, run_selector
from tests.kit.plugins import write_plugin
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.searched_pool import build_searched_pool, plain_outcome
from tests.pools import build_evidence

#: A verifier under which problems with the answers a and e are solved greedily, and a selector
#: that takes the longest response that passed.
_MORE = """

class Lenient:
    def verify(self, responses, golds):
        return [
            Verdict("pass" if gold in text or (text == "?" and gold in "ae") else "fail")
            for text, gold in zip(responses, golds, strict=True)
        ]


def wordy(pool, n, rng):
    return [
        max(e.each_verified(), key=lambda other: len(other.response.token_ids))
        for e in pool.draw(pool.recovered, n, rng)
    ]
"""


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    verifiers, selectors = ['"lenient", Lenient'], ['"wordy", wordy, responses="verified"']
    write_plugin(tmp_path / "more.py", _MORE, verifiers=verifiers, selectors=selectors)
    return write_letters_task(tmp_path)


def select(task: LettersTask, **keys: Any) -> RunDirectory:
    """Ten of 24 pool problems are solved, 14 recovered."""
    more = {"search": {"k": 4}, "verifier": {"name": "lenient"}, **keys}
    return task.run("r", ["states", "select"], ("pool", "audit"), **more)


@pytest.mark.parametrize(
    ("finish", "limit", "end_tokens"),
    [("unknown", 14, True), ("unknown", 13, False), ("length", 14, False), ("stop", 13, True)],
)
def test_end_token_follows_naturally_ended_responses_only(
    task: LettersTask, finish: str, limit: int, end_tokens: bool
) -> None:
    """The kept responses have 13 tokens; lm-eval's plain models do not report how they ended."""
    run = select(
        task,
        conditions=["gapft"],
        budget={"n": 6},
        search={"k": 4, "max_gen_toks": limit},
        model={"args": {"finish": finish}},
    )
    chosen = read_examples(run.path / "selections/gapft-seed13.parquet")
    assert [(len(e.response_ids), e.ended) for e in chosen] == [(13, end_tokens)] * 6
    budget = read_budgets(run)["gapft-seed13"]
    assert budget["supervised_tokens"] == 8 * 6 * (13 + end_tokens)
    assert budget["ends_unknown"] == (6 if finish == "unknown" else 0)


def test_selection_seed_gives_all_training_seeds_one_set(task: LettersTask) -> None:
    keys: dict[str, Any] = {"conditions": ["gapft", "uniform", "diffuse"], "seeds": [13, 21]}

    def read_sets(**budget: int) -> dict[str, list[Example]]:
        run = select(task, **keys, budget={"n": 6, "replay": 3, **budget})
        return {
            arm.name: read_examples(run.path / layout.selection_path(arm))
            for arm in list_arms(run.recipe)
        }

    own, shared = read_sets(), read_sets(selection_seed=21)
    for condition in keys["conditions"]:
        first, second = f"{condition}-seed13", f"{condition}-seed21"
        assert own[first] != own[second]
        assert shared[first] == shared[second] == own[second], "also the shared replay"


def test_rejects_tokens_beyond_tolerance(task: LettersTask) -> None:
    """ "so it is o!!!" is 13 tokens, and one for the end: 6 · 8 · 14. The longest is 15."""
    keys: dict[str, Any] = {"conditions": ["gapft", "wordy"]}
    with pytest.raises(
        UserError, match=r"gapft-seed13 .* wordy-seed13 .* 672 .* 768, .* budget\.token_tolerance"
    ):
        select(task, **keys, budget={"n": 6, "token_tolerance": 0.12})
    with pytest.raises(UserError, match="token_tolerance"):
        STAGES["train"](task.context(RunDirectory.open(task.folder / "r")))
    run = select(task, **keys, budget={"n": 6, "token_tolerance": 0.13})
    assert run.has("selections/wordy-seed13.parquet")


# Budgets

BUDGET = Budget(4, 8, 32, 900, 100, 2)


def test_rejects_unmatched_budgets() -> None:
    a, b = Arm("a", 13), Arm("b", 13)
    require_matched({a: BUDGET, b: replace(BUDGET, tokens=950)})
    for key in ("n", "exposures", "steps"):
        other = replace(BUDGET, **{key: 99})
        with pytest.raises(GapftError, match=f"a-seed13.*b-seed13.*{key}"):
            require_matched({a: BUDGET, b: other})


#: Each limited count of a budget, and its key in the recipe.
LIMITS = {"supervised_tokens": "token_tolerance", "tokens": "position_tolerance"}


@pytest.mark.parametrize("field", [*LIMITS])
@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 300)), min_size=1, max_size=8),
    st.floats(0, 0.99),
)
def test_tokens_may_differ_by_the_tolerance_within_a_seed(
    field: str, token_counts: list[tuple[int, int]], tolerance: float
) -> None:
    key = LIMITS[field]
    choice = BudgetChoice.model_validate({key: tolerance})
    budgets = {
        Arm(f"c{i}", seed): replace(BUDGET, **{field: tokens})
        for i, (seed, tokens) in enumerate(token_counts)
    }
    fine = all(
        abs(x - y) / max(x, y) <= tolerance
        for s, x in token_counts
        for other, y in token_counts
        if s == other
    )
    if fine:
        require_similar_tokens(budgets, choice)
    else:
        with pytest.raises(UserError, match=rf"budget\.{key}"):
            require_similar_tokens(budgets, choice)
    require_similar_tokens(budgets, BudgetChoice())


# Conditions

HALF = {"selector": "inclusion", "params": {"share": 0.5}}
MIXED = {"gapft": {}, "half": HALF, "whole": {"selector": "inclusion", "params": {"share": 1}}}


CONTENT = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}


def test_options_select_and_set_conditions(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump({**CONTENT, "conditions": MIXED}))

    def resolve(*overrides: str, conditions: tuple[str, ...] = ()) -> Any:
        options = Options(str(path), overrides=overrides, conditions=conditions)
        return resolve_recipe(options).model_dump(mode="json")["conditions"]

    assert resolve(conditions=("half", "replay")) == {"half": HALF, "replay": {}}
    assert resolve(conditions=("gapft",)) == ["gapft"]
    assert resolve("conditions.half.params.share=0.7")["half"]["params"] == {"share": 0.7}
    changed = resolve("conditions.half.params.late=true", conditions=("half",))
    assert changed == {"half": {"selector": "inclusion", "params": {"share": 0.5, "late": True}}}


@given(st.integers(0, 6), st.integers(1, 6))
def test_slots_are_counted_from_the_pool(solved: int, recovered: int) -> None:
    states = {"G": solved, "S": recovered, "U": 3}
    conditions = {"a": {"n": "verified"}, "b": {"n": 7}, "c": {}, "d": {"n": "recovered"}}
    parsed = check_recipe({**CONTENT, "conditions": conditions}, "test")
    expected = {"a": solved + recovered, "b": 7, "c": recovered, "d": recovered}
    assert count_condition_slots(parsed, lambda _: states) == expected
    with pytest.raises(UserError, match=r"key 'conditions\."):
        count_condition_slots(parsed, lambda _: {**states, "S": 0})
    count_condition_slots(parsed, lambda _: {**states, "S": 0}, [*conditions])


# What selectors declare: other responses than the kept ones, and repeats

#: A recovered problem, of which samples 1 and 2 passed and 1 is kept, and a solved one.
SEARCHED = build_searched_pool([plain_outcome("S"), plain_outcome("G")])
SOLVED, RECOVERED = SEARCHED.evidence
FAILED, KEPT, OTHER = (SEARCHED.judged[RECOVERED.problem_id, index][0] for index in range(3))
BORROWED = SOLVED.response


@pytest.mark.parametrize(
    ("change", "responses", "is_refused"),
    [
        ({"response": KEPT}, "kept", False),
        ({"response": OTHER}, "kept", True),
        ({"response": OTHER}, "verified", False),
        ({"response": OTHER, "prompt_ids": (9,)}, "verified", True),
        ({"response": FAILED}, "verified", True),
        ({"response": BORROWED}, "verified", True),
        ({"response": OTHER}, "borrowed", False),
        ({"response": BORROWED}, "borrowed", False),
        ({"response": BORROWED, "prompt_ids": (9,)}, "borrowed", True),
        ({"response": replace(FAILED, problem_id=SOLVED.problem_id)}, "borrowed", True),
    ],
)
def test_using_another_response_must_be_declared(
    change: dict[str, Any], responses: Any, is_refused: bool
) -> None:
    def select(pool: Any, n: int, rng: Any) -> list[Evidence]:
        return [replace(RECOVERED, **change)]

    entry = Registration("selector", "mine", "mine.py", select, SelectorTraits(responses=responses))
    if is_refused:
        with pytest.raises(PluginError, match=RECOVERED.problem_id):
            run_selector(select, entry, SEARCHED.pool, 1, Arm("mine", 13))
    else:
        chosen = run_selector(select, entry, SEARCHED.pool, 1, Arm("mine", 13))
        assert chosen == select(None, 1, None)


@pytest.mark.parametrize("repeats", [False, True])
def test_repeats_must_be_declared(repeats: bool) -> None:
    def select(pool: Any, n: int, rng: Any) -> list[Evidence]:
        return [RECOVERED] * n

    entry = Registration("selector", "mine", "mine.py", select, SelectorTraits(repeats=repeats))
    if repeats:
        assert len(run_selector(select, entry, SEARCHED.pool, 2, Arm("mine", 13))) == 2
    else:
        with pytest.raises(PluginError, match=RECOVERED.problem_id):
            run_selector(select, entry, SEARCHED.pool, 2, Arm("mine", 13))


def build_sample(name: str, index: int) -> Response:
    return Response(name, index, f"text {index}", (index + 1, index + 2), "stop", 0)


def write_samples(path: Path, passed: dict[str, list[bool]], in_group: int) -> None:
    """Write a table of greedy responses and samples, ``in_group`` problems per row group."""
    verdicts = (Verdict("fail"), Verdict("pass"))
    rows = {
        name: [
            build_response_row(build_sample(name, i - 1), verdicts[p])
            for i, p in enumerate(outcomes)
        ]
        for name, outcomes in sorted(passed.items())
    }
    names = list(rows)
    groups = [names[at : at + in_group] for at in range(0, len(names), in_group)]
    write_batches(
        path, response_schema(), [[r for name in group for r in rows[name]] for group in groups]
    )


@given(
    st.dictionaries(
        st.text("ab~é", min_size=1, max_size=3),
        st.lists(st.booleans(), min_size=1, max_size=4),
        max_size=12,
    ),
    st.integers(1, 5),
    st.data(),
)
def test_passing_responses_are_read_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    passed: dict[str, list[bool]],
    in_group: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("table") / "responses.parquet"
    write_samples(path, passed, in_group)
    prompts = {name: (7, number) for number, name in enumerate(passed)}
    read = PoolResponses(path, prompts, conversation=True)
    for name in data.draw(st.permutations([*passed])):
        state = "G" if passed[name][0] else "S"
        problem = replace(build_evidence(name, state), read_responses=read.read_responses)
        right = [build_sample(name, i - 1) for i, p in enumerate(passed[name]) if p]
        assert list(problem.verified) == right
        assert [e.prompt_ids for e in problem.each_verified()] == [prompts[name]] * len(right)
        assert {e.problem_id for e in problem.each_verified()} <= {name}
