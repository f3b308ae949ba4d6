#include "engine/control/code_maps.h"

#include <algorithm>

#include "engine/base/fd.h"

namespace uprobe::control {
namespace {

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

// Those that are not among them yet.
void add_places(const std::vector<CodeMapping>& book, std::uint64_t address, std::vector<CodeMapping>& found) {
  for (const CodeMapping& m : book) {
    const bool known =
        std::any_of(found.begin(), found.end(), [&](const CodeMapping& f) { return same_place(f, m, address); });
    if (m.holds(address) && !known) found.push_back(m);
  }
}

}  // namespace

// Code generators change the protection of parts of their memory again and again.
bool CodeMaps::add_generated(Book& book, std::uint64_t begin, std::uint64_t end) {
  constexpr std::size_t kMost = 1024;
  const bool is_known = std::ranges::any_of(
      book.generated, [&](const auto& range) { return range.first <= begin && end <= range.second; });
  if (is_known || book.generated.size() >= kMost) return false;
  book.generated.emplace_back(begin, end);
  return true;
}

void CodeMaps::note(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/maps");
  if (!text) return;
  const std::vector<target::Mapping> maps = target::parse_maps(*text);
  const std::lock_guard lock(lock_);
  Book& book = books_[pid];
  for (const target::Mapping& m : maps) {
    if (!m.executable) continue;
    if (!m.is_file() && m.path != kVdso) {
      if (add_generated(book, m.begin.value, m.end.value)) ++generation_;
      continue;
    }
    CodeMapping mapping{m.begin.value, m.end.value, m.offset, m.inode, m.path};
    if (has(book.files, mapping)) continue;
    book.files.push_back(std::move(mapping));
    ++generation_;
  }
}

std::vector<CodeMapping> CodeMaps::anywhere(std::uint64_t address) const {
  std::vector<CodeMapping> found;
  const std::lock_guard lock(lock_);
  for (const auto& [pid, book] : books_) add_places(book.files, address, found);
  return found;
}

// Of the process, or where it has none, of all; those that have the anchor.
template <class Visit>
void CodeMaps::each_book(pid_t pid, const Anchor& anchor, const Visit& visit) const {
  const auto look = [&](const Book& book) {
    if (has_anchor(book.files, anchor)) visit(book);
  };
  const std::lock_guard lock(lock_);
  if (const auto own = books_.find(pid); own != books_.end()) return look(own->second);
  for (const auto& [other, book] : books_) look(book);
}

std::vector<CodeMapping> CodeMaps::at(pid_t pid, const Anchor& anchor, std::uint64_t address) const {
  std::vector<CodeMapping> found;
  each_book(pid, anchor, [&](const Book& book) { add_places(book.files, address, found); });
  return found;
}

bool CodeMaps::has_code(pid_t pid, const Anchor& anchor, std::uint64_t address) const {
  bool found = false;
  each_book(pid, anchor, [&](const Book& book) {
    found = found || std::ranges::any_of(book.files, [&](const CodeMapping& m) { return m.holds(address); }) ||
            std::ranges::any_of(book.generated,
                                [&](const auto& range) { return range.first <= address && address < range.second; });
  });
  return found;
}

std::uint64_t CodeMaps::generation() const {
  const std::lock_guard lock(lock_);
  return generation_;
}

}  // namespace uprobe::control
