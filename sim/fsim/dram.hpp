// Dram: device-physical memory. Allocates zeroed, page-aligned buffers below 2**32 with unmapped
// pages between them, and refuses every access outside a buffer, to the byte.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>

namespace fsim {

class Dram {
 public:
  // The host's handle. The serial number is unique in the process, so that a handle of another
  // device, or of a freed buffer, is recognised even if the address is in use again.
  struct Handle {
    uint64_t address = 0;
    uint64_t nbytes = 0;
    uint64_t serial = 0;
  };

  Handle alloc(uint64_t nbytes);
  void free(const Handle& handle);

  void write(const Handle& handle, const void* data, uint64_t nbytes);
  void read(const Handle& handle, void* data, uint64_t nbytes) const;

  // Returns the host address of [address, address + nbytes); throws Fault unless the range is in one
  // buffer. `hint` remembers the buffer between calls.
  class Hint;
  uint8_t* at(uint64_t address, uint64_t nbytes, Hint& hint) const;

 private:
  struct HostFree {
    void operator()(uint8_t* data) const { std::free(data); }
  };
  struct Block {
    uint64_t nbytes;
    uint64_t serial;
    std::unique_ptr<uint8_t[], HostFree> data;
  };
  using Blocks = std::map<uint64_t, Block>;  // by address

  uint64_t find_gap(uint64_t from, uint64_t span) const;
  const Block& block_of(const Handle& handle, uint64_t nbytes) const;
  [[noreturn]] void refuse(uint64_t address, uint64_t nbytes) const;

  Blocks blocks_;
  uint64_t cursor_ = 0;
};

class Dram::Hint {
  friend class Dram;
  uint64_t begin_ = 0, end_ = 0;
  uint8_t* data_ = nullptr;
};

inline uint8_t* Dram::at(uint64_t address, uint64_t nbytes, Hint& hint) const {
  if (address < hint.begin_ || address + nbytes > hint.end_) {
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) refuse(address, nbytes);
    const auto& [begin, block] = *std::prev(after);
    if (address + nbytes > begin + block.nbytes) refuse(address, nbytes);
    hint.begin_ = begin;
    hint.end_ = begin + block.nbytes;
    hint.data_ = block.data.get();
  }
  return hint.data_ + (address - hint.begin_);
}

}  // namespace fsim
