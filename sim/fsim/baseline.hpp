// Yardsticks for benchmarks/fsim_speed.py: what the CPU can do at best, and what plain code does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsim {

// c[m][n] = sum over k of a[m][k] * b[n][k], as one writes it down.
void plain_matmul(const int8_t* a, const int8_t* b, int32_t* c, std::size_t m, std::size_t n,
                  std::size_t k);

// Does about `count` int8 multiply-accumulates in registers, as fast as `kernel` can; returns how
// many it did.
uint64_t register_macs(const char* kernel, uint64_t count);

}  // namespace fsim
