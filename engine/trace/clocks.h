// SPDX-License-Identifier: MIT
// The clocks in which a trace can have its times. Records have CLOCK_MONOTONIC; other clocks are read beside it now and then, and
// the times between two readings are converted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace uprobe::trace {

enum class ClockKind : std::uint8_t {
  mono,      // CLOCK_MONOTONIC
  mono_raw,  // CLOCK_MONOTONIC_RAW: the counter as it runs
  boot,      // CLOCK_BOOTTIME: goes on while the machine sleeps
  tai,       // CLOCK_TAI
  global,    // the kernel's scheduler clock, which ftrace and perf have by default
  wall,      // CLOCK_REALTIME: since 1970
};
inline constexpr std::size_t kClocks = 6;

// The names that --clock takes, and those of ftrace's trace_clock: "mono_raw".
std::string_view name_of(ClockKind kind);
std::optional<ClockKind> clock_called(std::string_view name);
// "mono, mono_raw, ..."
std::string clock_names();

// All clocks at one moment, in nanoseconds; 0: this machine or process cannot read that one.
struct ClockReading {
  std::array<std::uint64_t, kClocks> ns{};
  std::uint64_t at(ClockKind kind) const { return ns[static_cast<std::size_t>(kind)]; }
};

// Reads them. `global` is known by the time stamp of an event of perf, which the reader makes its own thread have; it is a part of
// the reading only where the user may open such an event (perf_event_paranoid).
class ClockReader {
 public:
  explicit ClockReader(bool wants_global) : wants_global_(wants_global) {}
  ~ClockReader() { close(); }
  ClockReader(const ClockReader&) = delete;
  ClockReader& operator=(const ClockReader&) = delete;

  // Exact to a microsecond or so.
  ClockReading read();

 private:
  void open();
  void close();
  std::uint64_t global() const;

  const bool wants_global_;
  int thread_ = 0;  // whose event it is
  int event_ = -1;
  void* page_ = nullptr;  // head and ring of the event
};

}  // namespace uprobe::trace
