"""explorer.html: every problem with its responses and verdicts, to filter, search and read."""
