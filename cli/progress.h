// SPDX-License-Identifier: MIT
// Tells the user how a trace goes on while it is written to a file: a line on a terminal that changes each second, and, on any
// standard error, that hits are being lost, as soon as the first is.
//
// The line is shown where the terminal is the tool's alone: not over the output of a program that it has started there, nor over
// the trace itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/call.h"
#include "cli/output.h"
#include "engine/types.h"

namespace uprobe::cli {

struct Pace {
  std::uint64_t hits = 0, lost = 0;
  std::uint64_t bytes = 0;  // of the output; 0: not known
  double hits_a_second = 0;
};

// "1,234 hits, 56 a second, none lost, 3.4 MB written"
std::string render_pace(const Pace& pace);

// Of the first event that has lost hits; empty: none has.
std::string render_first_loss(const std::vector<EventProgress>& events);

class ProgressView {
 public:
  // Both must outlive it.
  ProgressView(const Call& call, const TraceSink& sink);
  // Takes the line away.
  ~ProgressView();
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;

  // Called often: looks at the counts a few times a second.
  void look();

 private:
  using Clock = std::chrono::steady_clock;

  void tell_first_loss(const std::vector<EventProgress>& events);
  void draw(const std::vector<EventProgress>& events, Clock::time_point now);
  void wipe();

  const Call& call_;
  const TraceSink& sink_;
  const bool draws_;
  bool has_told_ = false, is_drawn_ = false;
  Clock::time_point next_look_ = Clock::now(), drawn_ = next_look_;
  std::uint64_t hits_ = 0;  // at the time `drawn_`
};

}  // namespace uprobe::cli
