// SPDX-License-Identifier: MIT
// --top: the table of calls on a terminal, drawn again each second, until the tracing ends or the user types 'q'.
//
// The terminal shows its other screen, so that what was on it comes back at the end. Keys are read from standard input only where
// that is a terminal that no program was started on: letters without an end of line, not shown; ^C and ^Z keep their meaning.
#pragma once

#include <termios.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/calls.h"
#include "cli/output.h"
#include "engine/base/result.h"
#include "engine/types.h"

namespace uprobe::cli {

// The rows of a terminal of so many lines and columns: two lines on top, then as much of the table as there is room for.
std::string top_screen(const std::vector<CallSummary>& calls, CallOrder order, std::size_t lines, std::size_t columns);

// The bytes that draw them over what the terminal shows. A line is cleared before it is written: after its last column the cursor may
// still stand on that.
std::string top_bytes(std::string_view screen);

// The order that a key chooses; nothing: none.
std::optional<CallOrder> order_of_key(char key);

class TopView {
 public:
  using Rows = std::function<std::vector<CallSummary>()>;

  // Code::usage where standard output is no terminal.
  static Status check(const Streams& streams);
  TopView(const Streams& streams, bool reads_keys);
  // Gives the terminal back as it was.
  ~TopView();
  TopView(const TopView&) = delete;
  TopView& operator=(const TopView&) = delete;

  // The terminal is as it was until the next look().
  void give_back();
  // Takes keys, and draws if a second has gone by or a key asks for it. True: the user has typed 'q'.
  bool look(const Rows& rows);

 private:
  void take_terminal();
  bool take_keys();
  void draw(const Rows& rows);

  int out_, in_;
  const bool wants_keys_;
  bool has_terminal_ = false, reads_keys_ = false, is_changed_ = true;
  std::optional<termios> before_;  // of the terminal that keys are read from
  CallOrder order_ = CallOrder::total;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace uprobe::cli
