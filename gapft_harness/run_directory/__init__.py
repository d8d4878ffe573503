"""What is on disk: paths, tables, the manifest. Nothing else knows a file's place."""
