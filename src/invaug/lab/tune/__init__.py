"""`invaug tune`: choose epsilon, or anything else of the config, by cross-validation; no test image is read."""
