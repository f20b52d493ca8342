"""Tensors of PyTorch, for tests that run without PyTorch."""


class LearningTensor:
    """A tensor that requires a gradient: NumPy can read it only once it is detached."""

    def __init__(self, value):
        self.value = value

    def detach(self):
        return self

    def cpu(self):
        return self.value

    def __array__(self, *_, **__):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")
