// Device: one simulated VTA with its DRAM, safe to use from several threads (one call at a time).
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "dram.hpp"
#include "encoding.hpp"
#include "engine.hpp"
#include "executor.hpp"
#include "geometry.hpp"
#include "kernels.hpp"

namespace fsim {

class Device {
 public:
  Device(const Geometry& geometry, const Encoding& encoding, const Kernels& kernels,
         const Limits& limits, std::optional<uint64_t> seed)
      : kernel_name_(kernels.name),
        executor_(geometry, encoding, kernels, limits, dram_),
        engine_(encoding, executor_, dram_, limits.token_capacity, seed) {}

  const std::string& kernel_name() const { return kernel_name_; }

  Dram::Handle alloc(uint64_t nbytes) {
    const Lock lock(*this);
    return dram_.alloc(nbytes);
  }
  void free(const Dram::Handle& handle) {
    const Lock lock(*this);
    dram_.free(handle);
  }
  void write(const Dram::Handle& handle, const void* data, uint64_t nbytes) {
    const Lock lock(*this);
    dram_.write(handle, data, nbytes);
  }
  void read(const Dram::Handle& handle, void* data, uint64_t nbytes) {
    const Lock lock(*this);
    dram_.read(handle, data, nbytes);
  }
  void launch(uint64_t address, uint64_t count, double timeout, std::function<void()> poll) {
    const Lock lock(*this);
    engine_.launch(address, count, timeout, std::move(poll));
  }
  Counters counters() {
    const Lock lock(*this);
    return executor_.counters;
  }
  void reset_counters() {
    const Lock lock(*this);
    executor_.counters = {};
  }
  // Frees the DRAM; all other calls are refused from then on.
  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    dram_ = Dram();
  }

 private:
  class Lock {
   public:
    explicit Lock(Device& device) : guard_(device.mutex_) {
      if (device.is_closed_) throw Fault("the device is closed");
    }

   private:
    std::lock_guard<std::mutex> guard_;
  };

  std::mutex mutex_;
  bool is_closed_ = false;
  std::string kernel_name_;
  Dram dram_;
  Executor executor_;
  Engine engine_;
};

}  // namespace fsim
