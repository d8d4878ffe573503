"""Words that all rooms share: errors, records, streams, files. Imports no other room."""
