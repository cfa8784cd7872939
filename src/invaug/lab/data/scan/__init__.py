"""`invaug scan`: what is wrong with a dataset, before anything is trained on it."""
