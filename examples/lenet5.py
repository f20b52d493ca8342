"""LeNet-5 with random weights, layer by layer on the simulated accelerator.

python examples/lenet5.py
"""

import numpy as np

from vtaops import Session

rng = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    """Return random int8 weights."""
    return rng.integers(-64, 64, shape).astype(np.int8)


image = rng.integers(0, 128, (1, 1, 28, 28)).astype(np.int8)

with Session("fsim", config="pynq") as session:
    # The 5 columns of the kernel become channels on the way in: 5 instead of 25 products a pixel.
    x = session.conv2d(image, weights(6, 1, 5, 5), padding=2, shift=8, clip=(0, 127))
    x = session.avg_pool2d(x, 2)
    x = session.conv2d(x, weights(16, 6, 5, 5), shift=8, clip=(0, 127))
    x = session.avg_pool2d(x, 2)
    x = x.reshape(1, 400)
    x = session.gemm(x, weights(120, 400), shift=8, clip=(0, 127))
    x = session.gemm(x, weights(84, 120), shift=8, clip=(0, 127))
    scores = session.gemm(x, weights(10, 84), shift=8, clip=(-128, 127), rounding="half_up")

    print("scores", scores[0])
    for placement in session.placements:
        print(f"{placement.where}: {placement.operator}")
    print(session.stats)
