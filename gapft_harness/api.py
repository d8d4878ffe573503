"""All names that a plugin may import: ``from gapft_harness.api import hookimpl, Verdict``.

They are stable; the modules that define them may move. Importing this module loads neither torch
nor lm_eval: names that need them, and names that few plugins use, load on first use.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

from gapft_harness.core.errors import PoolTooSmallError, UserError, did_you_mean
from gapft_harness.core.records import (
    GREEDY,
    Adapter,
    Arm,
    Decoding,
    Evidence,
    Example,
    Gold,
    Pool,
    Problem,
    Response,
    Verdict,
)
from gapft_harness.core.streams import Stream
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.protocols import (
    Executor,
    Generated,
    Generation,
    Job,
    Request,
    Sampler,
    SamplerSettings,
    TrainingJob,
    beyond_context,
)
from gapft_harness.hooks.specs import Register, hookimpl

if TYPE_CHECKING:  # for type checkers: the names of the table below
    from gapft_harness import load_verifier
    from gapft_harness.core.golds import is_answer_alone as is_answer_alone
    from gapft_harness.core.records import SOURCE as SOURCE
    from gapft_harness.core.records import STATUSES as STATUSES
    from gapft_harness.core.records import State as State
    from gapft_harness.interactive.functions import compare
    from gapft_harness.interactive.runs import open_run
    from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
    from gapft_harness.lm_eval_bridge.samplers.text import LmEvalSampler
    from gapft_harness.outcomes.samples import Sample
    from gapft_harness.presentation.content import Column, Table
    from gapft_harness.presentation.content import Row as Row
    from gapft_harness.recipe.conditions import Condition as Condition
    from gapft_harness.recipe.conditions import conditions_of as conditions_of
    from gapft_harness.recipe.recipe import Recipe as Recipe
    from gapft_harness.recipe.sections import RecipeSection
    from gapft_harness.recipe.sections import Training as Training
    from gapft_harness.report.findings.computation import Findings
    from gapft_harness.report.part import Part
    from gapft_harness.report.reading.adapters import find_tables
    from gapft_harness.report.reading.adapters import read_decided as read_decided
    from gapft_harness.report.reading.adapters import stacked as stacked
    from gapft_harness.report.reading.answers import Answers as Answers
    from gapft_harness.report.reading.answers import answers_or_why as answers_or_why
    from gapft_harness.report.reading.audits import read_decisions as read_decisions
    from gapft_harness.report.reading.audits import read_samples as read_samples
    from gapft_harness.report.reading.columns import PASS as PASS
    from gapft_harness.report.reading.columns import read_columns as read_columns
    from gapft_harness.report.reading.inputs import ReportInputs as ReportInputs
    from gapft_harness.run_directory import layout
    from gapft_harness.run_directory.directory import CALIBRATION as CALIBRATION
    from gapft_harness.run_directory.directory import RunDirectory as RunDirectory
    from gapft_harness.run_directory.tables import read_examples, read_judged
    from gapft_harness.run_directory.tables import read_problems as read_problems
    from gapft_harness.run_directory.tables import read_states as read_states
    from gapft_harness.sandbox import Limits, Program, Sandbox, Test
    from gapft_harness.stages.experiment import Cost as Cost
    from gapft_harness.stages.experiment import Experiment, Step, View
    from gapft_harness.stages.experiment.comparable import OfAdapters as OfAdapters
    from gapft_harness.stages.experiment.comparable import find_no_backend as find_no_backend
    from gapft_harness.stages.experiment.comparable import require_conditions as require_conditions
    from gapft_harness.stages.experiment.comparable import (
        require_same_settings as require_same_settings,
    )
    from gapft_harness.stages.search.states import Window as Window
    from gapft_harness.training.groups import Group as Group
    from gapft_harness.training.groups import group_facts as group_facts
    from gapft_harness.training.groups import read_groups as read_groups
    from gapft_harness.training.lora import train as train_lora
    from gapft_harness.training.plan import budget as budget
    from gapft_harness.verification.judging import judge_once_each
    from gapft_harness.verification.pool import WorkerPool
    from gapft_harness.verification.programs import last_program

    ReportFindings = Findings
    decided_tables = find_tables

__all__ = [  # noqa: RUF022 - grouped by use, with descriptions
    # Every plugin
    "hookimpl",  # marks functions that register components
    "Register",  # the type of register in each hook
    "UserError",  # a mistake of the user: printed without a traceback, exit status 2
    # Notebooks, scripts and tests
    "open_run",  # opens a run: its problems, responses, states and arms
    "compare",  # compares two logs document by document, as gapft compare does
    "load_verifier",  # loads a bundled or installed verifier by its name
    # Records that plugins receive and return
    "Verdict",  # on a response: pass, fail, timeout or error, with a reason
    "Gold",  # the gold answer that a verifier compares with: any JSON value
    "Problem",  # one problem of a split: prompt, gold, the benchmark's record
    "Response",  # one response: text, token ids, how it ended, earlier attempts
    "Evidence",  # a problem of the pool: its state, and the verified response kept for it
    "Pool",  # the input of a selector: problems solved, recovered and missed
    "Example",  # one training example: exact token ids
    "Arm",  # a condition and a training seed
    "Adapter",  # a trained adapter to generate with
    "Decoding",  # how responses are generated
    "Stream",  # random numbers that depend only on (seed, purpose, id)
    "GREEDY",  # the index of the greedy response; samples are numbered from 0
    # Verifiers
    "judge_once_each",  # judges each distinct pair of response and gold once
    "remove_thoughts",  # removes <think> and similar blocks, as is done for verifiers
    "WorkerPool",  # a pool of worker processes for work that may hang: it can be killed
    "last_program",  # finds the last fenced program of a response
    "Sandbox",  # runs programs that a model wrote, confined
    "Program",  # a program for the sandbox
    "Test",  # an input and the expected output
    "Limits",  # limits of one test: time, memory, output
    # Selectors and response rules
    "PoolTooSmallError",  # a selector has too few candidates for n
    # Samplers
    "Sampler",  # the protocol of samplers: generate, describe, close
    "SamplerSettings",  # the settings of a recipe for its sampler
    "Request",  # a prompt, and the indices of the responses to generate
    "Generated",  # the answer to a request
    "Generation",  # one response in an answer
    "beyond_context",  # builds the answer to a prompt that exceeds the model's context
    "Retokenizer",  # converts texts to token ids, with the tokenizer of the model
    "LmEvalSampler",  # any lm-eval model; responses are texts
    "HfSampler",  # lm-eval's hf model, with exact token ids
    "weights_hash",  # the hash of an adapter's weights, for Sampler.describe
    # Trainers
    "TrainingJob",  # the description of one arm to train
    "train_lora",  # trains one arm as the bundled trainer does
    # Executors
    "Executor",  # the protocol of executors: run, close
    "Job",  # one unit of work
    # Log formats
    "Sample",  # what a reader yields: one response, with its scores
    # Experiments
    "Experiment",  # the base class of experiments: what they add to a run
    "RecipeSection",  # the base class of settings (pydantic)
    "View",  # a run as an experiment sees it: recipe, arms(), file(), decode(), states()
    "Step",  # computes one file or folder of the run from sealed files and settings
    "layout",  # the paths of a run directory: selection_path(arm), decisions_path(arm), ...
    "read_examples",  # reads the training set of an arm
    "read_judged",  # reads responses.parquet or a table of decisions
    "Part",  # the base class of an experiment's part of the report
    "Table",  # rows under columns, for the page, results.json and a CSV file
    "Column",  # one quantity of a table: key, title, format
]

#: Names that load on first use: the module and the name in it, or a module alone.
_LAZY_NAMES = {
    "load_verifier": "gapft_harness:load_verifier",
    "compare": "gapft_harness.interactive.functions:compare",
    "open_run": "gapft_harness.interactive.runs:open_run",
    "HfSampler": "gapft_harness.lm_eval_bridge.samplers.hf:HfSampler",
    "Retokenizer": "gapft_harness.lm_eval_bridge.samplers.retokenizer:Retokenizer",
    "LmEvalSampler": "gapft_harness.lm_eval_bridge.samplers.text:LmEvalSampler",
    "RecipeSection": "gapft_harness.recipe.sections:RecipeSection",
    "Part": "gapft_harness.report.part:Part",
    "Table": "gapft_harness.presentation.content:Table",
    "Column": "gapft_harness.presentation.content:Column",
    "Sample": "gapft_harness.outcomes.samples:Sample",
    "layout": "gapft_harness.run_directory.layout:",
    "read_examples": "gapft_harness.run_directory.tables:read_examples",
    "read_judged": "gapft_harness.run_directory.tables:read_judged",
    "Limits": "gapft_harness.sandbox:Limits",
    "Program": "gapft_harness.sandbox:Program",
    "Sandbox": "gapft_harness.sandbox:Sandbox",
    "Test": "gapft_harness.sandbox:Test",
    "Experiment": "gapft_harness.stages.experiment:Experiment",
    "Step": "gapft_harness.stages.experiment:Step",
    "View": "gapft_harness.stages.experiment:View",
    "train_lora": "gapft_harness.training.lora:train",
    "judge_once_each": "gapft_harness.verification.judging:judge_once_each",
    "WorkerPool": "gapft_harness.verification.pool:WorkerPool",
    "last_program": "gapft_harness.verification.programs:last_program",
}

#: Names that only the experiments of this package use. They are not stable.
_EXPERIMENTS_NAMES = {
    "is_answer_alone": "gapft_harness.core.golds:is_answer_alone",
    "SOURCE": "gapft_harness.core.records:SOURCE",
    "STATUSES": "gapft_harness.core.records:STATUSES",
    "State": "gapft_harness.core.records:State",
    "Condition": "gapft_harness.recipe.conditions:Condition",
    "conditions_of": "gapft_harness.recipe.conditions:conditions_of",
    "Recipe": "gapft_harness.recipe.recipe:Recipe",
    "Training": "gapft_harness.recipe.sections:Training",
    "ReportFindings": "gapft_harness.report.findings.computation:Findings",
    "Row": "gapft_harness.presentation.content:Row",
    "decided_tables": "gapft_harness.report.reading.adapters:find_tables",
    "read_decided": "gapft_harness.report.reading.adapters:read_decided",
    "stacked": "gapft_harness.report.reading.adapters:stacked",
    "Answers": "gapft_harness.report.reading.answers:Answers",
    "answers_or_why": "gapft_harness.report.reading.answers:answers_or_why",
    "read_decisions": "gapft_harness.report.reading.audits:read_decisions",
    "read_samples": "gapft_harness.report.reading.audits:read_samples",
    "PASS": "gapft_harness.report.reading.columns:PASS",
    "read_columns": "gapft_harness.report.reading.columns:read_columns",
    "ReportInputs": "gapft_harness.report.reading.inputs:ReportInputs",
    "CALIBRATION": "gapft_harness.run_directory.directory:CALIBRATION",
    "RunDirectory": "gapft_harness.run_directory.directory:RunDirectory",
    "read_problems": "gapft_harness.run_directory.tables:read_problems",
    "read_states": "gapft_harness.run_directory.tables:read_states",
    "Cost": "gapft_harness.stages.experiment:Cost",
    "OfAdapters": "gapft_harness.stages.experiment.comparable:OfAdapters",
    "find_no_backend": "gapft_harness.stages.experiment.comparable:find_no_backend",
    "require_conditions": "gapft_harness.stages.experiment.comparable:require_conditions",
    "require_same_settings": "gapft_harness.stages.experiment.comparable:require_same_settings",
    "Window": "gapft_harness.stages.search.states:Window",
    "Group": "gapft_harness.training.groups:Group",
    "group_facts": "gapft_harness.training.groups:group_facts",
    "read_groups": "gapft_harness.training.groups:read_groups",
    "budget": "gapft_harness.training.plan:budget",
}

if not TYPE_CHECKING:  # a type checker knows only the names above

    def __getattr__(name: str) -> object:
        place = _LAZY_NAMES.get(name) or _EXPERIMENTS_NAMES.get(name)
        if place is None:
            raise AttributeError(
                f"gapft_harness.api has no {name!r}; {did_you_mean(name, __all__)}"
            )
        return pkgutil.resolve_name(place)
