// Implementation of dram.hpp.
#include "dram.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "fault.hpp"

namespace fsim {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kEnd = 1ull << 32;

std::atomic<uint64_t> next_serial{1};

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string range(uint64_t address, uint64_t nbytes) {
  return hex(address) + ".." + hex(address + nbytes);
}

}  // namespace

// Next fit: an address is reused as late as possible, so that stale addresses are caught.
Dram::Handle Dram::alloc(uint64_t nbytes) {
  if (nbytes == 0 || nbytes > kEnd) {
    throw Fault("cannot allocate " + std::to_string(nbytes) + " bytes; give 1.." +
                std::to_string(kEnd - 3 * kPage));
  }
  const uint64_t span = (nbytes + kPage - 1) / kPage * kPage;
  uint64_t address = find_gap(cursor_ ? cursor_ : kPage, span);
  if (!address) address = find_gap(kPage, span);
  uint8_t* data = address ? static_cast<uint8_t*>(std::calloc(nbytes, 1)) : nullptr;
  if (!data) {
    const std::string held = std::to_string(blocks_.size()) + " buffers are allocated";
    throw Fault("no room for " + std::to_string(nbytes) + " bytes; " + held +
                    ", and addresses end at " + hex(kEnd),
                {}, Fault::Kind::NoRoom);
  }
  const uint64_t serial = next_serial++;
  Block block{nbytes, serial, std::unique_ptr<uint8_t[], HostFree>(data)};
  blocks_.emplace(address, std::move(block));
  cursor_ = address + span + kPage;
  return {address, nbytes, serial};
}

// Returns the lowest address >= from with `span` free bytes and an unmapped page on either side, or
// 0.
uint64_t Dram::find_gap(uint64_t from, uint64_t span) const {
  uint64_t address = from;
  auto next = blocks_.upper_bound(from);
  if (next != blocks_.begin()) {
    const auto& [begin, block] = *std::prev(next);
    const uint64_t end = (begin + block.nbytes + kPage - 1) / kPage * kPage + kPage;
    if (end > address) address = end;
  }
  for (; next != blocks_.end() && address + span + kPage > next->first; ++next) {
    address = (next->first + next->second.nbytes + kPage - 1) / kPage * kPage + kPage;
  }
  return address + span + kPage <= kEnd ? address : 0;
}

const Dram::Block& Dram::block_of(const Handle& handle, uint64_t nbytes) const {
  const auto found = blocks_.find(handle.address);
  if (found == blocks_.end() || found->second.serial != handle.serial) {
    throw Fault("buffer " + range(handle.address, handle.nbytes) +
                " is not allocated on this device: it was freed, or belongs to another device");
  }
  if (nbytes > found->second.nbytes) {
    throw Fault(std::to_string(nbytes) + " bytes exceed buffer " +
                range(handle.address, handle.nbytes) + " of " +
                std::to_string(found->second.nbytes) + " bytes");
  }
  return found->second;
}

void Dram::free(const Handle& handle) {
  block_of(handle, 0);
  blocks_.erase(handle.address);
}

void Dram::write(const Handle& handle, const void* data, uint64_t nbytes) {
  const Block& block = block_of(handle, nbytes);
  if (nbytes) std::memcpy(block.data.get(), data, nbytes);
}

void Dram::read(const Handle& handle, void* data, uint64_t nbytes) const {
  const Block& block = block_of(handle, nbytes);
  if (nbytes) std::memcpy(data, block.data.get(), nbytes);
}

void Dram::refuse(uint64_t address, uint64_t nbytes) const {
  std::string text = "DRAM bytes " + range(address, nbytes) + " are in no buffer";
  const auto after = blocks_.upper_bound(address);
  if (after != blocks_.begin()) {
    const auto& [begin, block] = *std::prev(after);
    text += "; the nearest below is " + range(begin, block.nbytes);
  }
  if (after != blocks_.end()) {
    text += "; the nearest above is " + range(after->first, after->second.nbytes);
  }
  throw Fault(text);
}

}  // namespace fsim
