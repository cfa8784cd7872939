"""`invaug insights`: which symmetries a network learns from a dataset."""
