"""`invaug evaluate`: accuracy, calibration and robustness of a trained run."""
