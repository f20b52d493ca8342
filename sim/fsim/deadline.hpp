// Deadline: the wall-clock limit of a launch, and the time of the next check for an interrupt.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

#include "fault.hpp"

namespace fsim {

class Deadline {
  using Clock = std::chrono::steady_clock;

 public:
  // `poll` is called about a hundred times a second while the launch runs; it may throw.
  Deadline(double seconds, std::function<void()> poll)
      : seconds_(seconds), start_(Clock::now()), poll_(std::move(poll)) {}

  void check() {
    const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
    if (elapsed > seconds_) throw Fault("", {}, Fault::Kind::Timeout);
    if (elapsed > next_poll_) {
      next_poll_ = elapsed + kInterval;
      poll_();
    }
  }

 private:
  static constexpr double kInterval = 0.01;

  double seconds_;
  double next_poll_ = kInterval;
  Clock::time_point start_;
  std::function<void()> poll_;
};

}  // namespace fsim
