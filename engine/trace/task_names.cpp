// Reading and remembering task names.
#include "engine/trace/task_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "engine/base/fd.h"

namespace uprobe::trace {

namespace {

constexpr std::string_view kUnknown = "<...>";
constexpr std::uint64_t kRefreshNs = 100'000'000;
// A target can put any number into the thread id of a record: it must not fill the tool's memory with names.
constexpr std::size_t kMostNames = 65536;
// Nor with the names that one task has had since its last hit that was printed.
constexpr std::size_t kMostChanges = 16;
constexpr std::size_t kMostSpaces = 2;  // more of them mean the same
// A thread that has opened the file of a name has written it after so long, unless it was stopped.
constexpr std::uint64_t kWrittenAfterNs = 20'000'000;

}  // namespace

std::uint64_t TaskNames::now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

TaskNames::TaskNames(std::string proc, std::function<bool(std::uint32_t tid)> is_traced)
    : proc_(std::move(proc)), is_traced_(std::move(is_traced)) {}

void TaskNames::begin(std::uint32_t tid) {
  if (tid == 1) ++begun_spaces_;
}

// A namespace's number is given again when it has ended: then it counts once, which is right.
void TaskNames::know_space(std::uint64_t space) {
  if (space != 0 && spaces_.size() < kMostSpaces) spaces_.insert(space);
}

bool TaskNames::is_ambiguous(const Entry& entry) const {
  return !entry.is_here && std::max(spaces_.size(), first_spaces_ + begun_spaces_) > 1;
}

void TaskNames::begin_batch(std::uint64_t now_ns) {
  ++batch_;
  now_ns_ = now_ns;
}

TaskNames::Entry& TaskNames::find(std::uint32_t tid) {
  Recent& recent = recent_[tid % recent_.size()];
  if (recent.entry != nullptr && recent.tid == tid) return *recent.entry;
  if (entries_.size() >= kMostNames && !entries_.contains(tid)) {
    entries_.clear();
    recent_.fill({});
  }
  recent = {tid, &entries_[tid]};
  return *recent.entry;
}

TaskNames::Entry& TaskNames::entry(std::uint32_t tid) {
  Entry& entry = find(tid);
  if (entry.batch == batch_) return entry;
  const bool is_new = entry.batch == 0;
  entry.batch = batch_;
  if (is_new || now_ns_ - entry.read_ns >= kRefreshNs) read(tid, entry);
  return entry;
}

std::string_view TaskNames::name(std::uint32_t tid, std::uint64_t ns) {
  Entry& known = entry(tid);
  if (is_ambiguous(known)) return kUnknown;
  std::vector<Name>& names = known.names;
  std::size_t at = 0;
  while (at + 1 < names.size() && names[at + 1].since <= ns) ++at;
  names.erase(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(at));
  for (const Name& name : names)
    if (name.known) return name.view();
  return kUnknown;
}

void TaskNames::refresh_all() {
  for (auto& [tid, entry] : entries_) read(tid, entry);
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

void TaskNames::learn(std::uint32_t tid, std::string_view name, std::uint64_t ns) {
  Entry& known = find(tid);
  if (!is_doubtful(known, ns)) add(known, make(name, ns));
}

void TaskNames::forget(std::uint32_t tid, std::uint64_t ns) {
  Entry& entry = find(tid);
  add(entry, {.since = ns});
  read(tid, entry);
}

// A task that is gone keeps the name that it had. The name may itself contain newlines; the last one is the file's. Where another
// thread was about to write it, what stands there may still be the old one: it is read again with the next batch.
void TaskNames::read(std::uint32_t tid, Entry& entry) const {
  entry.read_ns = now_ns_;
  if (is_traced_ && !entry.is_here && !is_traced_(tid)) return;
  entry.is_here = true;
  const std::string path = proc_ + "/" + std::to_string(tid) + "/comm";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
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
