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
    from gapft_harness.analysis.estimate import Estimate
    from gapft_harness.engine.step import Step
    from gapft_harness.interactive.functions import compare
    from gapft_harness.interactive.runs import open_run
    from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
    from gapft_harness.lm_eval_bridge.samplers.text import LmEvalSampler
    from gapft_harness.outcomes.samples import Sample
    from gapft_harness.presentation.content import Column, Row, Table
    from gapft_harness.recipe.conditions import Condition
    from gapft_harness.recipe.recipe import Recipe
    from gapft_harness.recipe.sections import RecipeSection
    from gapft_harness.report.findings.computation import Findings
    from gapft_harness.report.reading.columns import read_columns
    from gapft_harness.report.reading.inputs import ReportInputs
    from gapft_harness.run_directory import layout
    from gapft_harness.run_directory.directory import RunDirectory
    from gapft_harness.run_directory.tables import read_examples, read_judged
    from gapft_harness.sandbox import Limits, Program, Sandbox, Test
    from gapft_harness.stages.experiment.protocol import Experiment
    from gapft_harness.stages.experiment.view import View
    from gapft_harness.training.lora import train as train_lora
    from gapft_harness.verification.pool import WorkerPool
    from gapft_harness.verification.programs import last_program

    ReportFindings = Findings

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
    "Recipe",  # the recipe of a run
    "Condition",  # the settings of a condition
    "RunDirectory",  # a run on disk: path, recipe, task, file()
    "View",  # a run as an experiment sees it: recipe, arms(), file(), step(), decode(), states()
    "Step",  # computes one file or folder of the run, with a key; View builds it
    "layout",  # the paths of a run directory: selection_path(arm), decisions_path(arm), ...
    "read_examples",  # reads the training set of an arm
    "read_judged",  # reads responses.parquet or a table of decisions
    "read_columns",  # reads columns of a table as lists
    "ReportInputs",  # the content of a run, as the report read it
    "ReportFindings",  # the figures that the report computed
    "Table",  # rows under columns, for the page, results.json and a CSV file
    "Row",  # a row of a table: values by the keys of columns
    "Column",  # one quantity of a table: key, title, format
    "Estimate",  # a value with its interval, for a cell of a table
]

#: Names that load on first use: the module and the name in it, or a module alone.
_LAZY_NAMES = {
    "Estimate": "gapft_harness.analysis.estimate:Estimate",
    "Step": "gapft_harness.engine.step:Step",
    "compare": "gapft_harness.interactive.functions:compare",
    "open_run": "gapft_harness.interactive.runs:open_run",
    "HfSampler": "gapft_harness.lm_eval_bridge.samplers.hf:HfSampler",
    "Retokenizer": "gapft_harness.lm_eval_bridge.samplers.retokenizer:Retokenizer",
    "LmEvalSampler": "gapft_harness.lm_eval_bridge.samplers.text:LmEvalSampler",
    "Sample": "gapft_harness.outcomes.samples:Sample",
    "Column": "gapft_harness.presentation.content:Column",
    "Row": "gapft_harness.presentation.content:Row",
    "Table": "gapft_harness.presentation.content:Table",
    "Condition": "gapft_harness.recipe.conditions:Condition",
    "Recipe": "gapft_harness.recipe.recipe:Recipe",
    "RecipeSection": "gapft_harness.recipe.sections:RecipeSection",
    "ReportFindings": "gapft_harness.report.findings.computation:Findings",
    "read_columns": "gapft_harness.report.reading.columns:read_columns",
    "ReportInputs": "gapft_harness.report.reading.inputs:ReportInputs",
    "RunDirectory": "gapft_harness.run_directory.directory:RunDirectory",
    "layout": "gapft_harness.run_directory.layout:",
    "read_examples": "gapft_harness.run_directory.tables:read_examples",
    "read_judged": "gapft_harness.run_directory.tables:read_judged",
    "Limits": "gapft_harness.sandbox:Limits",
    "Program": "gapft_harness.sandbox:Program",
    "Sandbox": "gapft_harness.sandbox:Sandbox",
    "Test": "gapft_harness.sandbox:Test",
    "Experiment": "gapft_harness.stages.experiment.protocol:Experiment",
    "View": "gapft_harness.stages.experiment.view:View",
    "train_lora": "gapft_harness.training.lora:train",
    "WorkerPool": "gapft_harness.verification.pool:WorkerPool",
    "last_program": "gapft_harness.verification.programs:last_program",
    "load_verifier": "gapft_harness:load_verifier",
}

if not TYPE_CHECKING:  # a type checker knows only the names above

    def __getattr__(name: str) -> object:
        if name not in _LAZY_NAMES:
            raise AttributeError(
                f"gapft_harness.api has no {name!r}; {did_you_mean(name, __all__)}"
            )
        return pkgutil.resolve_name(_LAZY_NAMES[name])
