// Yardsticks for benchmarks/fsim_speed.py: the peak of the CPU, and the speed of plain code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsim {

// c[m][n] = sum over k of a[m][k] * b[n][k], in the obvious way.
void plain_matmul(const int8_t* a, const int8_t* b, int32_t* c, std::size_t m, std::size_t n,
                  std::size_t k);

// Executes about `count` int8 multiply-accumulates in registers, as fast as `kernel` can; returns
// their number.
uint64_t register_macs(const char* kernel, uint64_t count);

}  // namespace fsim
