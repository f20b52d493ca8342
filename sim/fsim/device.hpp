// Device: one simulated VTA with its DRAM, safe to use from several threads. Launches and counters
// are serialized; between two steps, a launch lets calls pass that only concern memory.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "dram.hpp"
#include "encoding.hpp"
#include "engine.hpp"
#include "executor.hpp"
#include "forks.hpp"
#include "geometry.hpp"
#include "kernels.hpp"

namespace fsim {

class Device {
 public:
  Device(const Geometry& geometry, const Encoding& encoding, const Kernels& kernels,
         const Limits& limits, std::optional<uint64_t> seed)
      : kernel_name_(kernels.name),
        executor_(geometry, encoding, kernels, limits, dram_),
        engine_(encoding, executor_, dram_, limits.token_capacity, seed) {
    Forks<Device>::add(this);
  }
  ~Device() { Forks<Device>::remove(this); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

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
  // `poll` is called regularly without any lock; it may throw.
  void launch(uint64_t address, uint64_t count, double timeout, std::function<void()> poll) {
    const std::lock_guard<std::mutex> turn(*turn_);
    Lock lock(*this);
    interrupted_ = false;
    engine_.launch(address, count, timeout, [&] {
      if (interrupted_) throw Fault("the launch was interrupted");
      lock.let_others_pass(poll);
    });
  }
  // Ends the current launch with a fault, soon.
  void interrupt() { interrupted_ = true; }
  Counters counters() {
    const std::lock_guard<std::mutex> turn(*turn_);
    const Lock lock(*this);
    return executor_.counters;
  }
  void reset_counters() {
    const std::lock_guard<std::mutex> turn(*turn_);
    const Lock lock(*this);
    executor_.counters = {};
  }
  // Frees the DRAM after the current launch; all later calls are refused.
  void close() {
    const std::lock_guard<std::mutex> turn(*turn_);
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    dram_ = Dram();
  }

  // In the child, a launch in progress has ended as if it had been interrupted.
  void before_fork() {
    ++waiting_;
    mutex_.lock();
    --waiting_;
  }
  void after_fork(bool is_child) {
    mutex_.unlock();
    if (!is_child) return;
    (void)turn_.release();  // may be locked
    turn_ = std::make_unique<std::mutex>();
    waiting_ = 0;
  }

 private:
  class Lock {
   public:
    explicit Lock(Device& device) : device_(device), lock_(device.mutex_, std::defer_lock) {
      ++device_.waiting_;
      lock_.lock();
      --device_.waiting_;
      if (device.is_closed_) throw Fault("the device is closed");
    }
    // Unlocks during `act` and until no thread waits, but not for long.
    void let_others_pass(const std::function<void()>& act) {
      lock_.unlock();
      act();
      for (int i = 0; i < 100 && device_.waiting_ > 0; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      lock_.lock();
    }

   private:
    Device& device_;
    std::unique_lock<std::mutex> lock_;
  };

  // Guards launches; taken before mutex_. A forked child has its own, because the thread of a
  // launch in progress will never unlock this one.
  std::unique_ptr<std::mutex> turn_ = std::make_unique<std::mutex>();
  std::mutex mutex_;  // guards everything
  std::atomic<int> waiting_{0};
  std::atomic<bool> interrupted_{false};
  bool is_closed_ = false;
  std::string kernel_name_;
  Dram dram_;
  Executor executor_;
  Engine engine_;
};

}  // namespace fsim
