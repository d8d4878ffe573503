"""The integrity of a run: the hashes of its files and inputs, and when they are checked.

**Hashes.** The manifest has the hash of every table and folder that a stage seals, under ``files``
(``RunDirectory.seal``), and the inputs of the search under ``rests_on``: the task's settings and
code, each split's problems, the code of the plugins, the files that were read, the files of the
model (``inputs.py``). It also contains the complete recipe.

**Start of a command.** First, a command compares its recipe with the run's
(``run_directory/recipe_changes.py``), and task, data, plugins and model with
``rests_on`` (``compare_inputs``). Small files are hashed again, large ones if size or time changed.
Task and data are read again only if a file changed, to describe the difference. ``gapft run`` then
resets the run as far as it depends on the change (``apply_changes``), if the finished work is in
the store; other commands report the change and stop.

**Start of a job.** A job may run on another machine, so it compares the inputs that it has loaded
with ``rests_on`` (``require_same``). No problem of one split may be in another (``disjoint.py``).

**Reading a file.** ``RunDirectory.sealed`` returns a path only if the file still has its hash.

**Training.** Budgets that must match are compared before anything is trained
(``stages/selection/budgets.py``), and adapters of an interrupted command are compared with what
would be trained now (``stages/train/stored.py``).

**``gapft verify``** trusts no recorded result, and recomputes everything that follows from the
sealed tables:

- ``stages/verify/files.py``: hashes; recipe and manifest agree; no unsealed files; tables have the
  same problems; states follow from verdicts;
- ``stages/verify/judging.py``: every verdict, judged again, and the counts of verdicts;
- ``stages/verify/selections.py``: every selector run again, budgets (Equations 6 and 7);
- ``stages/verify/arms.py``: adapters against plan and settings, settings common to all arms,
  decisions;
- ``stages/verify/keys.py``: keys of tables and adapters, from the contents that the run records;
- ``run_directory/history.py``: the chain of the recipe's changes.

``stages/verify/run.py`` runs them in order. A check that fails to run is reported as a difference
(``differences.py``). The two packages are separate because stages import this one, while ``verify``
imports stages.
"""
