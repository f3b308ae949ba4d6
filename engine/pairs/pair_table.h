// SPDX-License-Identifier: MIT
// What is held: keys (addresses, descriptors) that one function gives out and another one takes back, process by process.
//
// Steps come in the order of time. A key is held from the return of the function that opens it to the entry of the one that
// closes it: in between no other thread can be given it.
//
//   nested calls      of functions that begin and open (realloc, memalign) the inner steps are left out: the outer call gives
//                     the key out. Where an inner return gives out the same key just before (calloc by malloc), it is one
//                     opening
//   realloc           takes the key at its entry, and gives it back if it fails
//   fork              a child has its own table, which is empty: keys that it has inherited are not known, and are left out
//   execve            gives up all that the process holds, unless it returns
//
// All numbers are hostile: nothing is an index or a length, and there are bounds (kMost...) beyond which steps are counted as
// dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace uprobe::format {

enum class PairRole : std::uint8_t {
  none,
  opening,    // gives a key out, as it returns
  closing,    // takes a key back, as it begins
  moving,     // takes a key as it begins; its opening gives out another one, or the same
  beginning,  // of a function that may call others of the pair before its opening
  throwing,   // the functions under way will not return
  exec,       // execve begins
  exec_back,  // it has failed
};

struct PairStep {
  PairRole role = PairRole::none;
  std::uint32_t function = 0;      // the same for the entry and the return of a function
  std::uint32_t pid = 0, tid = 0;  // pid 0: not known
  std::uint64_t ns = 0, key = 0, size = 0;
  bool has_failed = false;  // an opening that gives nothing out
};

struct Held {
  std::uint64_t size = 0, ns = 0;
  std::uint32_t stack = 0;
};

// How long a key was held, of those that were closed.
struct KeyTimes {
  std::uint64_t count = 0, total_ns = 0, longest_ns = 0;
};

class PairTable {
 public:
  static constexpr std::size_t kMostHeld = std::size_t{1} << 21, kMostKeys = std::size_t{1} << 18;
  static constexpr std::size_t kMostThreads = 65536, kMostProcesses = 65536;

  struct Process {
    std::string command;
    std::unordered_map<std::uint64_t, Held> held;
    std::unordered_map<std::uint64_t, KeyTimes> times;
    std::uint64_t opened = 0, closed = 0;
    std::uint64_t unknown = 0;        // closings of keys that were not seen to be opened
    std::uint64_t missed = 0;         // openings of keys that were held: their closings were not seen
    std::uint64_t dropped = 0;        // for lack of room
    std::uint32_t execs = 0;          // execve that has replaced its program
    std::uint32_t replacing_tid = 0;  // the thread that is in execve; 0: none
  };

  // `has_times`: by key.
  explicit PairTable(bool has_times) : has_times_(has_times) {}

  // `stack_of` is called where the number of the stack is wanted, once at most; its argument is the number of programs that
  // the process has executed.
  void take(const PairStep& step, std::string_view command,
            const std::function<std::uint32_t(std::uint32_t)>& stack_of);
  // No further step comes: calls that are under way give back what they have taken.
  void finish();
  const std::map<std::uint32_t, Process>& processes() const { return processes_; }

 private:
  struct Thread {
    std::uint32_t pid = 0;
    std::uint32_t outer = 0, inner_steps = 0;  // the function under way, which has begun; 0: none
    std::uint64_t moved_key = 0;
    std::optional<Held> moved;
    std::optional<std::uint64_t> just_opened;  // by the latest step, which was this function's
    std::uint32_t just_opened_by = 0;
    std::uint32_t just_closed_by = 0;  // the function that has closed a key, if only closings came after it; 0: none
  };

  Thread& thread_of(const PairStep& step);
  Process* process_of(std::uint32_t pid, std::string_view command);
  bool is_nested(Thread& thread, std::uint32_t function, Process& process);
  void leave(Thread& thread, Process& process);
  void begin(const PairStep& step, Thread& thread, Process& process);
  void open(const PairStep& step, Thread& thread, Process& process,
            const std::function<std::uint32_t(std::uint32_t)>& stack_of);
  void close(const PairStep& step, Thread& thread, Process& process);
  void hold(std::uint64_t key, const Held& held, Process& process);
  void give_up(Process& process);
  std::optional<Held> take_out(std::uint64_t key, Process& process);

  const bool has_times_;
  std::map<std::uint32_t, Process> processes_;
  std::unordered_map<std::uint32_t, Thread> threads_;
  std::size_t held_ = 0, keys_ = 0;  // in all processes
};

}  // namespace uprobe::format
