"""The files of a run: paths, tables, records. No other package knows where a file is."""
