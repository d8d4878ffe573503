"""All that a plugin may import, in one place: ``from gapft_harness.api import hookimpl, Verdict``.

What stands here keeps its name; the modules behind it may move. Importing this module loads neither
torch nor lm_eval: parts that need them, and what few plugins use, load when they are asked for.
"""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.files import sha256
from gapft_harness.core.golds import gold_answer, gold_fault, is_answer_alone
from gapft_harness.core.identities import content_hash
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.processes import Closing
from gapft_harness.core.records import (
    FINISH_REASONS,
    GREEDY,
    SOURCE,
    STATUSES,
    Adapter,
    Arm,
    Decoding,
    Evidence,
    Example,
    Gold,
    Pool,
    Problem,
    Response,
    State,
    Verdict,
)
from gapft_harness.core.streams import Stream
from gapft_harness.core.text import read_lines, whole
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.hooks.protocols import (
    Executor,
    Generated,
    Generation,
    Job,
    RegisterExecutor,
    RegisterLogReader,
    RegisterReportSection,
    RegisterResponseRule,
    RegisterSampler,
    RegisterSelector,
    RegisterTrainer,
    RegisterVerifier,
    ReportGeneration,
    Request,
    Sampler,
    SamplerSettings,
    TrainingJob,
    beyond_context,
)
from gapft_harness.hooks.specs import hookimpl
from gapft_harness.hooks.tracking import (
    RegisterTracker,
    TrackedArm,
    Tracker,
)

if TYPE_CHECKING:  # what is loaded when it is asked for: __getattr__ reads its place here
    from gapft_harness.core.files import write_json
    from gapft_harness.executors.local import LocalExecutor
    from gapft_harness.executors.ray import RayExecutor
    from gapft_harness.hooks.protocols import RegisterExperiment
    from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
    from gapft_harness.lm_eval_bridge.samplers.hf import (
        check_arguments as check_hf_arguments,
    )
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import (
        Retokenizer,
        has_chat_template,
        prompt_lengths,
    )
    from gapft_harness.lm_eval_bridge.samplers.server.sampler import (
        ServerSampler,
        find_model,
        renders_chats,
    )
    from gapft_harness.lm_eval_bridge.samplers.sglang import SglangSampler
    from gapft_harness.lm_eval_bridge.samplers.text import LmEvalSampler, dummy_sampler
    from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process as prepare_vllm
    from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler
    from gapft_harness.lm_eval_bridge.stock import StockTask
    from gapft_harness.recipe.conditions import Condition, conditions_of
    from gapft_harness.recipe.recipe import Recipe
    from gapft_harness.recipe.sections import RecipeSection, Training
    from gapft_harness.report.figures import style
    from gapft_harness.report.figures.contrasts import forest, forests
    from gapft_harness.report.findings.whole import Contrast
    from gapft_harness.report.findings.whole import Findings as ReportFindings
    from gapft_harness.report.frame import Column, Frame, Rows
    from gapft_harness.report.part import Figures, Opening, Part, Summary
    from gapft_harness.report.reading.adapters import SCALED, read_decided, stacked
    from gapft_harness.report.reading.adapters import tables as decided_tables
    from gapft_harness.report.reading.answers import Answers, answers_or_why
    from gapft_harness.report.reading.audits import read_decisions, read_samples
    from gapft_harness.report.reading.columns import PASS, codes, count_codes
    from gapft_harness.report.reading.columns import columns as read_columns
    from gapft_harness.report.reading.inputs import ReportInputs
    from gapft_harness.report.rendering import palette, wording
    from gapft_harness.report.rendering.blocks import (
        Block,
        Figure,
        Section,
        Stat,
        Table,
        Text,
    )
    from gapft_harness.report.rendering.wording import (
        condition_name,
        listed,
        percent,
        points,
        points_interval,
    )
    from gapft_harness.report.sections.other_rule import agreements, under_both
    from gapft_harness.run_directory import layout
    from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
    from gapft_harness.run_directory.tables import (
        read_examples,
        read_judged,
        read_problems,
        read_states,
    )
    from gapft_harness.sandbox import (
        Limits,
        Program,
        Result,
        Sandbox,
        Test,
    )
    from gapft_harness.stages.experiment import Cost, Experiment, Step, View
    from gapft_harness.stages.experiment.comparable import (
        OfAdapters,
        find_no_backend,
        find_own_settings,
        require_conditions,
        require_same_settings,
    )
    from gapft_harness.stages.search.states import Window
    from gapft_harness.training.groups import Group, group_facts, read_groups
    from gapft_harness.training.grpo import train_grpo
    from gapft_harness.training.lora import train as train_lora
    from gapft_harness.training.lora import train_together
    from gapft_harness.training.plan import budget
    from gapft_harness.verdicts.places import Log
    from gapft_harness.verdicts.sample_logs import LogRow
    from gapft_harness.verification.boxes import last_box
    from gapft_harness.verification.feedback import NO_PROGRAM, failure_feedback, without_paths
    from gapft_harness.verification.judging import once_each
    from gapft_harness.verification.math import compare as compare_math
    from gapft_harness.verification.math import prepare as prepare_math
    from gapft_harness.verification.packed_tests import MAX_DECODED_BYTES
    from gapft_harness.verification.pool import Outcome, WorkerPool
    from gapft_harness.verification.programs import (
        Suite,
        check_calls,
        importable,
        last_program,
        last_program_lcb,
        read_suite,
    )
    from gapft_harness.verification.written_math import tidy_answer

__all__ = [  # noqa: RUF022 - by use, each with what it is for
    # Every plugin
    "hookimpl",  # marks the functions that register something
    # Errors
    "UserError",  # a mistake in what the user gave: printed without a traceback, exit status 2
    "did_you_mean",  # ends such a message: the nearest known name, then all
    # Records that plugins receive and return
    "Verdict",  # of one response: pass, fail, timeout or error, with a reason
    "Gold",  # what a verifier compares with: any JSON value
    "Pool",  # what a selector chooses from: problems solved, recovered and missed
    "Evidence",  # a problem of the pool: its state and the verified response kept for it
    "Response",  # one response: text, token ids, how it ended, earlier attempts
    "Decoding",  # how responses are generated
    "Adapter",  # a trained adapter to generate with
    "Arm",  # a condition and a training seed
    "Example",  # one training example: exact token ids
    "Problem",  # one problem of a split: prompt, gold, the benchmark's record
    "Stream",  # randomness that depends on (seed, purpose, id) alone
    "GREEDY",  # the index of the greedy response; samples are numbered from 0
    "FINISH_REASONS",  # how a response can end
    # Verifiers
    "RegisterVerifier",  # the type of register in register_verifiers
    "once_each",  # judges equal pairs once
    "remove_thoughts",  # a response without <think> and its kin, as verifiers get it
    "last_box",  # the last \boxed{} of a response
    "WorkerPool",  # worker processes that can be killed, for work that may hang
    "Outcome",  # what became of one item of a WorkerPool
    "Closing",  # a base class: close() at the end of a with statement
    "tidy_answer",  # an answer on one line, without Markdown and its sentence's full stop
    "compare_math",  # two answers as mathematics (a function for a WorkerPool)
    "prepare_math",  # loads what compare_math needs (its setup)
    "StockTask",  # a stock lm-eval task that judges by its own metric
    # Programs in responses
    "Sandbox",  # runs programs that a model wrote
    "Program",  # a program as the sandbox takes it
    "Test",  # an input and what is expected
    "Limits",  # of one test: time, memory, output
    "Result",  # what became of a program
    "last_program",  # the last fenced program of a response
    "last_program_lcb",  # the same as LiveCodeBench's runner takes it
    "Suite",  # all tests of one problem
    "read_suite",  # reads a suite from a gold
    "check_calls",  # holds a suite's tests to what calls can be
    "importable",  # checks modules that programs may import
    "MAX_DECODED_BYTES",  # most bytes that packed tests may come to
    "failure_feedback",  # what a model is told of a public test that its program failed
    "NO_PROGRAM",  # what it is told of a response without a program
    "without_paths",  # takes this machine's folders out of a text
    # Selectors and response rules
    "RegisterSelector",  # the type of register in register_selectors
    "gold_answer",  # a gold answer as a class of problems, such as an option's letter
    "gold_fault",  # what keeps one from being that
    "is_answer_alone",  # whether a response says the gold answer and nothing else
    "RegisterResponseRule",  # the type of register in register_response_rules
    # Samplers
    "Sampler",  # what a factory gives: generate, describe, close
    "SamplerSettings",  # what a sampler is told of the recipe
    "RegisterSampler",  # the type of register in register_samplers
    "Request",  # a prompt and the responses wanted for it
    "Generated",  # the answer to a request
    "Generation",  # one response of it
    "ReportGeneration",  # called by it with responses finished and tokens generated so far
    "beyond_context",  # the answer to a prompt that does not fit the model's context
    "Retokenizer",  # token ids of texts, by the tokenizer of pretrained
    "prompt_lengths",  # of problems, by that tokenizer
    "LmEvalSampler",  # any lm-eval model, by its text
    "has_chat_template",  # whether that tokenizer has a chat template
    "dummy_sampler",  # lm-eval's dummy model
    "HfSampler",  # lm-eval's hf model, exact token ids
    "check_hf_arguments",  # what it refuses before anything is loaded
    "VllmSampler",  # lm-eval's vllm model, exact token ids
    "prepare_vllm",  # sets what vllm reads when it is imported; call it before VllmSampler
    "ServerSampler",  # an OpenAI-compatible server
    "renders_chats",  # whether its prompts are chats where the recipe does not say
    "find_model",  # refuses wrong arguments, and a server that lists no such model
    "SglangSampler",  # lm-eval's sglang model
    # Trainers and trackers
    "TrainingJob",  # one arm to train
    "RegisterTrainer",  # the type of register in register_trainers
    "train_grpo",  # trains one arm online, as the bundled trainer does
    "train_lora",  # trains one arm as the bundled trainer does
    "train_together",  # trains several arms on a base that is loaded once
    "Tracker",  # what a factory gives: log, finish
    "TrackedArm",  # what a tracker is told of an arm
    "RegisterTracker",  # the type of register in register_trackers
    # Executors
    "Executor",  # what a factory gives: run, close
    "Job",  # one unit of work
    "RegisterExecutor",  # the type of register in register_executors
    "LocalExecutor",  # worker processes on this machine
    "RayExecutor",  # Ray tasks
    # Reports
    "RegisterReportSection",  # the type of register in register_report_sections
    # Log readers
    "Log",  # what a reader gets: path
    "LogRow",  # what it yields, best made by LogRow.of: a document with its responses
    "RegisterLogReader",  # the type of register in register_log_readers
    # Texts and files
    "read_lines",  # a file's lines with their numbers; what is no UTF-8 is named by its line
    "parse_object",  # a JSON object of a text, or an error that names its place
    "whole",  # a JSON value in which every text can be written as UTF-8
    "sha256",  # of a file, in hex
    "content_hash",  # of a JSON value, in hex
]

__all__ += [  # noqa: RUF022 - experiments, and their part of the report
    "Experiment",  # what the hook's factory gives: what it adds to a run
    "Step",  # a pure function of sealed files and settings to one file or folder of the run
    "View",  # what it sees of a run: recipe, arms(), file(), decode(), states()
    "Cost",  # what it will take, for --dry-run
    "require_conditions",  # refuses names that are not conditions of the recipe
    "require_same_settings",  # refuses conditions that differ in more than their training sets
    "find_own_settings",  # the same as faults, also where another run chose the sets
    "find_no_backend",  # a fault where the backend replays responses
    "RegisterExperiment",  # the type of register in register_experiments
    "RecipeSection",  # the base class of its settings (pydantic)
    "Recipe",  # the recipe of a run
    "RunDirectory",  # a run on disk: path, recipe, sealed()
    "layout",  # the paths of a run directory: layout.selection(arm), layout.decisions(arm), ...
    "read_problems",  # of problems.parquet, with the prompts' token ids
    "read_judged",  # of responses.parquet or a table of decisions
    "read_examples",  # of an arm's training set
    "write_json",  # a JSON file, whole or absent
    "Part",  # what it adds to the report
    "ReportInputs",  # what the report read of a run
    "ReportFindings",  # what the report computed
    "Opening",  # a sentence at the top of the page
    "Summary",  # a line on the terminal
    "Section",  # a heading and the blocks under it
    "Block",  # what stands in it: one of these
    "Text",  # a paragraph
    "Stat",  # a number that stands out
    "Table",  # columns and rows of text
    "Column",  # one quantity of a declared table: key, meaning, value, title, how it is shown
    "Frame",  # rows under such columns: table(), csv() and entries() for results.json
    "Figure",  # a drawing by name, with a text for those who cannot see it
    "Figures",  # what Part.figures gives: names, each with a function that draws
    "condition_name",  # a condition as people read it
    "percent",  # a rate as people read it
    "points",  # a difference of rates in percentage points
    "points_interval",  # its interval
    "listed",  # words as a list in a sentence
    "wording",  # the module of these, with p values, spans, times
    "palette",  # the module of colours
    "Rows",  # of a CSV file; the first names the columns
    "Contrast",  # of two conditions: the difference, its interval, its parts by state
    "Condition",  # what a recipe says of one
    "conditions_of",  # the conditions of the recipe that a manifest keeps
    "Training",  # what a recipe says of it
    "budget",  # exposures, tokens and steps of a training set
    "State",  # G, S or U
    "SOURCE",  # the model before training, where a condition's name stands
    "CALIBRATION",  # the split that adapter scaling chooses by
    "STATUSES",  # of verdicts, in the order of their codes
    "PASS",  # the code of a verdict that passes
    "codes",  # the codes of verdicts
    "count_codes",  # how many of each status
    "read_decisions",  # the codes of a table of decisions, held to its problems
    "read_samples",  # of a table of samples, which of them passed
    "read_columns",  # of a sealed table, each as a list
    "read_states",  # of a table of states
    "Group",  # the responses that an online trainer drew for one prompt: rewards, tokens, masked
    "read_groups",  # those of an adapter's folder
    "group_facts",  # what they come to: how many are flat, tokens
    "under_both",  # the report's contrasts by the run's rule and by the other
    "agreements",  # responses under both rules, and those without an answer, by condition
    "style",  # what figures share: WIDTH, spread, legend_below, condition_rows, interval_row
    "forest",  # differences with their intervals, on axes
    "forests",  # a figure of them, in panels
    # on the audit's states by other samples, and on adapters as they were scaled
    "Window",  # a part of the samples
    "OfAdapters",  # a RecipeSection with the key adapters: trained or scaled
    "SCALED",  # a sentence for the report, where they are scaled
    "read_decided",  # by arm, what the trained model decided on the audit
    "decided_tables",  # where that stands
    "stacked",  # what a condition's arms have, by seed
    "Answers",  # what responses to the audit answer, as codes
    "answers_or_why",  # the same with the reason in place of an error
]


@cache
def _places() -> dict[str, tuple[str, str]]:
    """Of each name that is loaded when it is asked for: the module that has it, its name there."""
    body = ast.parse(Path(__file__).read_text("utf-8")).body
    (block,) = (node for node in body if isinstance(node, ast.If) and _is_for_types(node))
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


if not TYPE_CHECKING:  # a type checker knows the names above, and no other

    def __getattr__(name: str) -> object:
        if name not in _places():
            raise AttributeError(
                f"gapft_harness.api has no {name!r}; {did_you_mean(name, __all__)}"
            )
        module, there = _places()[name]
        found = importlib.import_module(module)
        if hasattr(found, there):
            return getattr(found, there)
        return importlib.import_module(f"{module}.{there}")
