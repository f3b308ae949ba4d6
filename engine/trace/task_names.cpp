// Reading and remembering task names.
#include "engine/trace/task_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "engine/base/fd.h"

namespace uprobe::trace {

namespace {

constexpr std::string_view kUnknown = "<...>";
constexpr std::uint64_t kRefreshNs = 100'000'000;
// A target can put any number into the thread id of a record: it must not fill the tool's memory with names.
constexpr std::size_t kMostNames = 65536;

}  // namespace

TaskNames::TaskNames(std::string proc) : proc_(std::move(proc)) {}

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

std::string_view TaskNames::name(std::uint32_t tid) {
  const Entry& found = entry(tid);
  return found.known ? std::string_view(found.text.data(), found.length) : kUnknown;
}

void TaskNames::refresh_all() {
  for (auto& [tid, entry] : entries_) read(tid, entry);
}

void TaskNames::preset(std::uint32_t tid, std::string_view name) {
  Entry& entry = find(tid);
  entry.batch = batch_;
  entry.read_ns = now_ns_;
  set(entry, name);
}

void TaskNames::set(Entry& entry, std::string_view name) {
  entry.known = true;
  entry.length = static_cast<std::uint8_t>(std::min(name.size(), entry.text.size()));
  std::copy_n(name.begin(), entry.length, entry.text.begin());
}

// A task that is gone keeps the name that it had. The name may itself contain newlines; the last one is the file's.
void TaskNames::read(std::uint32_t tid, Entry& entry) const {
  entry.read_ns = now_ns_;
  const std::string path = proc_ + "/" + std::to_string(tid) + "/comm";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return;
  std::array<char, 64> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got <= 0) return;
  std::string_view name(text.data(), static_cast<std::size_t>(got));
  if (name.ends_with('\n')) name.remove_suffix(1);
  set(entry, name);
}

}  // namespace uprobe::trace
