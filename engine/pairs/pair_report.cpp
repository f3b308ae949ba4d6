// SPDX-License-Identifier: MIT
#include "engine/pairs/pair_report.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/output/escape.h"
#include "engine/output/json_text.h"

namespace uprobe::format {
namespace {

constexpr std::size_t kShown = 20;
constexpr std::string_view kLeaks = "leak";  // the group of --leak

struct StackSum {
  std::uint64_t bytes = 0, count = 0;
  std::uint32_t stack = 0;
};

struct KeySum {
  std::uint64_t key = 0;
  KeyTimes times;
};

std::vector<StackSum> sums_of(const PairTable::Process& process, const PairStacks& stacks) {
  std::map<std::uint32_t, StackSum> by_stack;
  for (const auto& [key, held] : process.held) {
    StackSum& sum = by_stack[held.stack];
    sum.bytes += held.size, ++sum.count, sum.stack = held.stack;
  }
  std::vector<StackSum> sums;
  sums.reserve(by_stack.size());
  for (const auto& [stack, sum] : by_stack) sums.push_back(sum);
  std::ranges::sort(sums, [&](const StackSum& a, const StackSum& b) {
    return std::tie(b.bytes, b.count, stacks.names(a.stack)) < std::tie(a.bytes, a.count, stacks.names(b.stack));
  });
  return sums;
}

std::vector<KeySum> times_of(const PairTable::Process& process) {
  std::vector<KeySum> keys;
  keys.reserve(process.times.size());
  for (const auto& [key, times] : process.times) keys.push_back({key, times});
  std::ranges::sort(keys, [](const KeySum& a, const KeySum& b) {
    return std::tie(b.times.total_ns, a.key) < std::tie(a.times.total_ns, b.key);
  });
  return keys;
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string counted(std::uint64_t number, const std::string& one) {
  return grouped(number) + " " + one + (number == 1 ? "" : "s");
}

std::string microseconds(std::uint64_t ns) {
  const std::string rest = std::to_string(1000 + ns % 1000);
  return grouped(ns / 1000) + "." + rest.substr(1) + " us";
}

// The words for a group.
struct Words {
  std::string thing, opened, closed;
};

Words words_of(const std::string& group) {
  if (group == kLeaks) return {"block", "allocated", "freed"};
  return {"key", "opened", "closed"};
}

class Text {
 public:
  Text(const std::string& name, const PairGroup& group, const PairStacks& stacks, Buffer& out)
      : name_(escaped(name)), words_(words_of(name)), group_(group), stacks_(stacks), out_(out) {}

  void add() {
    bool is_empty = true;
    for (const auto& [pid, process] : group_.processes()) {
      if (process.opened == 0) continue;
      add(pid, process);
      is_empty = false;
    }
    if (is_empty) line(name_ + ": no " + words_.thing + " was " + words_.opened);
    notes();
  }

 private:
  void line(const std::string& text) { out_.add(text + "\n"); }
  std::string amount(std::uint64_t count, std::uint64_t bytes) const {
    return (group_.has_sizes ? counted(bytes, "byte") + " in " : "") + counted(count, words_.thing);
  }
  void add(std::uint32_t pid, const PairTable::Process& process);
  void stacks(const PairTable::Process& process);
  void times(const PairTable::Process& process);
  void notes();

  const std::string name_;
  const Words words_;
  const PairGroup& group_;
  const PairStacks& stacks_;
  Buffer& out_;
};

void Text::add(std::uint32_t pid, const PairTable::Process& process) {
  std::uint64_t bytes = 0;
  for (const auto& [key, held] : process.held) bytes += held.size;
  line(name_ + ": process " + std::to_string(pid) + " (" + escaped(process.command) +
       "): " + amount(process.held.size(), bytes) + " not " + words_.closed + ", of " + grouped(process.opened) + " " +
       words_.opened);
  stacks(process);
  times(process);
  if (process.unknown != 0)
    line("  " + counted(process.unknown, words_.thing) + " " + words_.closed + " that " +
         (process.unknown == 1 ? "was" : "were") + " not seen to be " + words_.opened +
         ": before the tracing, by a parent, or for an allocator's cache");
  if (process.missed != 0)
    line("  " + counted(process.missed, words_.thing) + " " + words_.opened + " again without being " + words_.closed +
         ": there are other ways to do that, or records are missing");
  if (process.dropped != 0)
    line("  " + grouped(process.dropped) + " had no room in the table: the numbers are too small");
}

void Text::stacks(const PairTable::Process& process) {
  const std::vector<StackSum> sums = sums_of(process, stacks_);
  StackSum others;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const StackSum& sum = sums[i];
    if (i >= kShown) {
      others.bytes += sum.bytes, others.count += sum.count;
      continue;
    }
    line("  " + amount(sum.count, sum.bytes));
    for (const std::string& name : stacks_.names(sum.stack)) line("    " + name);
  }
  if (others.count != 0)
    line("  " + amount(others.count, others.bytes) + " by " + counted(sums.size() - kShown, "other stack") +
         " (--json has all)");
}

void Text::times(const PairTable::Process& process) {
  const std::vector<KeySum> keys = times_of(process);
  for (std::size_t i = 0; i < keys.size() && i < kShown; ++i)
    line("  " + hex(keys[i].key) + " held " + counted(keys[i].times.count, "time") + ", " +
         microseconds(keys[i].times.total_ns) + " in all, " + microseconds(keys[i].times.longest_ns) + " at most");
  if (keys.size() > kShown) line("  " + counted(keys.size() - kShown, "other key") + " (--json has all)");
}

void Text::notes() {
  const std::string wrong = ": the report may be wrong";
  if (group_.lost != 0) line(name_ + ": " + counted(group_.lost, "record") + " lost" + wrong);
  if (group_.unfollowed != 0)
    line(name_ + ": " + counted(group_.unfollowed, "return") + " could not be followed" + wrong);
  if (group_.unread != 0)
    line(name_ + ": " + counted(group_.unread, "record") + " without a key that could be read" + wrong);
}

class Json {
 public:
  explicit Json(Buffer& out) : out_(out) {}

  void object(const std::string& name, const PairGroup& group, std::uint32_t pid, const PairTable::Process& process,
              const PairStacks& stacks);
  void end() { out_.add(is_first_ ? "[]\n" : "\n]\n"); }

 private:
  void number(const char* name, std::uint64_t value) {
    out_.add(std::string(",\"") + name + "\":" + std::to_string(value));
  }
  void stacks_of(const PairTable::Process& process, const PairStacks& stacks);
  void times(const PairTable::Process& process);

  Buffer& out_;
  bool is_first_ = true;
};

void Json::stacks_of(const PairTable::Process& process, const PairStacks& stacks) {
  const char* before = ",\"stacks\":[";
  for (const StackSum& sum : sums_of(process, stacks)) {
    out_.add(std::string(before) + R"({"bytes":)" + std::to_string(sum.bytes));
    number("count", sum.count);
    const char* before_frame = ",\"frames\":[";
    for (const std::string& frame : stacks.names(sum.stack))
      out_.add(std::exchange(before_frame, ",") + json_of(frame));
    out_.add("]}");
    before = ",";
  }
  out_.add(process.held.empty() ? ",\"stacks\":[]" : "]");
}

void Json::times(const PairTable::Process& process) {
  const char* before = ",\"keys\":[";
  for (const KeySum& key : times_of(process)) {
    out_.add(std::string(before) + R"({"key":")" + hex(key.key) + "\"");
    number("count", key.times.count), number("held_ns", key.times.total_ns), number("longest_ns", key.times.longest_ns);
    out_.add("}");
    before = ",";
  }
  out_.add(process.times.empty() ? ",\"keys\":[]" : "]");
}

void Json::object(const std::string& name, const PairGroup& group, std::uint32_t pid, const PairTable::Process& process,
                  const PairStacks& stacks) {
  out_.add(std::exchange(is_first_, false) ? "[\n " : ",\n ");
  out_.add(R"({"pair":)" + json_of(name) + R"(,"pid":)" + std::to_string(pid) + R"(,"command":)" +
           json_of(process.command));
  std::uint64_t bytes = 0;
  for (const auto& [key, held] : process.held) bytes += held.size;
  number("opened", process.opened), number("closed", process.closed), number("held", process.held.size());
  number("bytes", bytes), number("unknown", process.unknown), number("missed", process.missed);
  number("dropped", process.dropped), number("lost", group.lost), number("unfollowed", group.unfollowed);
  number("unread", group.unread);
  stacks_of(process, stacks);
  times(process);
  out_.add("}");
}

}  // namespace

void add_report(const std::map<std::string, PairGroup>& groups, const PairStacks& stacks, Buffer& out) {
  for (const auto& [name, group] : groups)
    if (group.is_pair) Text(name, group, stacks, out).add();
}

void add_json_report(const std::map<std::string, PairGroup>& groups, const PairStacks& stacks, Buffer& out) {
  Json json(out);
  for (const auto& [name, group] : groups) {
    for (const auto& [pid, process] : group.processes())
      if (process.opened != 0) json.object(name, group, pid, process, stacks);
  }
  json.end();
}

}  // namespace uprobe::format
