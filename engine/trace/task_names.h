// SPDX-License-Identifier: MIT
// Task and time -> the task's name, as the trace's first column and a late $comm need it; and its number in the tool's PID namespace.
//
// The agent tells the name of each thread that it sees begin or renamed (engine/shared/task_name.h), the mail service those of programs
// that execve starts; names are also read from /proc while the task lives, and remembered after that. A hit shows the name
// that was the last known one at its time, or else the first that became known later. A task that has ended before any of this
// is "<...>", as in ftrace. Times are of CLOCK_MONOTONIC, in nanoseconds. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/shared/task_number.h"
#include "engine/trace/task_numbers.h"

namespace uprobe::trace {

// A task as a record names it, or by its number in the tool's PID namespace.
class Task {
 public:
  Task(std::uint32_t tid) : number_{.process = 0, .thread = tid} {}
  Task(const shared::TaskNumber& number) : number_(number) {}
  const shared::TaskNumber& number() const { return number_; }
  std::uint64_t key() const { return number_.key(); }

 private:
  shared::TaskNumber number_;
};

class TaskNames {
 public:
  static constexpr std::uint64_t kLatest = std::numeric_limits<std::uint64_t>::max();

  // `proc` is where /proc is mounted; `is_traced`: whether what has the number there is a thread of a traced process, which is in the
  // tool's PID namespace or not. Of others nothing is read; null: all are.
  explicit TaskNames(std::string proc = "/proc",
                     std::function<bool(std::uint32_t tid, bool is_elsewhere)> is_traced = nullptr);

  static std::uint64_t now_ns();

  // A new batch of records: names seen in it are read again if they are older than 100 ms.
  void begin_batch(std::uint64_t now_ns);
  // A record of that task has come in: reads its name, and its number, if this batch has not asked yet.
  void see(const Task& task) { static_cast<void>(entry(task)); }
  // The name, at most 15 bytes; sees the task. Valid until the next call. Names of earlier times than `ns` are forgotten.
  std::string_view name(const Task& task, std::uint64_t ns = kLatest);
  // In the tool's PID namespace. Of a thread that had ended before anybody looked the process's; 0 of a child of which nothing is known.
  std::uint32_t number(const Task& task);
  // The task that has the number.
  Task called(std::uint32_t number) const;
  // Reads all names once more (a zombie still has one).
  void refresh_all();
  // A task was called so at that time.
  void learn(const Task& task, std::string_view name, std::uint64_t ns);
  // It has this number.
  void learn_number(const Task& task, std::uint32_t number);
  // A new one has this number of its own from now on.
  void begin(const Task& task);
  // At that time somebody was about to give a task another name.
  void forget(const Task& task, std::uint64_t ns);

 private:
  struct Name {
    std::uint64_t since = 0;
    bool known = false;
    std::uint8_t length = 0;
    std::array<char, 15> text{};
    std::string_view view() const { return {text.data(), length}; }
  };
  struct Entry {
    std::uint64_t batch = 0;
    std::uint64_t read_ns = 0;
    bool is_here = false;      // seen among the traced processes of the tool's namespace
    std::uint32_t number = 0;  // of a task of another namespace; 0: not known
    std::vector<Name> names;   // by time
  };
  struct Recent {
    std::uint64_t key = 0;
    Entry* entry = nullptr;
  };

  Entry& entry(const Task& task);
  Entry& find(std::uint64_t key);
  void read(const shared::TaskNumber& task, Entry& entry);
  bool find_number(const shared::TaskNumber& task, Entry& entry);
  // Whether a name that was seen at that time may be the one that is just being replaced.
  static bool is_doubtful(const Entry& entry, std::uint64_t ns);
  static void add(Entry& entry, const Name& name);
  static Name make(std::string_view name, std::uint64_t ns);

  std::string proc_;
  std::function<bool(std::uint32_t tid, bool is_elsewhere)> is_traced_;
  TaskNumbers numbers_;
  std::unordered_map<std::uint64_t, Entry> entries_;            // by Task::key()
  std::unordered_map<std::uint32_t, std::uint64_t> elsewhere_;  // number here -> key, of other namespaces
  std::array<Recent, 64> recent_{};                             // in front of the map: most records are of a few tasks
  std::uint64_t batch_ = 1;
  std::uint64_t now_ns_ = 0;
};

}  // namespace uprobe::trace
