"""When a share of images classified correctly is called weak: below another by more than chance explains."""

import math

SURE = 3.0  # standard deviations: lowest of 14 operations or 10 classes, 1 page in 50 names one by chance


def is_weak(share: float, n: int, usual: float) -> bool:
    """Whether a share of n images is below the usual one by more than a binomial's spread explains.

    Two images are added on either side, as Agresti and Coull do, so that a share of 0 or 1 has a spread too.

    Example:
        >>> is_weak(0.90, 100, usual=0.95), is_weak(0.80, 100, usual=0.95)
        (False, True)
    """
    middle = (n * share + 2) / (n + 4)
    return usual - share > SURE * math.sqrt(middle * (1 - middle) / (n + 4))
