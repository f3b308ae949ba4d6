// SPDX-License-Identifier: MIT
#include "engine/patch/sequence_search.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace uprobe::control {
namespace {

using target::Mapping;

// struct rseq_cs (uapi/linux/rseq.h); the kernel accepts no other version.
struct Descriptor {
  std::uint32_t version, flags;
  std::uint64_t start, length, abort;
};
constexpr std::uint64_t kAlign = 8;  // the ABI says 32, which the kernel does not check
constexpr std::uint64_t kMostRead = 32u << 20, kPiece = 256u << 10;
constexpr std::uint64_t kBelowStack = 4096, kAboveStack = 256u << 10;
constexpr std::size_t kMostFound = 8;

class Search {
 public:
  Search(target::Target& target, const std::vector<Mapping>& maps, const AbortPlace& place)
      : target_(target), maps_(maps), place_(place) {}

  std::vector<CodeRange> run() {
    const std::uint64_t top = place_.stack.value / kAlign * kAlign;
    if (const Mapping* stack = target::mapping_at(maps_, place_.stack))
      look_at({Addr{std::max(stack->begin.value, top - std::min(top, kBelowStack))},
               Addr{std::min(stack->end.value, top + kAboveStack)}});
    const Mapping* code = target::mapping_at(maps_, place_.abort);
    const auto is_data = [code](const Mapping& m) {
      return code != nullptr && code->is_file() && m.device == code->device && m.inode == code->inode && !m.executable;
    };
    for (const Mapping& m : maps_)
      if (m.readable && is_data(m)) look_at({m.begin, m.end});
    for (const Mapping* m : private_memory())
      if (!is_data(*m)) look_at({m->begin, m->end});
    return std::move(found_);
  }

 private:
  // Smaller mappings first, so that one large mapping does not use up the limit.
  std::vector<const Mapping*> private_memory() const {
    std::vector<const Mapping*> all;
    for (const Mapping& m : maps_)
      if (m.readable && m.writable && !m.shared) all.push_back(&m);
    std::stable_sort(all.begin(), all.end(),
                     [](const Mapping* a, const Mapping* b) { return a->end - a->begin < b->end - b->begin; });
    return all;
  }

  // Pieces overlap by the size of a descriptor. Unreadable pieces are skipped.
  void look_at(const CodeRange& range) {
    std::vector<std::uint8_t> bytes;
    for (Addr at = range.begin; at < range.end && left_ != 0;) {
      bytes.resize(std::min({range.end - at, kPiece, left_}));
      left_ -= bytes.size();
      if (!target_.read(at, bytes.data(), bytes.size())) return;
      look_into(bytes);
      const bool is_last = at + bytes.size() >= range.end;
      at = at + (is_last ? bytes.size() : std::max<std::uint64_t>(bytes.size() - sizeof(Descriptor), kAlign));
    }
  }

  void look_into(const std::vector<std::uint8_t>& bytes) {
    for (std::size_t at = 0; at + sizeof(Descriptor) <= bytes.size(); at += kAlign) {
      std::uint64_t abort;
      std::memcpy(&abort, bytes.data() + at + offsetof(Descriptor, abort), sizeof abort);
      if (abort != place_.abort.value) continue;
      Descriptor descriptor;
      std::memcpy(&descriptor, bytes.data() + at, sizeof descriptor);
      add(descriptor);
    }
  }

  void add(const Descriptor& d) {
    const Mapping* code = target::mapping_at(maps_, Addr{d.start});
    if (d.version != 0 || d.length == 0 || code == nullptr || !code->executable) return;
    if (d.length > code->end.value - d.start || (d.abort >= d.start && d.abort - d.start < d.length)) return;
    const CodeRange range{Addr{d.start}, Addr{d.start + d.length}};
    const auto is_same = [&](const CodeRange& f) { return f.begin == range.begin && f.end == range.end; };
    if (found_.size() < kMostFound && std::none_of(found_.begin(), found_.end(), is_same)) found_.push_back(range);
  }

  target::Target& target_;
  const std::vector<Mapping>& maps_;
  const AbortPlace place_;
  std::uint64_t left_ = kMostRead;
  std::vector<CodeRange> found_;
};

}  // namespace

std::vector<CodeRange> find_sequences(target::Target& target, const std::vector<Mapping>& maps,
                                      const AbortPlace& place) {
  return Search(target, maps, place).run();
}

}  // namespace uprobe::control
