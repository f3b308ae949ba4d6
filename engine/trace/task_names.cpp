// SPDX-License-Identifier: MIT
// Reads and remembers task names.
#include "engine/trace/task_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"

namespace uprobe::trace {

namespace {

constexpr std::string_view kUnknown = "<...>";
constexpr std::uint64_t kRefreshNs = 100'000'000, kRetryNs = 10'000'000;
// A target can put any id into a record, and must not fill the tool's memory with names.
constexpr std::size_t kMostNames = 65536;
// Nor with the names of one task since its last printed hit.
constexpr std::size_t kMostChanges = 16;
// A thread that has opened the file of a name has written it after this time, unless it was stopped.
constexpr std::uint64_t kWrittenAfterNs = 20'000'000;

}  // namespace

std::uint64_t TaskNames::now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

TaskNames::TaskNames(std::string proc, std::function<bool(std::uint32_t tid, bool is_elsewhere)> is_traced)
    : proc_(std::move(proc)), is_traced_(std::move(is_traced)), numbers_(proc_, nullptr) {
  if (is_traced_)
    numbers_ = TaskNumbers(proc_, [ask = is_traced_](std::uint32_t process) { return ask(process, true); });
}

void TaskNames::begin_batch(std::uint64_t now_ns) {
  ++batch_;
  now_ns_ = now_ns;
}

TaskNames::Entry& TaskNames::find(std::uint64_t key) {
  Recent& recent = recent_[(key ^ key >> 32) % recent_.size()];
  if (recent.entry != nullptr && recent.key == key) return *recent.entry;
  if (entries_.size() >= kMostNames && !entries_.contains(key)) {
    entries_.clear();
    elsewhere_.clear();
    recent_.fill({});
  }
  recent = {key, &entries_[key]};
  return *recent.entry;
}

TaskNames::Entry& TaskNames::entry(const Task& task) {
  Entry& entry = find(task.key());
  if (entry.batch == batch_) return entry;
  const bool is_new = entry.batch == 0;
  entry.batch = batch_;
  if (is_new || now_ns_ - entry.read_ns >= kRefreshNs) read(task.number(), entry);
  return entry;
}

std::string_view TaskNames::name(const Task& task, std::uint64_t ns) {
  std::vector<Name>& names = entry(task).names;
  std::size_t at = 0;
  while (at + 1 < names.size() && names[at + 1].since <= ns) ++at;
  names.erase(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(at));
  for (const Name& name : names)
    if (name.known) return name.view();
  return kUnknown;
}

TaskNames::Period TaskNames::name_at(const Task& task, std::uint64_t ns) {
  const std::vector<Name>& names = entry(task).names;
  const auto later = std::find_if(names.begin() + (names.empty() ? 0 : 1), names.end(),
                                  [&](const Name& name) { return name.since > ns; });
  const std::uint64_t until = later == names.end() ? kLatest : later->since;
  const auto known = std::find_if(later - (names.empty() ? 0 : 1), names.end(), std::mem_fn(&Name::known));
  return {known == names.end() ? kUnknown : known->view(), until};
}

std::uint32_t TaskNames::number(const Task& task) {
  const shared::TaskNumber& of = task.number();
  if (!of.is_elsewhere()) return of.thread;
  const Entry& known = entry(task);
  return known.number != 0 ? known.number : of.of_child ? 0 : of.process;
}

std::uint32_t TaskNames::process(const Task& task) {
  const std::uint32_t known = entry(task).process;
  return known != 0 || task.number().of_child ? known : task.number().process;
}

void TaskNames::learn_process(const Task& task, std::uint32_t process) {
  if (process != 0) find(task.key()).process = process;
}

Task TaskNames::called(std::uint32_t number) const {
  const auto found = elsewhere_.find(number);
  return found == elsewhere_.end() ? Task(number) : Task(shared::task_of_key(found->second));
}

void TaskNames::learn_number(const Task& task, std::uint32_t number) {
  if (!task.number().is_elsewhere() || number == 0) return;
  find(task.key()).number = number;
  elsewhere_[number] = task.key();
}

void TaskNames::begin(const Task& task) {
  if (!task.number().is_elsewhere()) return;
  Entry& begun = find(task.key());
  begun.number = 0;
  begun.batch = 0;
}

void TaskNames::refresh_all() {
  for (auto& [key, entry] : entries_) read(shared::task_of_key(key), entry);
}

TaskNames::Name TaskNames::make(std::string_view name, std::uint64_t ns) {
  Name made{.since = ns, .known = true};
  made.length = static_cast<std::uint8_t>(std::min(name.size(), made.text.size()));
  std::copy_n(name.begin(), made.length, made.text.begin());
  return made;
}

void TaskNames::add(Entry& entry, const Name& name) {
  std::vector<Name>& names = entry.names;
  if (names.size() >= kMostChanges) names.erase(names.begin());
  const auto is_later = [](std::uint64_t ns, const Name& other) { return ns < other.since; };
  names.insert(std::upper_bound(names.begin(), names.end(), name.since, is_later), name);
}

bool TaskNames::is_doubtful(const Entry& entry, std::uint64_t ns) {
  return !entry.names.empty() && !entry.names.back().known && ns < entry.names.back().since + kWrittenAfterNs;
}

void TaskNames::learn(const Task& task, std::string_view name, std::uint64_t ns) {
  Entry& known = find(task.key());
  if (!is_doubtful(known, ns)) add(known, make(name, ns));
}

void TaskNames::forget(const Task& task, std::uint64_t ns) {
  Entry& entry = find(task.key());
  add(entry, {.since = ns});
  read(task.number(), entry);
}

// If there was no time it tries again with the next batch, and soon if there was no such task, whose process may be in execve.
// A found id is kept after the task has gone.
bool TaskNames::find_number(const shared::TaskNumber& task, Entry& entry) {
  const TaskNumbers::Found found = numbers_.find(task);
  if (entry.number == 0 && found.number == 0) entry.read_ns -= kRefreshNs - kRetryNs;
  if (!found.has_looked) entry.read_ns = 0;
  if (found.number != 0) learn_number(task, found.number);
  return found.number != 0;
}

// A task that is gone keeps its last name. A name may contain newlines; the last one belongs to the file. If another thread was
// about to write the name, the file may still have the old one, so it is read again with the next batch.
void TaskNames::read(const shared::TaskNumber& task, Entry& entry) {
  entry.read_ns = now_ns_;
  if (task.is_elsewhere()) {
    if (!find_number(task, entry)) return;
  } else if (is_traced_ && !entry.is_here && !is_traced_(task.thread, false)) {
    return;
  }
  entry.is_here = true;
  const std::string path = proc_ + "/" + std::to_string(task.is_elsewhere() ? entry.number : task.thread);
  if (const auto status = read_file(path + "/status"))
    entry.process = static_cast<std::uint32_t>(procfs::number(*status, "Tgid"));
  const Fd file(::open((path + "/comm").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return;
  const std::uint64_t begun = now_ns();
  std::array<char, 64> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got <= 0) return;
  std::string_view name(text.data(), static_cast<std::size_t>(got));
  if (name.ends_with('\n')) name.remove_suffix(1);
  const Name found = make(name, now_ns());
  if (is_doubtful(entry, begun))
    entry.read_ns = 0;
  else if (entry.names.empty() || !entry.names.back().known || entry.names.back().view() != found.view())
    add(entry, found);
}

}  // namespace uprobe::trace
