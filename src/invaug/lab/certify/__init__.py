"""`invaug certify`: how invariant a trained model is, with bounds that hold."""
