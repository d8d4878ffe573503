"""Commands that need more than a few lines, a file each; the short ones are in ``cli/tools.py``."""
