// SPDX-License-Identifier: MIT
// Whose requests are answered first, where processes of a session have different rights. The tool answers one request after the other,
// so a process that takes its time on purpose, say by not answering the tool's commands, would keep all others waiting.
//
// So each live part pays for the time that its requests have taken: for a multiple of it they stand behind those of the other parts, and
// the tool answers one of them between two looks at the others'. A part whose threads were silent finds the tool less patient.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>

namespace uprobe::control {

class Turns {
 public:
  using Clock = std::chrono::steady_clock;

  // Until when the part's requests stand behind those of the others.
  Clock::time_point behind_until(std::size_t part) const;
  bool is_behind(std::size_t part, Clock::time_point now) const { return now < behind_until(part); }
  // How long the tool waits in one request of the part for all answers of its thread together.
  std::chrono::milliseconds patience(std::size_t part, Clock::time_point now) const;

  // A request of the part took so long, of which its thread was waited for in vain.
  void charge(std::size_t part, Clock::time_point now, Clock::duration took, Clock::duration in_vain);

 private:
  struct Account {
    Clock::time_point behind_until{};  // for all of the time
    Clock::time_point silent_until{};  // for the time in vain
  };
  std::map<std::size_t, Account> accounts_;
  Clock::time_point all_silent_until_{};  // for the time in vain of all parts
};

}  // namespace uprobe::control
