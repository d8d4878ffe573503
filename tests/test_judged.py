"""Stored verdicts: which changes cause a new judgement."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Verdict
from gapft_harness.hooks.manager import _load_cached
from gapft_harness.hooks.registration import Registration
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.generation.chunks import Chunk
from gapft_harness.stages.generation.episodes import build_episodes
from gapft_harness.stages.generation.made_from import describe_code
from gapft_harness.stages.generation.sealing import write_responses
from gapft_harness.stages.generation.stored_files import (
    StoredResponses,
    build_file,
    read_head,
    read_part,
)
from gapft_harness.stages.generation.verdicts import ChunkJudge, judge_chunks, place_verdicts
from gapft_harness.stages.search.stage import search_split as search_split
from gapft_harness.stages.verify.run import verify
from gapft_harness.store.digests import Digests
from tests.generated import generate_missing, place_chunks
from tests.kit.command import gapft
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.scripted import (
    K,
    PrefixVerifier,
    ScriptedSampler,
    build_phases,
    build_problems,
    build_recipe,
)

SEARCH = {"k": 4, "chunk": 8}
POOL = 24

#: Verdicts depend on the end of the response, on parameters and on files beside the plugin:
#: ``rules`` is an edition that the verifier reports; texts in ``slow`` time out.
_VERIFIER = '''
import json
import pathlib

from gapft_harness.api import Verdict, hookimpl

HERE = pathlib.Path(__file__).parent


def lines(name):
    return (HERE / name).read_text().splitlines() if (HERE / name).exists() else []


class Counting:
    """Passes what contains the gold; logs every text that it is given; reads the last word."""

    def __init__(self, word="", names=None):
        self._word = word
        self._extra = pathlib.Path(names).read_text() if names else ""

    def verify(self, responses, golds):
        if (HERE / "stop").exists() and lines("judged.log"):
            raise KeyboardInterrupt
        with (HERE / "judged.log").open("a") as file:
            file.writelines(json.dumps(text) + "\\n" for text in responses)
        slow, fickle = lines("slow"), lines("fickle")
        if fickle:
            (HERE / "fickle").write_text("\\n".join(fickle[1:]))
        return [
            Verdict("timeout", "busy") if any(text.endswith(end) for end in slow)
            else Verdict("pass") if gold in text and self._word in text and fickle[:1] != ["-"]
            else Verdict("fail", "no " + gold + self._extra)
            for text, gold in zip(responses, golds, strict=True)
        ]

    def answer(self, text):
        return text.split()[-1]

    def describe(self):
        return {"rules": lines("rules")}


@hookimpl
def register_verifiers(register):
    register("counting", Counting)
'''


@dataclass(frozen=True)
class JudgedLetters(LettersTask):
    """A task with distinct responses and a verifier that logs the judged texts."""

    @property
    def plugins(self) -> list[str]:
        """The files of the sampler and of the verifier."""
        return [*super().plugins, str(self.folder / "verifier.py")]

    def search(self, name: str, **keys: Any) -> RunDirectory:
        """Search the pool of a run."""
        return self.run(name, **{"search": SEARCH, "verifier": {"name": "counting"}, **keys})

    def take_judged(self) -> list[str]:
        """Return the texts that were judged since the last call."""
        log = self.folder / "judged.log"
        texts = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return texts

    def list_parts(self) -> list[Path]:
        """The files of verdicts."""
        return sorted((self.folder / ".store/judge").glob("*/*.jsonl"))


@pytest.fixture
def task(tmp_path: Path) -> JudgedLetters:
    letters_task, plugin = write_letters_task(tmp_path), tmp_path / "plugin.py"
    text, old = plugin.read_text(), "        return Generation(text,"
    assert old in text
    own = """
        text += " " + "".join(filter(str.isdigit, prompt)) + f".{index}"
"""
    plugin.write_text(text.replace(old, own + old))
    (tmp_path / "verifier.py").write_text(_VERIFIER)
    return JudgedLetters(letters_task.folder)


def read_table(run: RunDirectory, split: str = "pool") -> Any:
    """Read a table's rows and its facts, without the keys of their origin."""
    path = run.path / f"{split}/responses.parquet"
    facts = read_facts(path)
    for key in ("stored", "source"):
        del facts[key]
    return list(read_judged(path)), facts


def parse_index(text: str) -> int:
    return int(text.rpartition(".")[2])


def test_second_run_reuses_verdicts(task: JudgedLetters) -> None:
    first = task.search("first")
    assert len(task.take_judged()) == POOL * 5
    second = task.search("second", seeds=[17], conditions=["gapft"])
    assert task.take_judged() == []
    assert read_table(second) == read_table(first)
    assert {row.answer for _, rows in read_table(first)[0] for row in rows} != {None}


def test_more_samples_judge_only_new_ones(task: JudgedLetters, tmp_path: Path) -> None:
    task.search("few", search={**SEARCH, "k": 8})
    task.take_judged()
    more = task.search("more", search={**SEARCH, "k": 16})
    new = task.take_judged()
    assert len(new) == POOL * 8
    assert {parse_index(text) for text in new} == set(range(8, 16))
    shutil.rmtree(tmp_path / ".store")
    fresh = task.search("fresh", search={**SEARCH, "k": 16})
    assert read_table(more) == read_table(fresh)
    assert len(task.take_judged()) == POOL * 17


def append_to(name: str, content: str) -> Callable[[JudgedLetters], dict[str, Any]]:
    """Return a change that appends to a file beside the plugins."""

    def change(task: JudgedLetters) -> dict[str, Any]:
        with (task.folder / name).open("a") as file:
            file.write(content)
        return {}

    return change


def change_golds(task: JudgedLetters) -> dict[str, Any]:
    path = task.folder / "tasks/letters.yaml"
    old = 'doc_to_target: "{{answer}}"'
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, 'doc_to_target: "{{answer}}."'))
    return {}


CHANGES: list[tuple[str, Callable[[JudgedLetters], dict[str, Any]], int]] = [
    ("nothing", lambda task: {}, 0),
    ("its file", append_to("verifier.py", "\n# edited\n"), POOL * 5),
    ("a parameter", lambda task: {"word": "so"}, POOL * 5),
    ("a file that a parameter names", append_to("names.txt", " at all"), POOL * 5),
    ("what it reports of its rules", append_to("rules", "2"), POOL * 5),
    ("golds", change_golds, POOL * 5),
    ("another file beside it", append_to("unrelated.txt", "!"), 0),
]


@pytest.mark.parametrize(("change", "new"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_changed_verifier_inputs_judge_again(
    task: JudgedLetters, change: Callable[[JudgedLetters], dict[str, Any]], new: int
) -> None:
    (task.folder / "names.txt").write_text("")
    params = {"names": str(task.folder / "names.txt")}
    task.search("first", verifier={"name": "counting", "params": params})
    task.take_judged()
    more = change(task)
    _load_cached.cache_clear()  # as in another process
    second = task.search("second", verifier={"name": "counting", "params": {**params, **more}})
    assert len(task.take_judged()) == new
    assert not [call for call in task.log("second") if "id" in call], "no response is generated"
    rows = read_table(second)
    for part in task.list_parts():
        part.unlink()
    fresh = task.search("fresh", verifier={"name": "counting", "params": {**params, **more}})
    assert read_table(fresh) == rows


def test_resumed_judging_gives_same_verdicts(task: JudgedLetters, tmp_path: Path) -> None:
    undisturbed = task.search("undisturbed")
    expected = Counter(task.take_judged())
    shutil.rmtree(tmp_path / ".store")
    (stopping := tmp_path / "stop").touch()
    with pytest.raises(KeyboardInterrupt):
        task.search("run")
    assert 0 < len(task.list_parts()) < 6
    stopping.unlink()
    continued = task.search("run")
    assert Counter(task.take_judged()) == expected, "each response was judged once"
    assert read_table(continued) == read_table(undisturbed)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_judge_their_own_chunks(task: JudgedLetters, workers: int) -> None:
    alone = task.search("run")
    expected, seen = task.take_judged(), read_table(alone)
    shutil.rmtree(alone.path)
    shutil.rmtree(task.folder / ".store")
    run = RunDirectory.create_or_open(alone.path, alone.recipe)
    shares = []
    for number in range(workers):
        facts = search_split(
            str(run.path), "pool", task.plugins, [str(task.folder / "tasks")],
            share=(number, workers), recipe=alone.recipe.model_dump(mode="json"),
        )  # fmt: skip
        assert [*facts] == ["foreseen"]
        shares.append(set(task.take_judged()))
    assert all(shares)
    assert sum(map(len, shares)) == len(set.union(*shares)) == len(expected)
    together = task.search("run")
    assert task.take_judged() == []
    assert read_table(together) == seen


def test_rejects_edited_verdict_file(task: JudgedLetters) -> None:
    task.search("first")
    task.take_judged()
    path = task.list_parts()[0]
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"fail"', '"pass"', 1))
    with pytest.raises(UserError, match=path.name):
        task.search("second")
    path.unlink()
    task.search("second")
    assert 0 < len(task.take_judged()) < POOL * 5, "only one chunk and phase"


def test_verify_detects_forged_verdict_file(task: JudgedLetters) -> None:
    task.search("first")
    path = next(path for path in task.list_parts() if ".greedy." in path.name)
    records = [dict(record) for record in read_part(path)]
    forged = records[0]["problem_id"]
    records[0]["judged"] = [[GREEDY, "pass", "", records[0]["judged"][0][3]]]
    run = read_head(path).run
    path.chmod(0o644)
    path.write_bytes(build_file(records, run))
    second = task.search("second")
    task.take_judged()
    verification = verify(second.path, task.plugins)
    assert len(task.take_judged()) == POOL * 5, "verify judges again"
    assert any(forged in line for line in verification.differences)


def test_timeouts_count_only_in_their_run(task: JudgedLetters) -> None:
    (task.folder / "slow").write_text(".2\n")
    first = task.search("first")
    task.take_judged()
    facts = first.manifest()["verdict_counts"]["pool"]
    assert facts["timeout"] == POOL
    (task.folder / "slow").unlink()
    (first.path / "pool/responses.parquet").unlink()
    (first.path / "manifest.json").unlink()
    assert read_table(task.search("first"))[1]["verdicts"]["timeout"] == POOL, (
        "the run keeps its own verdicts"
    )
    assert task.take_judged() == []
    second = task.search("second")
    assert {parse_index(text) for text in task.take_judged()} == {2}
    assert "timeout" not in second.manifest()["verdict_counts"]["pool"]


def test_repeated_executions_are_stored(task: JudgedLetters) -> None:
    keys = {"episode": {"executions": 3}}
    (task.folder / "fickle").write_text("+\n-\n+\n" * 50)
    first = task.search("first", **keys)
    assert len(task.take_judged()) == POOL * (4 + 3)
    second = task.search("second", **keys)
    assert task.take_judged() == []
    assert second.manifest()["executions"] == first.manifest()["executions"]
    assert read_table(second) == read_table(first)
    task.search("once")
    assert {parse_index(text) for text in task.take_judged()} == {GREEDY}, (
        "samples are judged once anyway"
    )


def test_stored_greedy_timeouts_run_again(task: JudgedLetters) -> None:
    keys = {"episode": {"executions": 3}}
    (task.folder / "slow").write_text(".-1\n")
    task.search("first", **keys)
    task.take_judged()
    (task.folder / "slow").unlink()
    second = task.search("second", **keys)
    assert len(task.take_judged()) == POOL * 3
    assert second.manifest()["executions"]["pool"]["episodes"] == POOL


def test_verdicts_are_listed_and_removed_with_their_run(task: JudgedLetters) -> None:
    runs = task.folder / "runs"
    runs.mkdir()
    task.search("r0", at="runs/r0")
    task.search("r1", at="runs/r1", verifier={"name": "counting", "params": {"word": "so"}})
    listed = gapft("store", runs).stdout
    assert listed.count("counting") == 4, "greedy decodes and samples, of two verifiers"
    shutil.rmtree(runs / "r1")
    task.take_judged()
    done = gapft("store", runs, "--prune", "--yes")
    assert done.returncode == 0, done.stderr
    task.search("r2", at="runs/r2")
    assert task.take_judged() == []
    task.search("r3", at="runs/r3", verifier={"name": "counting", "params": {"word": "so"}})
    assert len(task.take_judged()) == POOL * 5


class WaveringVerifier(PrefixVerifier):
    """Returns another verdict and feedback for some texts on the second call."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: Counter[tuple[str, str]] = Counter()

    def _is_second(self, kind: str, text: str, every: int) -> bool:
        self._calls[kind, text] += 1
        return self._calls[kind, text] == 2 and int(text.split()[1][1]) % every == 0

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        """See the class."""
        return [
            Verdict("fail", "again") if self._is_second("verdict", text, 3) else verdict
            for text, verdict in zip(responses, super().verify(responses, golds), strict=True)
        ]

    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        """See the class."""
        return [
            "other words" if self._is_second("feedback", text, 2) else feedback
            for text, feedback in zip(responses, super().feedback(responses, golds), strict=True)
        ]


def judge_responses(
    folder: Path, chunks: Sequence[Chunk], responses: StoredResponses, step: ChunkJudge
) -> list[Chunk]:
    """Judge the responses of chunks, and return the places of their verdicts."""
    places = []
    for chunk in chunks:
        heads = {phase: read_head(chunk.find_path(phase)) for phase in chunk.places}
        places.append(place_verdicts(chunk, heads, {}, step.executions))
    judge_chunks(places, responses, step, lambda done, total: None)
    return places


@pytest.mark.parametrize("executions", [1, 3])
def test_stored_verdicts_give_the_same_table(tmp_path: Path, executions: int) -> None:
    script = [[i % 2 == 1, *(i * k % 7 == 3 for k in range(K))] for i in range(7)]
    problems, phases = build_problems(script, "twice"), build_phases(build_recipe())
    generating, direct, judging = PrefixVerifier(), WaveringVerifier(), WaveringVerifier()
    episodes = build_episodes(generating, 2, "right")
    keys: dict[str, Any] = {"episodes": episodes, "verifier": generating}
    store = tmp_path / "store"
    responses = generate_missing(store, problems, phases, ScriptedSampler(script), **keys)
    facts = write_responses(
        tmp_path / "direct", responses, problems, direct, extra={}, executions=executions,
        episodes=build_episodes(direct, 2, "right"),
    )  # fmt: skip
    if executions > 1:
        assert facts["executions"]["verdicts_differ"]
        assert facts["executions"]["feedback_differs"]
    chunks = place_chunks(store, problems, phases, episodes=episodes)
    step = ChunkJudge(judging, build_episodes(judging, 2, "right"), executions, "run")
    for chunk in judge_responses(store, chunks, responses, step):
        for phase in phases:
            responses.add_verdicts(chunk.find_path(phase), "run")
    calls_before = len(judging.judged)
    again = write_responses(
        tmp_path / "stored", responses, problems, judging, extra={}, executions=executions,
        episodes=step.episodes,
    )  # fmt: skip
    assert again == facts
    assert (tmp_path / "stored").read_bytes() == (tmp_path / "direct").read_bytes()
    assert len(judging.judged) == calls_before, "no response was judged again"


def test_package_hash_includes_all_files(tmp_path: Path) -> None:
    home, digests = tmp_path / "package", Digests(tmp_path)
    home.mkdir()
    (home / "rules.py").write_text("1")
    entry = Registration(
        "verifier", "v", "package", PrefixVerifier, source_root=str(home), code_hash="of its module"
    )
    seen = [describe_code(entry, digests)]
    (home / "rules.pyc").write_text("compiled")
    assert describe_code(entry, digests) == seen[0]
    for name in ("rules.py", "answers.json"):
        (home / name).write_text("2")
        seen.append(describe_code(entry, digests))
        assert seen[-1] not in seen[:-1]
    assert describe_code(replace(entry, code_hash=""), digests) == "", (
        "bundled code has a version instead"
    )
