// Python's lock: giving it up, and taking it, also while the interpreter ends.
//
// Before version 3.14 Python ends a thread that asks for its lock then by unwinding the thread's
// stack, which no destructor survives. Such a thread waits here for the end of the process instead.
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

// Gives the lock up for its lifetime.
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
