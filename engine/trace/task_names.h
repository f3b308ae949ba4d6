// Thread id -> the task's name, as the trace's first column and a late $comm need it. Read from /proc while the task
// lives and remembered after that; a task that nobody ever saw alive is "<...>", as in ftrace. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace uprobe::trace {

class TaskNames {
 public:
  // `proc` is where /proc is mounted.
  explicit TaskNames(std::string proc = "/proc");

  // A new batch of records: names seen in it are read again if they are older than 100 ms. `now_ns` is any steady
  // clock.
  void begin_batch(std::uint64_t now_ns);
  // A record of that task has come in: reads its name if this batch has not asked yet.
  void see(std::uint32_t tid) { static_cast<void>(entry(tid)); }
  // The name, at most 15 bytes; sees the task. Valid until the next call.
  std::string_view name(std::uint32_t tid);
  // Reads all names once more (a zombie still has one).
  void refresh_all();
  // What a task is called, from someone who knows.
  void preset(std::uint32_t tid, std::string_view name);

 private:
  struct Entry {
    std::uint64_t batch = 0;
    std::uint64_t read_ns = 0;
    bool known = false;
    std::uint8_t length = 0;
    std::array<char, 15> text{};
  };
  struct Recent {
    std::uint32_t tid = 0;
    Entry* entry = nullptr;
  };

  Entry& entry(std::uint32_t tid);
  Entry& find(std::uint32_t tid);
  void read(std::uint32_t tid, Entry& entry) const;
  static void set(Entry& entry, std::string_view name);

  std::string proc_;
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::array<Recent, 64> recent_{};  // in front of the map: most records are of a few tasks
  std::uint64_t batch_ = 1;
  std::uint64_t now_ns_ = 0;
};

}  // namespace uprobe::trace
