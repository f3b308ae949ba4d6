// SPDX-License-Identifier: MIT
#include "engine/flow/gap.h"

#include <algorithm>
#include <cstring>

#include "arch/code/scan.h"
#include "engine/flow/proven_code.h"

namespace uprobe::plan {
namespace {

using arch::Leads;

constexpr const char* kUnreached = "no known way of the program leads there, it may be data";
constexpr const char* kUsed = "no known way of the program leads there, and it uses bytes of the function as data";
constexpr const char* kLooks = "no known way of the program leads there, and it looks like data";

class Finder {
 public:
  Finder(const FileFlow& flow, const Reach& reach, const elf::Range& function)
      : flow_(flow), reach_(reach), function_(function) {}

  Gap find(std::uint64_t address) {
    if (!bound(address)) return {.reason = kUnreached};
    if (is_used()) return {.reason = kUsed};
    Gap gap;
    if (!decode(gap.starts) || has_address()) return {.reason = kLooks};
    return gap;
  }

 private:
  // Control must end before the gap: after a call that does not come back there are data if control is not followed there.
  bool bound(std::uint64_t address) {
    const auto before = reach_.start_before(address);
    arch::Scanned insn;
    if (!before || *before < function_.begin || !arch::scan(flow_.bytes_at(*before), Addr{*before}, insn)) return false;
    if (insn.falls_through) return false;
    gap_.begin = *before + insn.length;
    gap_.end = reach_.next_start(gap_.begin, function_.end).value_or(function_.end);
    return gap_.holds(address);
  }

  bool is_used() const {
    return reach_.is_used_as_data(function_.begin + 1, function_.end) || reach_.is_read(function_.begin) ||
           flow_.is_named_in(gap_.begin, gap_.end) || finds_itself();
  }

  // Whether it calls into itself, other than to begin anew: the callee knows the return address.
  bool finds_itself() const {
    arch::Scanned insn;
    for (auto at = reach_.next_start(function_.begin, function_.end); at;
         at = reach_.next_start(*at + 1, function_.end)) {
      if (!arch::scan(flow_.bytes_at(*at), Addr{*at}, insn) || insn.leads != Leads::call) continue;
      if (insn.target != function_.begin && function_.holds(insn.target)) return true;
    }
    return false;
  }

  bool decode(std::vector<std::uint64_t>& starts) const {
    arch::Scanned insn;
    std::uint64_t at = gap_.begin;
    for (; at < gap_.end; at += insn.length) {
      if (!arch::scan(flow_.bytes_at(at), Addr{at}, insn) || !is_likely_code(flow_.file(), reach_, at, insn))
        return false;
      starts.push_back(at);
    }
    return at == gap_.end;
  }

  // Whether eight bytes in a row are an address of the file.
  bool has_address() const {
    const auto segments = flow_.file().segments();
    const auto is_address = [&](std::uint64_t word) {
      return std::any_of(segments.begin(), segments.end(),
                         [word](const elf::Segment& segment) { return word - segment.address < segment.memory_bytes; });
    };
    const auto bytes = flow_.bytes_at(gap_.begin);
    for (std::uint64_t at = 0; gap_.begin + at + sizeof(std::uint64_t) <= gap_.end; ++at) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (is_address(word)) return true;
    }
    return false;
  }

  const FileFlow& flow_;
  const Reach& reach_;
  const elf::Range function_;
  elf::Range gap_;
};

}  // namespace

Gap gap_at(const FileFlow& flow, const Reach& reach, const elf::Range& function, std::uint64_t address) {
  return Finder(flow, reach, function).find(address);
}

}  // namespace uprobe::plan
