"""All names that a plugin may import: ``from gapft_harness.api import hookimpl, Verdict``.

The names of the first list, ``PUBLIC_NAMES``, are stable; the modules that define them may move.
Importing this module loads neither torch nor lm_eval: names that need them, and names that few
plugins use, load on first use.
"""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.errors import PoolTooSmallError, UserError, did_you_mean
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
from gapft_harness.core.text import read_lines, replace_surrogates
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.protocols import (
    Executor,
    Generated,
    Generation,
    Job,
    RegisterExecutor,
    RegisterLogReader,
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

if TYPE_CHECKING:  # names that load on first use: __getattr__ reads these imports
    from gapft_harness import load_verifier
    from gapft_harness.analysis.estimate import Estimate
    from gapft_harness.executors.local import LocalExecutor
    from gapft_harness.executors.ray import RayExecutor
    from gapft_harness.hooks.protocols import RegisterExperiment
    from gapft_harness.interactive.functions import compare
    from gapft_harness.interactive.runs import open_run
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
    from gapft_harness.lm_eval_bridge.samplers.text import LmEvalSampler, dummy_sampler
    from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process as prepare_vllm
    from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler
    from gapft_harness.lm_eval_bridge.stock import StockTask
    from gapft_harness.outcomes.samples import Sample
    from gapft_harness.presentation.content import Column, Row, Table
    from gapft_harness.recipe.conditions import Condition
    from gapft_harness.recipe.recipe import Recipe
    from gapft_harness.recipe.sections import RecipeSection, Training
    from gapft_harness.report.findings.computation import Findings as ReportFindings
    from gapft_harness.report.part import Part
    from gapft_harness.report.reading.adapters import find_tables as decided_tables
    from gapft_harness.report.reading.adapters import read_decided, stacked
    from gapft_harness.report.reading.answers import Answers, answers_or_why
    from gapft_harness.report.reading.audits import read_decisions, read_samples
    from gapft_harness.report.reading.columns import PASS
    from gapft_harness.report.reading.columns import read_columns as read_columns
    from gapft_harness.report.reading.inputs import ReportInputs
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
    from gapft_harness.stages.experiment import Experiment, Step, View
    from gapft_harness.stages.experiment.comparable import (
        OfAdapters,
        find_no_backend,
        require_conditions,
        require_same_settings,
    )
    from gapft_harness.stages.search.states import Window
    from gapft_harness.training.groups import Group, group_facts, read_groups
    from gapft_harness.training.grpo import train_grpo
    from gapft_harness.training.lora import train as train_lora
    from gapft_harness.training.lora import train_together
    from gapft_harness.training.plan import budget
    from gapft_harness.verification.boxes import last_box
    from gapft_harness.verification.feedback import NO_PROGRAM, failure_feedback, without_paths
    from gapft_harness.verification.judging import judge_once_each
    from gapft_harness.verification.mathematics.comparing import (
        compare_answers,
        find_gold_fault,
        prepare_math,
    )
    from gapft_harness.verification.mathematics.notation import tidy_answer
    from gapft_harness.verification.mathematics.responses import (
        find_boxed_answer,
        find_written_answer,
    )
    from gapft_harness.verification.packed_tests import MAX_DECODED_BYTES
    from gapft_harness.verification.pool import Outcome, WorkerPool
    from gapft_harness.verification.programs import (
        Suite,
        check_calls,
        check_preload,
        last_program,
        read_suite,
    )

__all__ = [  # noqa: RUF022 - grouped by use, with descriptions
    # Every plugin
    "hookimpl",  # marks functions that register components
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
    "RegisterVerifier",  # the type of register in register_verifiers
    "judge_once_each",  # judges each distinct pair of response and gold once
    "remove_thoughts",  # removes <think> and similar blocks, as is done for verifiers
    "WorkerPool",  # a pool of worker processes for work that may hang: it can be killed
    "last_program",  # finds the last fenced program of a response
    "Sandbox",  # runs programs that a model wrote, confined
    "Program",  # a program for the sandbox
    "Test",  # an input and the expected output
    "Limits",  # limits of one test: time, memory, output
    # Selectors and response rules
    "RegisterSelector",  # the type of register in register_selectors
    "RegisterResponseRule",  # the type of register in register_response_rules
    "PoolTooSmallError",  # a selector has too few candidates for n
    # Samplers
    "RegisterSampler",  # the type of register in register_samplers
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
    "RegisterTrainer",  # the type of register in register_trainers
    "TrainingJob",  # the description of one arm to train
    "train_lora",  # trains one arm as the bundled trainer does
    # Executors
    "RegisterExecutor",  # the type of register in register_executors
    "Executor",  # the protocol of executors: run, close
    "Job",  # one unit of work
    # Log formats
    "RegisterLogReader",  # the type of register in register_log_readers
    "Sample",  # what a reader yields: one response, with its scores
    # Experiments
    "RegisterExperiment",  # the type of register in register_experiments
    "Experiment",  # the base class of experiments: what they add to a run
    "RecipeSection",  # the base class of settings (pydantic)
    "View",  # a run as an experiment sees it: recipe, arms(), file(), step(), decode(), states()
    "Step",  # computes one file or folder of the run, with a key; View builds it
    "layout",  # the paths of a run directory: selection_path(arm), decisions_path(arm), ...
    "read_examples",  # reads the training set of an arm
    "read_judged",  # reads responses.parquet or a table of decisions
    "Part",  # the base class of an experiment's part of the report
    "Table",  # rows under columns, for the page, results.json and a CSV file
    "Column",  # one quantity of a table: key, title, format
    "Estimate",  # a value with its interval, for a cell of a table
]

#: The names that a plugin, a test or a notebook may rely on.
PUBLIC_NAMES = tuple(__all__)

# These names are not public: only the plugins and experiments of this package import them, and they
# leave this module with the code that needs them.
__all__ += [  # noqa: RUF022 - grouped by use, with descriptions
    # Errors
    "did_you_mean",  # the end of such a message: the most similar name, then all names
    # Records that plugins receive and return
    "FINISH_REASONS",  # the ways in which a response can end
    # Verifiers
    "last_box",  # finds the last \boxed{} of a response
    "Outcome",  # the result of one item of a WorkerPool
    "Closing",  # a base class that calls close() at the end of a with statement
    "tidy_answer",  # writes an answer on one line, without Markdown and the final full stop
    "find_boxed_answer",  # finds the answer in the last boxes of a response
    "find_written_answer",  # finds the answer in the words of a response without a box
    "find_gold_fault",  # describes why a gold answer of mathematics cannot be read
    "compare_answers",  # compares two answers mathematically (a function for a WorkerPool)
    "prepare_math",  # loads the packages that compare_answers needs (the setup for a WorkerPool)
    "StockTask",  # a stock lm-eval task that judges by its own metric
    # Programs in responses
    "Result",  # the result of a program
    "Suite",  # all tests of one problem
    "read_suite",  # reads a suite from a gold answer
    "check_calls",  # checks the function calls in the tests of a suite
    "check_preload",  # checks the names of modules that programs may import
    "MAX_DECODED_BYTES",  # the most bytes of packed tests after decoding
    "failure_feedback",  # the feedback to a model on a public test that its program failed
    "NO_PROGRAM",  # the feedback on a response without a program
    "without_paths",  # removes folders of this machine from a text
    # Selectors and response rules
    "gold_answer",  # a gold answer as a class of problems, such as an option's letter
    "gold_fault",  # the reason why a gold answer is not such a class
    "is_answer_alone",  # whether a response contains the gold answer and nothing else
    # Samplers
    "ReportGeneration",  # the callback for progress: responses finished, tokens generated
    "prompt_lengths",  # counts the tokens of prompts, with that tokenizer
    "has_chat_template",  # whether that tokenizer has a chat template
    "dummy_sampler",  # lm-eval's dummy model
    "check_hf_arguments",  # checks the arguments of HfSampler before anything is loaded
    "VllmSampler",  # lm-eval's vllm model, with exact token ids
    "prepare_vllm",  # sets variables that vllm reads on import; call it before VllmSampler
    "ServerSampler",  # an OpenAI-compatible server
    "renders_chats",  # whether its prompts are chats if the recipe does not set it
    "find_model",  # checks the arguments, and that the server lists the model
    # Trainers
    "train_grpo",  # trains one arm online, as the bundled trainer does
    "train_together",  # trains several arms on a base that is loaded once
    # Executors
    "LocalExecutor",  # runs jobs in worker processes on this machine
    "RayExecutor",  # runs jobs as Ray tasks
    # Texts and files
    "read_lines",  # reads lines with their numbers; the error on invalid UTF-8 names the line
    "parse_object",  # parses a JSON object; the error names the place
    "replace_surrogates",  # replaces text in a JSON value that cannot be written as UTF-8
    "sha256",  # the hash of a file, in hex
    "content_hash",  # the hash of a JSON value, in hex
    # Experiments and their part of the report
    "require_conditions",  # checks that names are conditions of the recipe
    "require_same_settings",  # checks that conditions differ only in their training sets
    "find_no_backend",  # the fault of a backend that only replays responses
    "Recipe",  # the recipe of a run
    "RunDirectory",  # a run on disk: path, recipe, task, file()
    "read_problems",  # reads problems.parquet, with token ids of the prompts
    "ReportInputs",  # the content of a run, as read by the report
    "ReportFindings",  # the figures that the report computed
    "Row",  # a row of a table: values by the keys of columns
    "Condition",  # the settings of a condition
    "Training",  # the settings of training
    "budget",  # computes exposures, tokens and steps of a training set
    "State",  # G, S or U
    "SOURCE",  # the name of the model before training, in place of a condition
    "CALIBRATION",  # the split on which adapter scaling chooses
    "STATUSES",  # the statuses of verdicts, in the order of their codes
    "PASS",  # the code of a verdict that passes
    "read_decisions",  # reads codes of decisions by problem, and checks the problems
    "read_samples",  # reads which samples of a table passed
    "read_columns",  # reads columns of a sealed table as lists
    "read_states",  # reads a table of states
    "Group",  # the responses that an online trainer drew for one prompt: rewards, tokens, masked
    "read_groups",  # reads the groups in an adapter's folder
    "group_facts",  # counts groups, flat groups and tokens
    # For states by other samples, and for scaled adapters
    "Window",  # a range of samples
    "OfAdapters",  # a RecipeSection with the key adapters: trained or scaled
    "read_decided",  # reads by arm which decodes of audit problems pass
    "decided_tables",  # the paths of these decisions
    "stacked",  # stacks the arrays of a condition's arms by seed
    "Answers",  # the answers in responses to the audit, as codes
    "answers_or_why",  # reads them, or returns the reason why it cannot
]


@cache
def _find_lazy_names() -> dict[str, tuple[str, str]]:
    """Map each name that loads on first use to its module and its name in the module."""
    body = ast.parse(Path(__file__).read_text("utf-8")).body
    (block,) = (node for node in body if isinstance(node, ast.If) and _is_type_checking_block(node))
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _is_type_checking_block(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


if not TYPE_CHECKING:  # a type checker knows only the names above

    def __getattr__(name: str) -> object:
        if name not in _find_lazy_names():
            raise AttributeError(
                f"gapft_harness.api has no {name!r}; {did_you_mean(name, PUBLIC_NAMES)}"
            )
        module, name_in_module = _find_lazy_names()[name]
        imported_module = importlib.import_module(module)
        if hasattr(imported_module, name_in_module):
            return getattr(imported_module, name_in_module)
        return importlib.import_module(f"{module}.{name_in_module}")
