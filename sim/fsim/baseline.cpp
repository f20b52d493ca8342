// Implementation of baseline.hpp.
#include "baseline.hpp"

#include <string>

#include "fault.hpp"

#if defined(FSIM_X86)
#include <immintrin.h>
#endif

namespace fsim {

void plain_matmul(const int8_t* a, const int8_t* b, int32_t* c, std::size_t m, std::size_t n,
                  std::size_t k) {
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      int32_t sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += a[i * k + l] * b[j * k + l];
      c[i * n + j] = sum;
    }
  }
}

#if defined(FSIM_X86)
namespace {

// 12 independent chains hide the latency; the empty asm hides the operands' values and keeps the
// sums alive.
#define FSIM_REGISTER_LOOP(NAME, TARGET, REGISTER, ZERO, STEP)                     \
  __attribute__((target(TARGET))) void NAME(uint64_t steps) {                      \
    REGISTER x = ZERO, y = ZERO, sum[12];                                          \
    for (REGISTER & s : sum) s = ZERO;                                             \
    for (uint64_t i = 0; i < steps; ++i) {                                         \
      __asm__ volatile("" : "+v"(x), "+v"(y));                                     \
      _Pragma("GCC unroll 12") for (int k = 0; k < 12; ++k) sum[k] = STEP;         \
    }                                                                              \
    _Pragma("GCC unroll 12") for (int k = 0; k < 12; ++k) {                        \
      __asm__ volatile("" : : "v"(sum[k]));                                        \
    }                                                                              \
  }

FSIM_REGISTER_LOOP(avx512vnni_loop, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
                   _mm512_dpbusd_epi32(sum[k], x, y))
FSIM_REGISTER_LOOP(avxvnni_loop, "avx2,avxvnni", __m256i, _mm256_setzero_si256(),
                   _mm256_dpbusd_avx_epi32(sum[k], x, y))
FSIM_REGISTER_LOOP(avx2_loop, "avx2", __m256i, _mm256_setzero_si256(),
                   _mm256_add_epi32(sum[k], _mm256_madd_epi16(x, y)))

}  // namespace

uint64_t register_macs(const char* kernel, uint64_t count) {
  const std::string name = kernel;
  const auto run = [&](void (*loop)(uint64_t), uint64_t macs_per_step) {
    const uint64_t steps = count / macs_per_step + 1;
    loop(steps);
    return steps * macs_per_step;
  };
  if (name == "avx512vnni") return run(avx512vnni_loop, 12 * 64);
  if (name == "avxvnni") return run(avxvnni_loop, 12 * 32);
  if (name == "avx2") return run(avx2_loop, 12 * 16);
  throw Fault("no register loop for kernels '" + name + "'");
}
#else
uint64_t register_macs(const char* kernel, uint64_t) {
  throw Fault("no register loop for kernels '" + std::string(kernel) + "'");
}
#endif

}  // namespace fsim
