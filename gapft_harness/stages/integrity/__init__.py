"""What is hashed, when it is checked, and what is computed again.

**Hashed.** Every table and folder that a stage seals, under ``files`` in the manifest
(``RunDirectory.seal``). What the search rests on, under ``rests_on``: the task's settings and code,
each split's problems, the code of the plugins that took part, the files that were read, the files
of the model (``rests_on.py``). The recipe is in the manifest whole. Of a training set of another
run ``budgets`` has the hash of that run's file (``selection/other_runs.py``).

**When a command begins.** Before anything else it compares its recipe with the run's
(``run_directory/binding.py``), and task, data, plugins, model and named subsets with ``rests_on``
(``hold``). Small files are hashed again; large ones, where size or time changed; only where a file
is another are task and data read again, to say what of it differs. ``gapft run`` then empties the
run as far as it depends on what is another (``settle_changes``), if the store has what was made;
other commands name it and stop.

**When a job begins.** It compares what it has loaded itself with ``rests_on`` (``require_same``),
for it may run on another machine. No problem of one split may be in another (``disjoint.py``).

**When a file is read.** ``RunDirectory.sealed`` gives a path only if the file still has its hash.

**When arms are made.** Budgets that must match are compared before anything is trained
(``stages/selection/budgets.py``), and adapters that an interrupted command left are held to what
would be trained now (``stages/train/stored.py``).

**``gapft verify``** believes nothing that was written about a run, and computes again what follows
from the sealed tables:

- ``stages/verify/files.py``: hashes; recipe and manifest agree; nothing lies there unsealed;
  tables hold the same problems; states follow from verdicts;
- ``stages/verify/judging.py``: every verdict, judged again, and what is counted of verdicts;
- ``stages/verify/selections.py``: every selector run again, budgets (Equations 6 and 7), sets
  of other runs;
- ``stages/verify/arms.py``: adapters against plan and settings, what arms have in common,
  decisions;
- ``stages/verify/keys.py``: keys of tables and adapters, from what the run records of them;
- ``run_directory/history.py``: the chain of the recipe's changes.

``stages/verify/run.py`` puts them in order. A check that breaks is a difference, not the end
(``differences.py``). The two rooms are two because stages use this one and are used by the other.
"""
