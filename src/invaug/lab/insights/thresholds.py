"""From which gamma on a symmetry counts as learned; without torch, because the report shows these limits too."""

FULLY, MOSTLY = 0.02, 0.1
"""gamma, the gap that is left as a share of the loss of a guess, up to which a symmetry counts as learned, and as
mostly learned: of ten classes 0.05 and 0.23 nats."""
VERDICTS = ("learned", "mostly learned", "not learned")
