"""The stages of any run: search, selection, training, audit, report, verify."""
