"""The commands, a file each: ``command`` is what is run.

A file also says ``GROUP``, under which the list of commands shows it, and ``EXAMPLE``, a line that
its help ends with. ``cli/main.py`` finds the files.
"""
