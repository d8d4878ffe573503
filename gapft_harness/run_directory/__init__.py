"""What is on disk: paths, tables, the journal, the manifest. Nothing else knows a file's place."""
