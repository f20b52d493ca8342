// Forks: a fork of the process first waits for the current step of each launch, so that devices are
// consistent in the child, where the threads of those launches do not exist.
#pragma once

#include <pthread.h>

#include <mutex>
#include <set>

namespace fsim {

// Locks held while the process forks. Entries come and go with the devices.
template <class Device>
class Forks {
 public:
  static void add(Device* device) {
    const std::lock_guard<std::mutex> lock(instance().mutex_);
    instance().devices_.insert(device);
  }
  static void remove(Device* device) {
    const std::lock_guard<std::mutex> lock(instance().mutex_);
    instance().devices_.erase(device);
  }

 private:
  Forks() {
    pthread_atfork(
        [] {
          instance().mutex_.lock();
          for (Device* device : instance().devices_) device->before_fork();
        },
        [] {
          for (Device* device : instance().devices_) device->after_fork(false);
          instance().mutex_.unlock();
        },
        [] {
          for (Device* device : instance().devices_) device->after_fork(true);
          instance().mutex_.unlock();
        });
  }
  static Forks& instance() {
    static Forks* const forks = new Forks;  // lives as long as the process
    return *forks;
  }

  std::mutex mutex_;
  std::set<Device*> devices_;
};

}  // namespace fsim
