"""The commands, one per module: ``command`` runs it.

A module also defines ``GROUP``, the heading in the list of commands, and ``EXAMPLE``, the last line
of the command's help. ``cli/main.py`` finds the modules.
"""
