// SPDX-License-Identifier: MIT
#include "engine/symbolize/code_maps.h"

#include <time.h>

#include <algorithm>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/process/processes.h"
#include "engine/proxy/memory.h"

namespace uprobe::control {
namespace {

// Limits, because a process may map files again and again, and there may be any number of processes.
constexpr std::size_t kMostFiles = 4096, kMostBytesOfOne = 1 << 20, kMostBytes = 32 << 20;

bool has(const std::vector<CodeMapping>& book, const CodeMapping& mapping) {
  return std::find(book.begin(), book.end(), mapping) != book.end();
}

bool has_anchor(const std::vector<CodeMapping>& book, const CodeMaps::Anchor& anchor) {
  return std::any_of(book.begin(), book.end(), [&](const CodeMapping& m) {
    return m.holds(anchor.address) && m.inode == anchor.inode && m.offset_of(anchor.address) == anchor.offset;
  });
}

bool same_place(const CodeMapping& a, const CodeMapping& b, std::uint64_t address) {
  return a.inode == b.inode && a.path == b.path && a.offset_of(address) == b.offset_of(address);
}

std::uint64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// Adds those that are not in `found` yet.
void add_places(const std::vector<CodeMapping>& book, std::uint64_t address, std::vector<CodeMapping>& found) {
  for (const CodeMapping& m : book) {
    const bool known =
        std::any_of(found.begin(), found.end(), [&](const CodeMapping& f) { return same_place(f, m, address); });
    if (m.holds(address) && !known) found.push_back(m);
  }
}

}  // namespace

// Merges ranges, because code generators change the protection of parts of their memory again and again.
bool CodeMaps::add_generated(Book& book, std::uint64_t begin, std::uint64_t end) {
  constexpr std::size_t kMost = 1024;
  const bool is_known = std::ranges::any_of(
      book.generated, [&](const auto& range) { return range.first <= begin && end <= range.second; });
  if (is_known || book.generated.size() >= kMost) return false;
  book.generated.emplace_back(begin, end);
  return true;
}

bool CodeMaps::has_generated(const Book& book, std::uint64_t address) {
  return std::ranges::any_of(book.generated,
                             [&](const auto& range) { return range.first <= address && address < range.second; });
}

// 0: the thread is gone. If another process has the id by now, the anchor shows it.
pid_t CodeMaps::process_of(pid_t tid) {
  constexpr std::size_t kMost = 4096;
  {
    const std::lock_guard lock(lock_);
    if (books_.contains(tid)) return tid;
    if (const auto known = processes_.find(tid); known != processes_.end()) return known->second;
  }
  const pid_t pid = process_of_thread(tid);
  const std::lock_guard lock(lock_);
  if (processes_.size() >= kMost) processes_.clear();
  return processes_[tid] = pid;
}

void CodeMaps::note_since(pid_t tid, std::uint64_t moment) {
  const pid_t pid = process_of(tid);
  if (pid == 0) return;
  {
    const std::lock_guard lock(lock_);
    const auto book = books_.find(pid);
    if (book != books_.end() && book->second.noted >= moment) return;
  }
  note(pid);
}

void CodeMaps::note(pid_t pid) {
  const std::uint64_t begun = now();
  const auto text = proxy::read_of(pid, procfs::path(pid, "maps"));
  if (!text) return;
  const std::vector<target::Mapping> maps = target::parse_maps(*text);
  const std::lock_guard lock(lock_);
  Book& book = books_[pid];
  book.noted = begun;
  for (const target::Mapping& m : maps) {
    if (!m.executable) continue;
    if (!m.is_file() && m.path != kVdso) {
      if (add_generated(book, m.begin.value, m.end.value)) ++generation_;
      continue;
    }
    add_file(book, {m.begin.value, m.end.value, m.offset, m.inode, m.path});
  }
  while (bytes_ > kMostBytes && books_.size() > 1) forget_oldest(pid);
}

void CodeMaps::add_file(Book& book, CodeMapping mapping) {
  if (book.is_full || has(book.files, mapping)) return;
  const std::size_t bytes = sizeof mapping + mapping.path.size();
  ++generation_;
  if (book.files.size() == kMostFiles || book.bytes + bytes > kMostBytesOfOne) {
    book.is_full = true;
    ++overfull_;
    return;
  }
  book.files.push_back(std::move(mapping));
  book.bytes += bytes, bytes_ += bytes;
}

// Drops the book that was read longest ago: its process has most likely ended.
void CodeMaps::forget_oldest(pid_t but) {
  auto oldest = books_.end();
  for (auto book = books_.begin(); book != books_.end(); ++book)
    if (book->first != but && (oldest == books_.end() || book->second.noted < oldest->second.noted)) oldest = book;
  bytes_ -= oldest->second.bytes;
  books_.erase(oldest);
  has_forgotten_ = true;
  ++generation_;
}

std::vector<CodeMapping> CodeMaps::anywhere(std::uint64_t address) const {
  std::vector<CodeMapping> found;
  const std::lock_guard lock(lock_);
  bool is_generated = false;
  for (const auto& [pid, book] : books_) {
    if (book.is_full) continue;
    add_places(book.files, address, found);
    is_generated = is_generated || has_generated(book, address);
  }
  if (is_generated) found.clear();
  return found;
}

// The book of the process or, if it has none, all books; only those that have the anchor.
template <class Visit>
void CodeMaps::each_book(pid_t pid, const Anchor& anchor, const Visit& visit) const {
  const auto look = [&](const Book& book) {
    if (!book.is_full && has_anchor(book.files, anchor)) visit(book);
  };
  const std::lock_guard lock(lock_);
  if (const auto own = books_.find(pid); own != books_.end()) return look(own->second);
  const auto process = processes_.find(pid);
  const auto its = process == processes_.end() ? books_.end() : books_.find(process->second);
  if (its != books_.end()) return look(its->second);
  if (has_forgotten_) return;
  for (const auto& [other, book] : books_) look(book);
}

std::vector<CodeMapping> CodeMaps::at(pid_t pid, const Anchor& anchor, std::uint64_t address) const {
  std::vector<CodeMapping> found;
  bool is_generated = false;
  each_book(pid, anchor, [&](const Book& book) {
    add_places(book.files, address, found);
    is_generated = is_generated || has_generated(book, address);
  });
  if (is_generated) found.clear();
  return found;
}

bool CodeMaps::has_code(pid_t pid, const Anchor& anchor, std::uint64_t address) const {
  bool found = false;
  each_book(pid, anchor, [&](const Book& book) {
    found = found || std::ranges::any_of(book.files, [&](const CodeMapping& m) { return m.holds(address); }) ||
            has_generated(book, address);
  });
  return found;
}

std::size_t CodeMaps::overfull() const {
  const std::lock_guard lock(lock_);
  return overfull_;
}

std::uint64_t CodeMaps::generation() const {
  const std::lock_guard lock(lock_);
  return generation_;
}

}  // namespace uprobe::control
