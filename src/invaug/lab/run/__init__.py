"""A run on disk: its folder, record, checkpoints, lock and logs."""
