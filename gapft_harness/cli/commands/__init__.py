"""The commands: ``command`` of each module, with ``EXAMPLE`` for its help."""
