// SPDX-License-Identifier: MIT
// Writes the jumps of points that came to running code, when it is proved that no thread is in the middle of their windows.
//
// Such a point is published as a jump, with slot, body and a copy of the whole window; its text is a breakpoint
// (engine/shared/future_jump.h). Two facts make the set of threads inside the window shrink from then on:
//
//   - A thread that arrives traps, and goes on in the copy, which leads past the window. The planner has shown that no branch
//     leads into the middle, and that no call and no system call is there, so no thread returns into it.
//   - A signal frame with an address in the middle ends with rt_sigreturn, where the agent leads the thread to the copy; without
//     such a point in the process there is no future jump (ProcessArming::follows_returns).
//
// So after the processors have been serialized once, each thread is looked at until it has been seen outside at one moment: its
// instruction pointer, and no word of its stack, is an instruction of the window after the first. It need not be looked at
// again, nor need threads that begin later, since they begin after a system call. A child of vfork runs the parent's code in the
// parent's memory: as long as there is one, the thread that made it has not been seen outside. When all threads have been, the
// jump is written by the patch protocol (patch.h). A window of one instruction has no middle, so nothing is looked at.
//
// Only breakpoints that this tool itself has written for this process wait for a jump (AwaitedJumps); where a foreign breakpoint was
// found, in a process that forked from such a one, and after an execve, they stay.
//
// The proof ends where the breakpoint may have been away for a moment: when the block has a new stamp (points were added or
// removed), when the text had to be mended, while another tool changes the process, and while a debugger traces it. A window into whose middle the copy of another
// point leads stays a breakpoint, because a thread may be in that copy for any length of time.
//
// Costs: a thread that does not sleep is stopped for about 100 us per look, at most a hundredth of the time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/arm/arm_state.h"
#include "engine/patch/sequence_search.h"
#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

class FutureJumps {
 public:
  // Must outlive it.
  explicit FutureJumps(ArmState& state) : state_(state) {}

  // One turn for a process: its block is at `at`, and `points` are its future jumps, as they were a moment ago; none: what was known
  // of the process is forgotten. Writes the jumps that are proved, and notes for the others why they are none yet.
  Status step(target::Target& target, Addr at, std::span<const std::uint32_t> points);
  void forget(pid_t pid) { processes_.erase(pid); }
  // The time that looks have taken since the last call. Most of it is spent waiting for threads to get a processor.
  std::chrono::nanoseconds take_time() { return std::exchange(time_, {}); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Proof {
    std::vector<Addr> middle;  // the instructions after the first that the jump overwrites
    bool is_begun = false;     // the threads are listed
    std::set<pid_t> open;      // threads that have not been seen outside
  };
  struct Process {
    std::uint64_t stamp = 0;
    std::map<Addr, Proof> proofs;
    pid_t latest = 0;  // the thread that was looked at last
    int looks = 0;
    Clock::time_point next_look{};
  };

  Status step(target::Target& target, Block& block, Process& process, std::span<const std::uint32_t> points);
  void begin(target::Target& target, Process& process);
  void look(target::Target& target, const std::vector<target::Mapping>& maps, const CodeRange& agent, Process& process);
  Status write(target::Target& target, Block& block, Process& process, std::span<const std::uint32_t> points);
  void note(const Block& block, std::uint32_t point, const std::string& why);
  void forget_ended();

  ArmState& state_;
  std::map<pid_t, Process> processes_;
  std::chrono::nanoseconds time_{0};
};

}  // namespace uprobe::control
