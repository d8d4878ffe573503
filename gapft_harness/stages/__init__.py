"""The stages of a run: search, selection, training, audit, report, verify."""
