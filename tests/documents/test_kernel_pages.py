"""The pages of kernels show what was measured."""

from docs import measured

PAGES = measured.ROOT / "docs" / "kernels"


def test_speed_on_cpus():
    assert measured.cpu_kernels() in (PAGES / "speed.md").read_text()


def test_speed_on_a_gpu():
    assert measured.gpu_kernels() == (PAGES / "cuda_speed.md").read_text()
