"""The top of a study's page: its result in plain words, or what is missing."""

from __future__ import annotations

from gapft_harness.core.records import SOURCE
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Bullets, Stat, Stats, Text
from gapft_harness.report.rendering.wording import condition_name, points, points_interval
from gapft_harness.study.findings import Mean, StudyFindings


def opening(of: StudyFindings) -> list[Block]:
    """The mean over cells if there is one, else which cells are not whole; then remarks."""
    remarks = [Text(note, "note") for note in of.study.notes]
    if of.lacking:
        whole = len(of.cells)
        said = (
            f"{whole} of {len(of.collected)} cells are whole. The mean over cells is not given "
            "until all are; these are not:"
        )
        lines = [f"{name}: {'; '.join(lacks)}" for name, lacks in of.lacking.items()]
        return [Text(said, "warning"), Bullets(lines), *remarks]
    lead, reference = of.study.lead, of.study.reference
    against, gain = of.mean(lead, reference), of.mean(lead, SOURCE)
    assert against is not None
    assert gain is not None
    above = sum(cell.found.contrast(lead, reference).delta > 0 for cell in of.cells)
    resolved = sum(cell.found.contrast(lead, reference).interval.excludes_zero for cell in of.cells)
    count = len(of.cells)
    cells = f"{count} cells" if count > 1 else "1 cell"
    sentence = (
        f"Over {cells}, each counted the same, {condition_name(lead)} minus "
        f"{condition_name(reference)} is {_said(against)} points of Pass@1"
        f"{' at the same training budget' * against.matched}; "
        f"{wording.resolution(against.interval)}. Minus the source it is {_said(gain)} points. "
        f"{condition_name(lead)} is above "
        f"{condition_name(reference)} in {above} of {count}, with an interval that excludes zero "
        f"on either side in {resolved}. Brackets are 95% intervals."
    )
    stats = [
        _stat(f"{condition_name(lead)} against {condition_name(reference)}", against),
        _stat(f"{condition_name(lead)} against the source", gain),
        Stat("cells", str(count), f"{len(of.study.seeds)} seeds each"),
    ]
    return [Text(sentence, "lead"), Stats(stats), *remarks]


def _said(mean: Mean) -> str:
    return f"{points(mean.delta, 2)} {points_interval(mean.interval, 2)}"


def _stat(label: str, mean: Mean) -> Stat:
    return Stat(label, points(mean.delta, 2), f"points {points_interval(mean.interval, 2)}, mean")
