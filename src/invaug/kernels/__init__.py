"""The byte operations: the rules both back ends share, each back end, and the choice between them."""
