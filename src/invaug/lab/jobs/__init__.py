"""Many trainings as one work: each in a folder of its own, skipped when done, going on when broken, side by side."""
