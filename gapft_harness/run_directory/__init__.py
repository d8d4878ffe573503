"""The files of a run: paths, tables, manifest. No other package knows where a file is."""
