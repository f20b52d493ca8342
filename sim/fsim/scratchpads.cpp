// Implementation of scratchpads.hpp.
#include "scratchpads.hpp"

#include <cstring>

namespace fsim {

namespace {

// Aligned to cache lines.
template <class T>
Scratchpads::Array<T> allocate(std::size_t count, uint8_t fill) {
  T* const data = static_cast<T*>(::operator new[](count * sizeof(T), std::align_val_t{64}));
  std::memset(data, fill, count * sizeof(T));
  return Scratchpads::Array<T>(data);
}

void fill_random(void* data, std::size_t nbytes, std::mt19937_64& random) {
  char* to = static_cast<char*>(data);
  for (; nbytes >= 8; nbytes -= 8, to += 8) {
    const uint64_t word = random();
    std::memcpy(to, &word, 8);
  }
  const uint64_t word = random();
  std::memcpy(to, &word, nbytes);
}

}  // namespace

Scratchpads::Scratchpads(const Geometry& geometry, const Kernels& kernels)
    : uop(geometry.uop_depth),
      inp(allocate<uint8_t>(geometry.inp_depth * kernels.inp_bytes, kernels.inp_zero)),
      wgt(allocate<uint8_t>(geometry.wgt_depth * kernels.wgt_bytes, 0)),
      acc(allocate<int32_t>(geometry.acc_depth * geometry.lanes(), 0)),
      plain_inp(geometry.window_tiles || geometry.pools ? geometry.inp_depth * geometry.lanes() : 0),
      plain_wgt(geometry.window_tiles ? geometry.wgt_depth * geometry.weight_lanes() : 0),
      geometry_(geometry) {}

void Scratchpads::randomise(std::mt19937_64& random, const Encoding& encoding,
                            const Kernels& kernels) {
  for (MicroOp& op : uop) op = encoding.decode_micro_op(static_cast<uint32_t>(random()));

  std::vector<int8_t> lanes(geometry_.inp_depth * geometry_.lanes());
  fill_random(lanes.data(), lanes.size(), random);
  kernels.pack_inp(inp.get(), lanes.data(), lanes.size());
  if (!plain_inp.empty()) plain_inp = lanes;

  lanes.resize(geometry_.wgt_depth * geometry_.weight_lanes());
  fill_random(lanes.data(), lanes.size(), random);
  kernels.pack_wgt(wgt.get(), lanes.data(), lanes.size());
  if (!plain_wgt.empty()) plain_wgt = lanes;

  const std::size_t acc_bytes = geometry_.acc_depth * geometry_.lanes() * sizeof(int32_t);
  fill_random(acc.get(), acc_bytes, random);
}

}  // namespace fsim
