// Python's global lock: release it and take it, even while the interpreter ends.
//
// Before version 3.14, Python ends a thread that requests its lock at that time by unwinding the
// thread's stack, which no destructor survives. Here, such a thread waits for the process to end.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <thread>

namespace gil {

template <typename Take>
auto take_or_wait(Take take) noexcept {
  try {
    return take();
  } catch (...) {  // the unwinding
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

// Releases the lock for its lifetime.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() {
    take_or_wait([this] { PyEval_RestoreThread(state_); });
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* state_;
};

// Holds the lock for its lifetime.
class Held {
 public:
  Held() : state_(take_or_wait([] { return PyGILState_Ensure(); })) {}
  ~Held() { PyGILState_Release(state_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace gil
