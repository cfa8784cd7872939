"""`invaug export` and `invaug predict`: a trained model leaves the laboratory."""
