// Thread id and time -> the task's name, as the trace's first column and a late $comm need it.
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
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace uprobe::trace {

class TaskNames {
 public:
  static constexpr std::uint64_t kLatest = std::numeric_limits<std::uint64_t>::max();

  // `proc` is where /proc is mounted; `is_traced`: whether what has the number there is a thread of a traced process. Of others
  // nothing is read; null: all are.
  explicit TaskNames(std::string proc = "/proc", std::function<bool(std::uint32_t tid)> is_traced = nullptr);

  static std::uint64_t now_ns();

  // A new batch of records: names seen in it are read again if they are older than 100 ms.
  void begin_batch(std::uint64_t now_ns);
  // A record of that task has come in: reads its name if this batch has not asked yet.
  void see(std::uint32_t tid) { static_cast<void>(entry(tid)); }
  // The name, at most 15 bytes; sees the task. Valid until the next call. Names of earlier times than `ns` are forgotten.
  std::string_view name(std::uint32_t tid, std::uint64_t ns = kLatest);
  // Reads all names once more (a zombie still has one).
  void refresh_all();
  // A task was called so at that time.
  void learn(std::uint32_t tid, std::string_view name, std::uint64_t ns);
  // Numbers are those of the tasks' own PID namespaces. While there is one besides the tool's, they are believed to be of one task
  // each; where there are more a number says nothing, but for threads that are seen in the tool's. A namespace begins with task 1.
  void begin(std::uint32_t tid);
  void know_space(std::uint64_t space);
  // Those that are known now were there before the first that begins.
  void settle_spaces() { first_spaces_ = spaces_.size(); }
  // At that time somebody was about to give a task another name.
  void forget(std::uint32_t tid, std::uint64_t ns);

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
    bool is_here = false;     // seen among the traced processes of the tool's namespace
    std::vector<Name> names;  // by time
  };
  struct Recent {
    std::uint32_t tid = 0;
    Entry* entry = nullptr;
  };

  Entry& entry(std::uint32_t tid);
  Entry& find(std::uint32_t tid);
  void read(std::uint32_t tid, Entry& entry) const;
  bool is_ambiguous(const Entry& entry) const;
  // Whether a name that was seen at that time may be the one that is just being replaced.
  static bool is_doubtful(const Entry& entry, std::uint64_t ns);
  static void add(Entry& entry, const Name& name);
  static Name make(std::string_view name, std::uint64_t ns);

  std::string proc_;
  std::function<bool(std::uint32_t tid)> is_traced_;
  std::set<std::uint64_t> spaces_;  // other than the tool's
  std::size_t first_spaces_ = 0, begun_spaces_ = 0;
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::array<Recent, 64> recent_{};  // in front of the map: most records are of a few tasks
  std::uint64_t batch_ = 1;
  std::uint64_t now_ns_ = 0;
};

}  // namespace uprobe::trace
