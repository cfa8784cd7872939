"""The laboratory: data, models, the training loop, experiments and the command line, built on the method."""
