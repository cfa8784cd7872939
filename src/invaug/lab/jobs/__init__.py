"""Many trainings as one piece of work: each in a folder of its own, skipped when done, resumed, side by side."""
