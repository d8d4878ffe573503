"""Episodes stop exactly when all public tests pass, show no hidden test, and can be resumed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import (
    CONTEXT_EXCEEDED,
    GREEDY,
    Decoding,
    Problem,
    Response,
    Verdict,
)
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    Request,
    Verifier,
    beyond_context,
)
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.sandbox import probe_tiers
from gapft_harness.stages.generation.chunks import DecodePhase, build_single_phase
from gapft_harness.stages.generation.lines import Responses
from tests.generated import generate_missing
from tests.kit.kills import read_files

ONE = Decoding(do_sample=False, max_gen_toks=4)
MANY = Decoding(do_sample=True, max_gen_toks=4, temperature=0.7)
PHASES = [build_single_phase(ONE), DecodePhase(MANY, (0, 1, 2))]

#: The attempts of each episode, by problem and index. "good" ends the episode, and so does "long":
#: the prompt does not fit into the model's context.
Script = dict[tuple[str, int], list[str]]


class ScriptedSampler:
    """Answers from a script, attempt by attempt; records every request."""

    def __init__(self, script: Script, fail_after: int | None = None, deaf: bool = False) -> None:
        self.script = script
        self.requested: list[Request] = []
        self.calls = 0
        self._fail_after = fail_after
        self._deaf = deaf

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        if self.calls == self._fail_after:
            raise KeyboardInterrupt
        self.calls += 1
        self.requested += requests
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Generated:
        pairs = zip(request.indices, request.seeds, strict=True)
        generations = tuple(self._write(request, index, seed) for index, seed in pairs)
        if request.attempts and generations[0].finish_reason == CONTEXT_EXCEEDED:
            return beyond_context(request)
        prompt = request.prompt if self._deaf else request.text
        return Generated(tuple(prompt.encode()), generations)

    def _write(self, request: Request, index: int, seed: int) -> Generation:
        text = self.script[request.problem_id, index][len(request.attempts)]
        if text.startswith("long"):
            return Generation("", (), CONTEXT_EXCEEDED)
        return Generation(text, (*text.encode(), seed % 7), "stop")

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class WordVerifier:
    """A verifier whose public tests pass "good", and whose hidden tests pass the gold."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        pairs = zip(responses, golds, strict=True)
        return [Verdict("pass" if text == gold else "fail") for text, gold in pairs]

    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        self.judged += responses
        return [None if text.startswith("good") else f"no to {text}" for text in responses]


def generate_episodes(
    folder: Path,
    problems: Sequence[Problem],
    sampler: ScriptedSampler,
    verifier: Verifier,
    attempts: int = 3,
) -> Responses:
    return generate_missing(
        folder, problems, PHASES, sampler, judge=Judge(verifier), attempts=attempts
    )


def build_problems(count: int) -> list[Problem]:
    return [Problem(f"p{i}", f"ask {i} ", "good") for i in range(count)]


def read_parts(folder: Path) -> dict[str, bytes]:
    """Return the content of the parts in a store's folder."""
    return {name: data for name, data in read_files(folder).items() if name.endswith(".jsonl")}


def index_responses(
    responses: Responses, problems: Sequence[Problem]
) -> dict[tuple[str, int], Response]:
    entries = responses.read([problem.id for problem in problems])
    return {(e.problem_id, r.index): r for e in entries for r in e.responses}


attempts_of_one = st.lists(st.sampled_from(["good", "bad", "ugly", "long"]), min_size=3, max_size=3)
scripts = st.lists(attempts_of_one, min_size=12, max_size=12).map(
    lambda rows: {
        (f"p{i // 4}", i % 4 - 1): [f"{word} {i}.{n}" for n, word in enumerate(row)]
        for i, row in enumerate(rows)
    }
)


@given(script=scripts, limit=st.integers(1, 3))
@settings(max_examples=60)
def test_episode_ends_at_first_good_or_too_long_attempt(script: Script, limit: int) -> None:
    problems = build_problems(3)
    with tempfile.TemporaryDirectory() as folder:
        verifier = WordVerifier()
        responses = generate_episodes(
            Path(folder),
            problems,
            ScriptedSampler(script),
            verifier,
            limit,
        )
        indexed = index_responses(responses, problems)
        prompts = {e.problem_id: e.prompt_ids for e in responses.read([p.id for p in problems])}
    assert set(indexed) == set(script)
    assert len(verifier.judged) == len(set(verifier.judged)), "an attempt was judged twice"
    assert "" not in verifier.judged
    for key, response in indexed.items():
        texts = script[key][:limit]
        ends = [n for n, text in enumerate(texts) if text.startswith(("good", "long"))]
        texts = texts[: ends[0] + 1] if ends else texts
        is_too_long = texts[-1].startswith("long")
        assert (response.finish_reason == CONTEXT_EXCEEDED) == is_too_long
        last = "" if is_too_long else texts[-1]
        assert [*(a.text for a in response.attempts), response.text] == [*texts[:-1], last]
        assert [a.feedback for a in response.attempts] == [f"no to {t}" for t in texts[:-1]]
        conversation = f"ask {key[0][1:]} " + "".join(f"{t}\n\nno to {t}\n\n" for t in texts[:-1])
        assert prompts[key[0]] == tuple(f"ask {key[0][1:]} ".encode())
        is_continued = len(texts) > 1 and not is_too_long
        assert response.context_ids == (tuple(conversation.encode()) if is_continued else ())


def test_resume_repeats_only_the_unfinished_chunk(tmp_path: Path) -> None:
    problems = build_problems(3)
    bad = {
        (p.id, i): [f"bad {p.id}{i}{n}" for n in range(3)] for p in problems for i in range(-1, 3)
    }
    bad["p0", GREEDY][1] = bad["p2", 1][0] = "good"

    def generate(name: str, fail_after: int | None = None) -> tuple[ScriptedSampler, WordVerifier]:
        sampler, verifier = ScriptedSampler(bad, fail_after), WordVerifier()
        with contextlib.suppress(KeyboardInterrupt):
            generate_episodes(tmp_path / name, problems, sampler, verifier)
        return sampler, verifier

    assert generate("whole")[0].calls == 6, "two chunks of three attempts each"
    for stop in range(6):
        generate(f"cut{stop}", stop)
        finished_chunks = stop // 3
        assert len(read_parts(tmp_path / f"cut{stop}")) == 2 * finished_chunks, "a file a phase"
        assert generate(f"cut{stop}")[0].calls == 6 - 3 * finished_chunks
        assert read_parts(tmp_path / f"cut{stop}") == read_parts(tmp_path / "whole")
    sampler, verifier = generate("whole")
    assert (sampler.calls, verifier.judged) == (0, [])


def test_rejects_sampler_that_ignores_feedback(tmp_path: Path) -> None:
    problems = build_problems(1)
    script = {("p0", index): ["bad", "bad"] for index in range(-1, 3)}
    with pytest.raises(PluginError, match=r"attempt 2 at problem p0 on the problem's prompt alone"):
        generate_episodes(
            tmp_path,
            problems,
            ScriptedSampler(script, deaf=True),
            WordVerifier(),
            2,
        )
    assert not read_parts(tmp_path), "no response is stored"


# The real verifier


@pytest.fixture(scope="module")
def program_verifier() -> Iterator[ProgramTests]:
    probes = probe_tiers()
    if {probe.tier for probe in probes} == {probe.tier for probe in probes if not probe.holds}:
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    with ProgramTests(workers=1, limits={"cpu_s": 1, "memory_bytes": 256 << 20}) as verifier:
        yield verifier


SECRET_IN, SECRET_OUT = "770077", "1540154"
DOUBLE = {
    "kind": "stdin",
    "function": None,
    "tests": [
        {"input": "1\n", "output": "2\n"},
        {"input": "3\n", "output": "6\n"},
        {"input": f"{SECRET_IN}\n", "output": f"{SECRET_OUT}\n"},
    ],
    "public": 2,
}


def fence(source: str) -> str:
    return f"```python\n{source}\n```"


WRONG = [
    "print(5)",
    "import sys\nprint(sys.stdin.read() * 3)",
    "n = int(input())\nprint(2 if n == 1 else 7)",
    "raise ValueError(input())",
    "def f(:",
    "while True: pass",
    "import gc, sys\nprint([repr(x)[:999] for x in gc.get_objects()])",
    "import os\nprint(os.listdir('/'), dict(os.environ), open('/proc/self/maps').read())",
    "import sys\nf = sys._getframe()\nwhile f:\n    print(f.f_locals, f.f_globals); f = f.f_back",
]
GOOD = fence("print(2 * int(input()))")
#: Passes both public tests and fails the hidden one.
LAZY = fence("print({1: 2, 3: 6}[int(input())])")


def test_feedback_hides_hidden_tests(program_verifier: ProgramTests, tmp_path: Path) -> None:
    """Programs that look for the tests in every way reveal nothing of the hidden test."""
    problems = [Problem(f"p{i}", "Double it. ", DOUBLE) for i in range(len(WRONG))]
    script = {
        (f"p{i}", index): [fence(program), "no program", fence(program)]
        for i, program in enumerate(WRONG)
        for index in range(-1, 3)
    }
    sampler = ScriptedSampler(script)
    responses = generate_episodes(tmp_path / "store", problems, sampler, program_verifier)
    later = [request for request in sampler.requested if request.attempts]
    assert len(later) == len(WRONG) * 4 * 2
    for request in later:
        feedback = request.attempts[-1].feedback
        assert SECRET_IN not in request.text
        assert SECRET_OUT not in request.text
        assert len(feedback) < 2000
        assert feedback.endswith("in one fenced Python block.")
    texts = [response.text for response in index_responses(responses, problems).values()]
    for verdict in program_verifier.verify(texts, [DOUBLE] * len(texts)):
        assert SECRET_IN not in verdict.reason
        assert SECRET_OUT not in verdict.reason


def test_hidden_tests_do_not_affect_episodes(
    program_verifier: ProgramTests, tmp_path: Path
) -> None:
    """Different hidden tests give the same conversations and different verdicts."""
    script = {
        ("p0", GREEDY): [LAZY],
        ("p0", 0): [fence(WRONG[2]), LAZY],
        ("p0", 1): [fence(WRONG[0]), fence(WRONG[2]), GOOD],
        ("p0", 2): [GOOD],
    }
    seen, verdicts = [], []
    for hidden in (f"{SECRET_OUT}\n", "0\n", None):
        tests = DOUBLE["tests"][:2] + (
            [{"input": f"{SECRET_IN}\n", "output": hidden}] if hidden else []
        )
        problems = [Problem("p0", "Double it. ", {**DOUBLE, "tests": tests})]
        sampler = ScriptedSampler(script)
        generated = generate_episodes(tmp_path / "store", problems, sampler, program_verifier)
        seen.append(sampler.requested)
        responses = [*index_responses(generated, problems).values()]
        golds = [problems[0].gold] * len(responses)
        judged = Judge(program_verifier).judge_responses(responses, golds)
        verdicts.append([verdict.passed for verdict, _ in judged])
        assert [len(response.attempts) for response in responses] == [0, 1, 2, 0]
    assert seen[0] == seen[1] == seen[2] != [], "other golds: no verdict was reused"
    assert verdicts == [[False, False, True, True], [False] * 4, [True] * 4]


def test_feedback_does_not_decode_hidden_tests(program_verifier: ProgramTests) -> None:
    """Only the verdict uses them; an unreadable hidden test is an error, never a pass."""
    gold = {**DOUBLE, "tests": DOUBLE["tests"][:2], "hidden": "cannot be decoded"}
    feedback = program_verifier.feedback([GOOD, fence("print(5)")], [gold, gold])
    assert feedback[0] is None
    assert feedback[1] is not None
    with pytest.raises(UserError, match="hidden: the tests cannot be read"):
        program_verifier.verify([GOOD], [gold])
    assert "hidden: the tests cannot be read" in program_verifier.check_gold(gold)
    unseen = {**gold, "tests": [], "public": 0}
    assert program_verifier.feedback([GOOD], [unseen]) == [None]
    with pytest.raises(UserError, match="there are no tests"):
        program_verifier.feedback([GOOD], [{**unseen, "hidden": None}])


def test_program_ends_episode_without_public_tests(
    program_verifier: ProgramTests,
) -> None:
    gold = {**DOUBLE, "public": 0}
    feedback = program_verifier.feedback([fence("raise SystemExit(3)"), "nothing"], [gold, gold])
    assert feedback[0] is None
    assert feedback[1] is not None
