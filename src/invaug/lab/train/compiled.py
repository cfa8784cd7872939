"""Loading the compiled loops before a run; the first time on a machine they are compiled, which is announced."""

from threading import Timer

import torch

from invaug import sets
from invaug.kernels.dispatch import has_numba
from invaug.lab.terminal import say
from invaug.lab.train.finish import Finish

PATIENCE = 3.0  # seconds: from the disk the loops are loaded in less


def load_compiled_loops() -> None:
    """Load what numba has compiled, from its cache if it is there; without numba there is nothing to load."""
    if not has_numba():
        return
    import invaug.lab.train.finish_loop  # noqa: F401 - numba itself takes a second to import

    message = Timer(PATIENCE, say, ["compiling the image operations; this happens once and takes about 20 seconds"])
    message.daemon = True
    message.start()
    try:
        images, transforms = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), sets.wide()
        Finish((0.5,), (0.5,))(transforms.apply(images, transforms.draw(2, generator=torch.Generator())))
    finally:
        message.cancel()


if __name__ == "__main__":  # `make` compiles them when it installs
    load_compiled_loops()
