"""The law of tampering: verification names every damaged file, and no resumed run uses one.

Damages come from the files and facts of finished runs: ``tests.kit.tampering.tamper`` lists them.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.kit.records import RECORDS, read_records
from tests.kit.runs import BASES, BaseRun, RunAt
from tests.kit.tampering import FILE_DAMAGES, Damage, tamper

MACHINE = (
    r"(pretrained|tokenizer|revision|parameters|device|batch_size|versions|prompt_cache|threads)"
)
DESCRIPTIONS = r"(versions|stages|plugins|warnings|history)"

#: Damages that contradict no other record of a run, as patterns of kind and part, with the reason.
UNPROVABLE = {
    r"value: (\w+/responses|decisions/\S+)\.parquet (tokens_from|reasoning|reason|context_ids)": ""
    "an untrained response has only the hash of its file, its text and its ids",
    r"value: \w+/problems\.parquet (document|prompt_ids)": "the recorded inputs have a hash of id, "
    "prompt and gold",
    r"value: adapters/ARM/training_log\.jsonl N grad_norm": "measured",
    r"\w+, recorded: adapters/ARM/README\.md.*": "PEFT's card has no facts",
    r"value: adapters/ARM/updates\.jsonl N (loss|grad_norm|reward|entropy)": "measured",
    r"fact.*: adapters/ARM/adapter_config\.json base_model_name_or_path": "the base's name, beside "
    "its hash",
    r"fact of all arms: adapters/ARM/training\.json (end_token|base_model|base_revision|"
    r"attention implementation|versions \w+)": "the base's name and a token's text, beside hash "
    "and id; libraries and what follows from them are compared between arms only",
    rf"fact: run\.json {DESCRIPTIONS}.*": "of the machine, measured times, sentences",
    rf"fact: run\.json \S+ facts source {MACHINE}": "a description of the machine and the model's "
    "place, beside the model's hash",
    r"fact: run\.json \S+ facts source responses_sha256": "a file that is made from the logs",
    r"fact: run\.json \S+ facts seconds": "measured",
    r"fact: run\.json \S+ facts warnings.*": "sentences",
    r"fact: run\.json \S+ facts stored verdicts.*": "where the store has the verdicts",
    r"fact: run\.json \S+ facts imported (files|samples|left_out|verdict_field)": "what the logs "
    "have besides the responses; the key has the hashes of the logs",
    r"fact: run\.json task dropped.*": "notices, which decide nothing",
    r"fact: run\.json include_paths.*": "where the task is; its content has hashes",
    r"fact: run\.json report inputs_hash": "it then counts as not made",
}


#: A base whose verdicts verification does not make again, which it says: it runs no programs.
PROGRAMS = "demo-code"
VERDICTS = {
    r"verdict: decisions/\S+\.parquet",
    r"value: decisions/\S+\.parquet answer",
    r"fact: run\.json \S+ facts executions \w+",
}

#: Damages that verification does not find, although the recipe or another arm contradicts them:
#: of online training the reward's verifier, the sampler's arguments and the learning rates.
KNOWN_GAPS = {
    r"fact.*: adapters/ARM/training\.json reward \w+",
    r"value: adapters/ARM/updates\.jsonl N learning_rate",
}


@contextlib.contextmanager
def damaged(run: Path, damage: Damage) -> Iterator[None]:
    """Damage a run, then restore its files."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    folders = {path for path in run.rglob("*") if path.is_dir()}
    damage.apply(run)
    try:
        yield
    finally:
        for path in sorted(run.rglob("*"), reverse=True):  # files before their folders
            if path.is_dir() and path not in folders:
                path.rmdir()
            elif path.is_file() and path not in before:
                path.unlink()
        for path, content in before.items():
            if not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


def name(damage: Damage) -> str:
    return f"{damage.kind}: {damage.part}"


def is_forgery(damage: Damage) -> bool:
    """Return whether the new hash of the changed file is recorded, or it is the record itself."""
    return damage.kind not in FILE_DAMAGES


def is_unprovable(line: str, base: str = "letters") -> bool:
    patterns = {*UNPROVABLE, *KNOWN_GAPS, *(VERDICTS if base == PROGRAMS else ())}
    return any(re.fullmatch(pattern, line) for pattern in patterns)


def is_named(damage: Damage, lines: list[str]) -> bool:
    """Return whether there are lines, and they name every changed file."""
    return bool(lines) and all(any(entry in line for line in lines) for entry in damage.entries)


def find_missed(run: BaseRun, damages: Iterable[Damage]) -> list[str]:
    """Damage a run in each way, and describe the damages that verification does not name."""
    missed = []
    for damage in damages:
        with damaged(run.path, damage):
            lines = run.find_differences()
        if not is_named(damage, lines):
            missed.append(name(damage))
    return missed


def test_verify_names_damaged_files(run_at: RunAt) -> None:
    run = run_at("reported")
    assert run.find_differences() == []
    damages = [damage for damage in tamper(run.path) if damage.kind == "bit flipped"]
    assert find_missed(run, damages) == []
    assert run.find_differences() == []


def choose_forgeries(run: BaseRun, base: str = "letters") -> list[Damage]:
    """Choose a forgery of each kind and file, and of each section of the records.

    The choice is another one in each session: a failure names the forgery.
    """
    alike: dict[tuple[str, ...], list[Damage]] = {}
    for damage in tamper(run.path):
        if is_forgery(damage) and not is_unprovable(name(damage), base):
            file, *keys = damage.part.split(" ")
            section = keys[:1] if file == RECORDS else []
            alike.setdefault((damage.kind, file, *section), []).append(damage)
    return [random.choice(damages) for damages in alike.values()]


def test_verify_names_a_forgery_of_each_kind(run_at: RunAt) -> None:
    run = run_at("reported")
    kinds = {damage.kind: damage for damage in choose_forgeries(run)}
    assert find_missed(run, kinds.values()) == []


def take_kinds_in_turn(damages: Iterable[Damage]) -> list[Damage]:
    """Choose one damage of each file, of another kind than that of the file before it."""
    files: dict[str, list[Damage]] = {}
    for damage in damages:
        files.setdefault(damage.part, []).append(damage)
    return [kinds[number % len(kinds)] for number, kinds in enumerate(files.values())]


@pytest.mark.thorough
@pytest.mark.parametrize("base", BASES)
def test_verify_names_damages_that_no_earlier_base_has(run_at: RunAt, base: str) -> None:
    """A damage of each file, and a forgery of each kind and file."""
    earlier = [*BASES][: [*BASES].index(base)]
    known = {name(d) for other in earlier for d in tamper(run_at("reported", other).path)}
    run = run_at("reported", base)
    assert run.find_differences() == []
    damages = take_kinds_in_turn(d for d in tamper(run.path) if not is_forgery(d))
    chosen = [*damages, *choose_forgeries(run, base)]
    assert find_missed(run, (d for d in chosen if name(d) not in known)) == []


@pytest.mark.thorough
def test_verify_names_damaged_files_of_unfinished_run(run_at: RunAt) -> None:
    run = run_at("trained")
    assert run.find_differences() == []
    damages = [damage for damage in tamper(run.path) if damage.kind == "bit flipped"]
    assert find_missed(run, take_kinds_in_turn(damages)) == []


def test_resumed_run_uses_no_damaged_file(run_at: RunAt) -> None:
    """The first file of three folders; in the last snapshot one folder is no longer used."""
    folders: dict[str, Damage] = {}
    run = run_at("audited")
    for damage in tamper(run.path):
        if damage.kind == "bit flipped":
            folders.setdefault(damage.part.partition("/")[0], damage)
    check_resumed(run, [folders[folder] for folder in ("pool", "adapters", "decisions")])


@pytest.mark.thorough
def test_resumed_run_uses_no_damaged_file_of_any_folder(run_at: RunAt) -> None:
    """The last file of each."""
    run = run_at("audited")
    kinds = ("bit flipped", "deleted")
    damages = take_kinds_in_turn(d for d in tamper(run.path) if d.kind in kinds)
    check_resumed(run, {d.part.partition("/")[0]: d for d in damages}.values())


def check_resumed(run: BaseRun, damages: Iterable[Damage]) -> None:
    """The command fails and names the file, or makes the same file again."""
    for damage in damages:
        before = read_entries(run.path, damage)
        with damaged(run.path, damage):
            done = run.resume()
            if done.returncode:
                assert is_named(damage, done.stderr.splitlines()), (damage, done.stderr)
            else:
                assert read_entries(run.path, damage) == before, damage
                assert run.find_differences() == [], damage


def read_entries(run: Path, damage: Damage) -> dict[str, bytes]:
    """Read the files of a damage's entries; of ``run.json`` the recorded hashes."""
    if damage.entries == (RECORDS,):
        return {name: record["digest"].encode() for name, record in read_records(run).items()}
    paths = [path for entry in damage.entries for path in [run / entry, *(run / entry).rglob("*")]]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}
