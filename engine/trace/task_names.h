// SPDX-License-Identifier: MIT
// Maps a task and a time to the task's name, for the first column of the trace and for a late $comm; and a task to its id in
// the tool's PID namespace.
//
// The agent reports the name of each thread that it sees begin or renamed (engine/shared/task_name.h), the mail service the
// names of programs that execve starts. Names are also read from /proc while the task lives, and remembered. A hit shows the
// last name known at its time, or else the first one that became known later. A task that ended before any of this is "<...>",
// as in ftrace. Times are CLOCK_MONOTONIC, in nanoseconds. Not thread-safe.
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

// A task as a record names it, or by its id in the tool's PID namespace.
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

  // `proc`: where /proc is mounted. `is_traced`: whether the id there is a thread of a traced process, in the tool's PID
  // namespace or in another one. Nothing is read of other tasks. Null: all are traced.
  explicit TaskNames(std::string proc = "/proc",
                     std::function<bool(std::uint32_t tid, bool is_elsewhere)> is_traced = nullptr);

  static std::uint64_t now_ns();

  // Starts a batch of records: names that occur in it are read again if they are older than 100 ms.
  void begin_batch(std::uint64_t now_ns);
  // A record of that task has come: reads its name and id, unless this batch has read them.
  void see(const Task& task) { static_cast<void>(entry(task)); }
  // The name, at most 15 bytes; calls see(). Valid until the next call. Names from before `ns` are forgotten.
  std::string_view name(const Task& task, std::uint64_t ns = kLatest);
  // The same for a time that need not be later than that of the last call: nothing is forgotten.
  struct Period {
    std::string_view name;
    std::uint64_t until;  // a later time has another one
  };
  Period name_at(const Task& task, std::uint64_t ns);
  // The id in the tool's PID namespace. For a thread that ended before its id was read, its process's; 0 for a child about
  // which nothing is known.
  std::uint32_t number(const Task& task);
  // The id of its process there; 0: it ended before that was read.
  std::uint32_t process(const Task& task);
  // The task with this id.
  Task called(std::uint32_t number) const;
  // Reads all names again (a zombie still has one).
  void refresh_all();
  // The task had this name at that time.
  void learn(const Task& task, std::string_view name, std::uint64_t ns);
  // Its process has this id in the tool's PID namespace; 0: it is not known.
  void learn_process(const Task& task, std::uint32_t process);
  // The task has this id.
  void learn_number(const Task& task, std::uint32_t number);
  // A new task has this number from now on.
  void begin(const Task& task);
  // At that time a thread was about to rename a task.
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
    bool is_here = false;       // seen as a traced task of the tool's namespace
    std::uint32_t number = 0;   // id here of a task of another namespace; 0: not known
    std::uint32_t process = 0;  // id here of its process; 0: not known
    std::vector<Name> names;    // by time
  };
  struct Recent {
    std::uint64_t key = 0;
    Entry* entry = nullptr;
  };

  Entry& entry(const Task& task);
  Entry& find(std::uint64_t key);
  void read(const shared::TaskNumber& task, Entry& entry);
  bool find_number(const shared::TaskNumber& task, Entry& entry);
  // Whether a name seen at that time may be one that is just being replaced.
  static bool is_doubtful(const Entry& entry, std::uint64_t ns);
  static void add(Entry& entry, const Name& name);
  static Name make(std::string_view name, std::uint64_t ns);

  std::string proc_;
  std::function<bool(std::uint32_t tid, bool is_elsewhere)> is_traced_;
  TaskNumbers numbers_;
  std::unordered_map<std::uint64_t, Entry> entries_;            // by Task::key()
  std::unordered_map<std::uint32_t, std::uint64_t> elsewhere_;  // id here -> key, for tasks of other namespaces
  std::array<Recent, 64> recent_{};  // a cache for `entries_`: most records belong to a few tasks
  std::uint64_t batch_ = 1;
  std::uint64_t now_ns_ = 0;
};

}  // namespace uprobe::trace
