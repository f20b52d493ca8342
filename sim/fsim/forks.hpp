// Forks: whoever forks the process first waits for the step of each launch that is under way, so that
// devices are whole in the child, where the threads of those launches do not exist.
#pragma once

#include <pthread.h>

#include <mutex>
#include <set>

namespace fsim {

// What is locked while the process forks. Entries come and go with the devices.
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
