"""What ptxas reports of kernels, read without nvcc."""

from vtaops.kernels.cuda.resources import Resources, reported

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first_kernel' for 'sm_80'
ptxas info    : Function properties for first_kernel
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 12.345 ms
ptxas info    : Compiling entry function 'second_kernel' for 'sm_80'
ptxas info    : Function properties for second_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'first_kernel' for 'sm_90a'
ptxas info    : Function properties for first_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 128 bytes smem, 544 bytes cmem[0]
"""


def test_each_architecture_has_the_most_of_its_kernels():
    assert reported(REPORT) == {
        "sm_80": Resources(registers=255, shared=4096, stack=16, spills=20),
        "sm_90a": Resources(registers=32, shared=128, stack=0, spills=0),
    }


def test_a_report_in_another_order_says_the_same():
    parts = REPORT.split("ptxas info    : Compiling")
    assert reported("ptxas info    : Compiling".join(["", *reversed(parts[1:])])) == reported(
        REPORT
    )


def test_no_kernel_is_no_report():
    assert reported("ptxas info    : 0 bytes gmem\n") == reported("") == {}
