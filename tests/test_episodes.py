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
from gapft_harness.core.records import GREEDY, Decoding, Problem, Response, Verdict
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    ReportProgress,
    Request,
    report_nothing,
)
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.sandbox import Sandbox, probe_tiers
from gapft_harness.stages.generation.chunks import DecodePhase
from gapft_harness.stages.generation.episodes import Episodes, build_episodes
from gapft_harness.stages.generation.generation import build_greedy_phase, divide_into_chunks
from gapft_harness.stages.generation.sealing import write_responses
from gapft_harness.stages.generation.stored_files import Responses, StoredResponses, read_part
from tests.generated import chunks_in, contents, generated, parts_in

ONE = Decoding(do_sample=False, max_gen_toks=4)
MANY = Decoding(do_sample=True, max_gen_toks=4, temperature=0.7)
PHASES = [build_greedy_phase(ONE), DecodePhase("samples", MANY, (0, 1, 2))]

#: What each episode's attempts are, by problem and index; "good" ends it.
Script = dict[tuple[str, int], list[str]]


class Scripted:
    """Writes what a script says, attempt by attempt, and keeps every request it saw."""

    def __init__(self, script: Script, fail_after: int | None = None, deaf: bool = False) -> None:
        self.script = script
        self.requested: list[Request] = []
        self.calls = 0
        self._format_remaining = fail_after
        self._deaf = deaf

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        if self.calls == self._format_remaining:
            raise KeyboardInterrupt
        self.calls += 1
        self.requested += requests
        return [
            Generated(
                tuple((r.prompt if self._deaf else r.text).encode()),
                tuple(
                    self._write(r, index, seed)
                    for index, seed in zip(r.indices, r.seeds, strict=True)
                ),
            )
            for r in requests
        ]

    def _write(self, request: Request, index: int, seed: int) -> Generation:
        text = self.script[request.problem_id, index][len(request.attempts)]
        return Generation(text, (*text.encode(), seed % 7), "stop")

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Words:
    """A verifier whose public tests pass "good", and whose hidden tests pass the gold."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        pairs = zip(responses, golds, strict=True)
        return [Verdict("pass" if text == gold else "fail") for text, gold in pairs]

    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        self.told += responses
        return [None if text.startswith("good") else f"no to {text}" for text in responses]


def run(
    folder: Path,
    of: Sequence[Problem],
    sampler: Scripted,
    episodes: Episodes,
    progress: ReportProgress = report_nothing,
) -> StoredResponses:
    return generated(folder, of, PHASES, sampler, episodes=episodes, progress=progress)


def of_problems(count: int) -> list[Problem]:
    return [Problem(f"p{i}", f"ask {i} ", "good") for i in range(count)]


def by_index(responses: Responses, of: Sequence[Problem]) -> dict[tuple[str, int], Response]:
    entries = responses.read([problem.id for problem in of])
    return {(e.problem_id, r.index): r for e in entries for r in e.responses}


attempts_of_one = st.lists(st.sampled_from(["good", "bad", "ugly"]), min_size=3, max_size=3)
scripts = st.lists(attempts_of_one, min_size=12, max_size=12).map(
    lambda rows: {
        (f"p{i // 4}", i % 4 - 1): [f"{word} {i}.{n}" for n, word in enumerate(row)]
        for i, row in enumerate(rows)
    }
)


@given(script=scripts, limit=st.integers(1, 3))
@settings(max_examples=60)
def test_an_episode_ends_at_its_first_good_attempt_or_its_last(script: Script, limit: int) -> None:
    of = of_problems(3)
    with tempfile.TemporaryDirectory() as folder:
        verifier = Words()
        responses = run(
            Path(folder), of, Scripted(script), build_episodes(verifier, limit, "words")
        )
        found = by_index(responses, of)
        prompts = {e.problem_id: e.prompt_ids for e in responses.read([p.id for p in of])}
    assert set(found) == set(script)
    assert len(verifier.told) == len(set(verifier.told)), "an attempt was judged twice"
    for key, response in found.items():
        wanted = script[key][:limit]
        good = [n for n, text in enumerate(wanted) if text.startswith("good")]
        wanted = wanted[: good[0] + 1] if good else wanted
        assert [*(a.text for a in response.attempts), response.text] == wanted
        assert [a.feedback for a in response.attempts] == [f"no to {t}" for t in wanted[:-1]]
        conversation = f"ask {key[0][1:]} " + "".join(f"{t}\n\nno to {t}\n\n" for t in wanted[:-1])
        assert prompts[key[0]] == tuple(f"ask {key[0][1:]} ".encode())
        assert response.context_ids == (tuple(conversation.encode()) if wanted[1:] else ())


def test_only_the_chunk_in_flight_is_repeated_and_of_the_others_no_feedback_is_asked(
    tmp_path: Path,
) -> None:
    of = of_problems(3)
    bad = {(p.id, i): [f"bad {p.id}{i}{n}" for n in range(3)] for p in of for i in range(-1, 3)}
    bad["p0", GREEDY][1] = bad["p2", 1][0] = "good"
    sampler = Scripted(bad)
    run(tmp_path / "whole", of, sampler, build_episodes(Words(), 3, "words"))
    assert sampler.calls == 6, "two chunks of three attempts each"
    for stop in range(6):
        cut = tmp_path / f"cut{stop}"
        with pytest.raises(KeyboardInterrupt):
            run(cut, of, Scripted(bad, fail_after=stop), build_episodes(Words(), 3, "words"))
        before = parts_in(cut)
        verifier, again = Words(), Scripted(bad)
        run(cut, of, again, build_episodes(verifier, 3, "words"))
        whole_chunks = stop // 3
        assert len(before) == 2 * whole_chunks, "a file a phase"
        assert again.calls == 6 - 3 * whole_chunks
        done = {
            problem.id
            for members in divide_into_chunks(of, 2)[:whole_chunks]
            for problem in members
        }
        assert not done & {request.problem_id for request in again.requested}
        assert not [text for text in verifier.told if text[4:6] in done]
        assert contents(cut) == contents(tmp_path / "whole")
    verifier, again = Words(), Scripted(bad)
    run(tmp_path / "whole", of, again, build_episodes(verifier, 3, "words"))
    assert (again.calls, verifier.told) == (0, [])


@given(script=scripts, limit=st.integers(1, 3), cut=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_progress_counts_attempts_that_were_made_and_ends_complete(
    script: Script, limit: int, cut: int
) -> None:
    """What an episode that ended no longer needs leaves the total."""
    of, episodes = of_problems(3), build_episodes(Words(), limit, "words")
    seen: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(KeyboardInterrupt):
            run(Path(folder), of, Scripted(script, fail_after=cut), episodes)
        responses = run(
            Path(folder), of, Scripted(script), episodes,
            progress=lambda done, total, *_, **__: seen.append((done, total)),
        )  # fmt: skip
        made = sum(1 + len(r.attempts) for r in by_index(responses, of).values())
    assert seen[-1] == (made, made)
    dones, totals = zip(*seen, strict=True)
    assert list(dones) == sorted(dones)
    assert list(totals) == sorted(totals, reverse=True)


def test_an_attempt_that_nobody_needs_is_not_asked_for(tmp_path: Path) -> None:
    of = of_problems(2)
    script = {(p.id, index): ["good"] for p in of for index in range(-1, 3)}
    sampler, episodes = Scripted(script), build_episodes(Words(), 3, "words")
    run(tmp_path, of, sampler, episodes)
    assert sampler.calls == 1
    assert not [c for c in chunks_in(tmp_path, of, PHASES, episodes=episodes) if c.list_missing()]


def test_each_attempt_has_a_seed_of_its_own(tmp_path: Path) -> None:
    of = of_problems(1)
    script = {("p0", index): ["bad", "bad", "bad"] for index in range(-1, 3)}
    episodes = build_episodes(Words(), 3, "words")
    run(tmp_path, of, Scripted(script), episodes)
    [chunk] = chunks_in(tmp_path, of, PHASES, episodes=episodes)
    lines = [line for phase in PHASES for line in read_part(chunk.find_path(phase))]
    responses = [response for line in lines for response in line["responses"]]
    seeds = [seed for index, seed, *_ in responses if index >= 0]
    assert len(set(seeds)) == len(seeds) == 9


def test_a_sampler_that_does_not_listen_is_named(tmp_path: Path) -> None:
    of = of_problems(1)
    script = {("p0", index): ["bad", "bad"] for index in range(-1, 3)}
    with pytest.raises(PluginError, match=r"attempt 2 at problem p0 on the problem's prompt alone"):
        run(tmp_path, of, Scripted(script, deaf=True), build_episodes(Words(), 2, "words"))
    assert not parts_in(tmp_path), "nothing of it is stored"


class Mute:
    """A verifier without feedback."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("fail") for _ in responses]


class Raising(Mute):
    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        raise RuntimeError("lost")


class Empty(Mute):
    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        return ["" for _ in responses]


class Short(Mute):
    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        return [None]


def test_episodes_need_a_verifier_that_gives_feedback() -> None:
    with pytest.raises(UserError, match="episodes of 3 attempts need a verifier with feed"):
        build_episodes(Mute(), 3, "mute")
    assert build_episodes(Mute(), 1, "mute").attempts == 1


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        (Raising(), "in feedback, verifier 'Raising' .* failed: RuntimeError: lost"),
        (Empty(), "must return a text or None for each of 2 responses"),
        (Short(), "must return a text or None for each of 2 responses in feedback; found 1"),
    ],
)
def test_wrong_feedback_is_the_verifiers_fault(verifier: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        build_episodes(verifier, 2, "v").feedback(["a", "b"], [1, 2])


# The real verifier


@pytest.fixture(scope="module")
def programs() -> Iterator[ProgramTests]:
    tried = probe_tiers()
    if {found.tier for found in tried} == {found.tier for found in tried if not found.holds}:
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    with ProgramTests(workers=1, limits={"cpu_s": 1, "memory_bytes": 256 << 20}) as made:
        yield made


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


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


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
GOOD = fenced("print(2 * int(input()))")
#: Passes both public tests and fails the hidden one.
LAZY = fenced("print({1: 2, 3: 6}[int(input())])")


def test_no_hidden_test_is_ever_shown(programs: ProgramTests, tmp_path: Path) -> None:
    """Programs that look for the tests in every way tell the model nothing of the hidden one."""
    of = [Problem(f"p{i}", "Double it. ", DOUBLE) for i in range(len(WRONG))]
    script = {
        (f"p{i}", index): [fenced(program), "no program", fenced(program)]
        for i, program in enumerate(WRONG)
        for index in range(-1, 3)
    }
    sampler, episodes = Scripted(script), build_episodes(programs, 3, "program_tests")
    responses = run(tmp_path / "store", of, sampler, episodes)
    write_responses(tmp_path / "r", responses, of, programs, extra={}, episodes=episodes)
    later = [request for request in sampler.requested if request.attempts]
    assert len(later) == len(WRONG) * 4 * 2
    for request in later:
        told = request.attempts[-1].feedback
        assert SECRET_IN not in request.text
        assert SECRET_OUT not in request.text
        assert len(told) < 2000
        assert told.endswith("in one fenced Python block.")
    reasons = [j.verdict.reason for _, judged in read_judged(tmp_path / "r") for j in judged]
    assert not [reason for reason in reasons if SECRET_IN in reason or SECRET_OUT in reason]


def test_hidden_tests_never_decide_whether_an_episode_goes_on(
    programs: ProgramTests, tmp_path: Path
) -> None:
    """Whatever the hidden tests are, the conversations are the same; the verdicts are not."""
    script = {
        ("p0", GREEDY): [LAZY],
        ("p0", 0): [fenced(WRONG[2]), LAZY],
        ("p0", 1): [fenced(WRONG[0]), fenced(WRONG[2]), GOOD],
        ("p0", 2): [GOOD],
    }
    seen, verdicts = [], []
    for hidden in (f"{SECRET_OUT}\n", "0\n", None):
        tests = DOUBLE["tests"][:2] + (
            [{"input": f"{SECRET_IN}\n", "output": hidden}] if hidden else []
        )
        of = [Problem("p0", "Double it. ", {**DOUBLE, "tests": tests})]
        sampler, episodes = Scripted(script), build_episodes(programs, 3, "program_tests")
        responses = run(tmp_path / "store", of, sampler, episodes)
        write_responses(tmp_path / "r", responses, of, programs, extra={}, episodes=episodes)
        seen.append(sampler.requested)
        judged = next(read_judged(tmp_path / "r"))[1]
        verdicts.append([j.verdict.passed for j in judged])
        assert [len(j.response.attempts) for j in judged] == [0, 1, 2, 0]
    assert seen[0] == seen[1] == seen[2] != [], "other golds: nothing was reused"
    assert verdicts == [[False, False, True, True], [False] * 4, [True] * 4]


def test_hidden_tests_are_not_even_run(
    programs: ProgramTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    real = Sandbox.stream

    def watched(self: Sandbox, items: Any, **options: Any) -> Any:
        def passing() -> Any:
            for program, tests in items:
                ran.extend(test.input for test in tests)
                yield program, tests

        return real(self, passing(), **options)

    monkeypatch.setattr(Sandbox, "stream", watched)
    assert programs.feedback([GOOD], [DOUBLE]) == [None]
    assert ran == ["1\n", "3\n"]
    programs.verify([GOOD], [DOUBLE])
    assert ran[2:] == ["1\n", "3\n", f"{SECRET_IN}\n"]


def test_packed_hidden_tests_are_not_decoded_between_attempts(programs: ProgramTests) -> None:
    """They are for the verdict alone, where one that cannot be read is an error, never a pass."""
    gold = {**DOUBLE, "tests": DOUBLE["tests"][:2], "hidden": "cannot be decoded"}
    told = programs.feedback([GOOD, fenced("print(5)")], [gold, gold])
    assert told[0] is None
    assert told[1] is not None
    with pytest.raises(UserError, match="hidden: the tests cannot be read"):
        programs.verify([GOOD], [gold])
    assert "hidden: the tests cannot be read" in programs.check_gold(gold)
    unseen = {**gold, "tests": [], "public": 0}
    assert programs.feedback([GOOD], [unseen]) == [None]
    with pytest.raises(UserError, match="there are no tests"):
        programs.feedback([GOOD], [{**unseen, "hidden": None}])


@pytest.mark.parametrize(
    ("response", "parts"),
    [
        (GOOD, None),
        (LAZY, None),
        (
            fenced("n = int(input())\nprint(2 if n == 1 else 7)"),
            [
                "failed public test 2 of 2: wrong answer.\nInput:\n3\nExpected output:\n6\n"
                "Your output:\n7\nWrite the whole"
            ],
        ),
        (fenced("print('x' * 5000)"), ["xxx … (cut)\nWrite the whole"]),
        (fenced("print(1 / 0)"), ["test 1 of 2: runtime error.", "Error:\n", "ZeroDivisionError"]),
        (fenced("def f(:"), ["compile error", "SyntaxError"]),
        (fenced("while True: pass"), ["time limit.", "Stopped:\n"]),
        ("I cannot.", ["holds no complete fenced Python program.\nWrite the whole"]),
        ("```python\nprint(", ["holds no complete fenced Python program.\nWrite the whole"]),
    ],
)
def test_what_the_model_is_told(
    programs: ProgramTests, response: str, parts: list[str] | None
) -> None:
    (told,) = programs.feedback([response], [DOUBLE])
    if parts is None:
        assert told is None
    else:
        assert told is not None
        assert [part for part in parts if part not in told] == []
        assert len(told) < 2000


def test_a_function_is_told_its_arguments_and_its_value(programs: ProgramTests) -> None:
    gold = {
        "kind": "function",
        "function": "scale",
        "tests": [{"input": "[1, 2]\n3", "output": "[3, 6]"}, {"input": "[9]\n9", "output": "[0]"}],
        "public": 1,
    }
    (told,) = programs.feedback([fenced("def scale(a, n):\n    return a * n")], [gold])
    assert told is not None
    assert "Arguments:\n[1, 2]\n3\nExpected value:\n[3, 6]\nYour value:\n[1, 2, 1, 2, 1, 2]" in told


def test_without_public_tests_a_program_ends_the_episode_and_no_program_does_not(
    programs: ProgramTests,
) -> None:
    gold = {**DOUBLE, "public": 0}
    told = programs.feedback([fenced("raise SystemExit(3)"), "nothing"], [gold, gold])
    assert told[0] is None
    assert told[1] is not None


def test_a_bad_gold_is_refused_by_its_check(programs: ProgramTests) -> None:
    assert programs.check_gold(DOUBLE) == ""
    assert "there are no tests" in programs.check_gold({**DOUBLE, "tests": [], "public": 0})
    assert "unknown field 'hiden'" in programs.check_gold({**DOUBLE, "hiden": "x"})


def test_the_sandbox_describes_itself(programs: ProgramTests) -> None:
    described = programs.describe()
    assert described["sandbox_tier"] in ("namespaces", "landlock")
    assert described["limits"]["cpu_s"] == 1
    assert described["compat"] == "true"
