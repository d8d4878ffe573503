"""What a run rests on (task, data, plugins, model), and whether it still is so."""
