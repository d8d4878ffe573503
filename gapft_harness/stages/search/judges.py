"""The judges of ``gapft verify``: the run's own, and those of audits that are judged otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.facts import ImportFacts, Manifest
from gapft_harness.stages.differences import Differences
from gapft_harness.stages.search.rejudging import Rejudge, judging


@dataclass(frozen=True, slots=True)
class Judges:
    """Judges each table by the verifier of its task.

    Attributes:
        own: of the run's task.
        audits: of further audits by name, those that are judged by another verifier or rule.
    """

    own: Rejudge
    audits: Mapping[str, Rejudge]

    def check(
        self, run: RunDirectory, manifest: Manifest, relative: str, split: str
    ) -> Iterable[str]:
        """As ``Rejudge.check``."""
        judge = self.audits.get(layout.further(split), self.own)
        return judge.check(run, manifest, relative, split)


@contextlib.contextmanager
def judges(manifest: Manifest, plugins: Plugins, found: Differences) -> Iterator[Judges]:
    """Gives the run's judges; each says at the end what it judged again and what not.

    Raises:
        UserError: as ``judging``.
    """
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(judging(manifest, plugins, found))
        audits = {}
        for name, audit in manifest.get("audits", {}).items():
            keys = ("verifier", "verifier_params")
            if any(audit["task"].get(key) != manifest["task"].get(key) for key in keys):
                asked: Manifest = {**manifest, "task": audit["task"]}
                audits[name] = stack.enter_context(judging(asked, plugins, found))
        yield Judges(own, audits)
    taken = {table: lines for of in (own, *audits.values()) for table, lines in of.taken.items()}
    for split, facts in manifest.get("imported", {}).items():
        found.checked.append(_imported(split, facts, taken.get(layout.responses(split))))


def _imported(split: str, facts: ImportFacts, differing: list[str] | None) -> str:
    """Where a split's responses came from, and whose their verdicts are."""
    files = ", ".join(f"{of['path']} (sha256 {of['sha256'][:12]})" for of in facts["files"])
    line = f"{split}: its {facts['responses']} responses were imported from {files}"
    if facts["verdicts"] != "file":
        return f"{line}; their verdicts are the task's verifier's, judged when they were imported"
    line += f"; their verdicts are those of the files ({facts['told_by']}), not this verifier's"
    if differing is None:
        return line
    again = f"{line}: judged again, {len(differing)} of them differ"
    return f"{again}, the first: {differing[0]}" if differing else again
