// SPDX-License-Identifier: MIT
// A signal frame contains the interrupted address (struct sigcontext), anywhere on the
// stack. This does not look for frames: each word that could be a code address counts as one. Threads return to addresses on
// other stacks, or beyond the part that is read, by rt_sigreturn, where the agent has a point.
#include "engine/patch/live_code_addresses.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "arch/code/return_frame.h"

namespace uprobe::control {
namespace {

constexpr std::uint64_t kMostStack = 1 << 18;
constexpr std::uint64_t kRedZone = 128;

}  // namespace

LiveCodeAddresses LiveCodeAddresses::of(target::Target& process, const std::vector<target::Mapping>& maps) {
  LiveCodeAddresses all;
  all.is_known_ = process.is_held();
  all.know_code(maps);
  for (const target::ThreadPlace& place : process.places()) {
    all.add(place.ip);
    all.read_stack(process, maps, Addr{place.sp});
    all.add_stack();
  }
  std::sort(all.kept_.begin(), all.kept_.end());
  return all;
}

LiveCodeAddresses LiveCodeAddresses::of_thread(target::Target& process, const std::vector<target::Mapping>& maps,
                                               const target::ThreadPlace& place, const std::function<void()>& seen) {
  LiveCodeAddresses all;
  all.read_stack(process, maps, Addr{place.sp});
  all.read_interrupted_stacks(process, maps);
  seen();
  all.know_code(maps);
  all.add(place.ip);
  all.add_stack_without_traps();
  std::sort(all.kept_.begin(), all.kept_.end());
  return all;
}

void LiveCodeAddresses::know_code(const std::vector<target::Mapping>& maps) {
  for (const target::Mapping& m : maps)
    if (m.executable) code_.insert(code_.end(), {m.begin, m.end});
}

bool LiveCodeAddresses::has_in(Addr begin, Addr end) const {
  const auto first = std::lower_bound(kept_.begin(), kept_.end(), begin.value);
  return !is_known_ || (first != kept_.end() && *first < end.value);
}

void LiveCodeAddresses::read_stack(target::Target& process, const std::vector<target::Mapping>& maps, Addr sp) {
  const target::Mapping* stack = target::mapping_at(maps, sp);
  if (stack == nullptr || sp.value < kRedZone) {
    is_known_ = false;
    return;
  }
  const Addr begin = std::max(stack->begin, Addr{(sp.value - kRedZone) / 8 * 8}),
             end = std::min(stack->end, sp + kMostStack);
  read_.insert(read_.end(), {begin, end});
  const std::size_t before = words_.size();
  words_.resize(before + (end - begin) / 8);
  if (!process.read(begin, words_.data() + before, (words_.size() - before) * 8)) is_known_ = false;
}

bool LiveCodeAddresses::has_read(Addr sp) const {
  for (std::size_t i = 0; i < read_.size(); i += 2)
    if (read_[i] <= sp && sp < read_[i + 1]) return true;
  return false;
}

// What looks like a frame may be none: so there is a limit.
void LiveCodeAddresses::read_interrupted_stacks(target::Target& process, const std::vector<target::Mapping>& maps) {
  constexpr int kMostStacks = 4;
  int stacks = 0;
  for (std::size_t i = arch::kStackBeforeIp; i < words_.size(); ++i) {
    if (!arch::is_of_breakpoint(std::span<const std::uint64_t>(words_).subspan(i))) continue;
    const Addr sp{words_[i - arch::kStackBeforeIp]};
    if (has_read(sp) || target::mapping_at(maps, sp) == nullptr) continue;
    if (++stacks > kMostStacks) return void(is_known_ = false);
    read_stack(process, maps, sp);
  }
}

void LiveCodeAddresses::add_stack() {
  for (const std::uint64_t word : words_) add(word);
  words_.clear();
}

void LiveCodeAddresses::add_stack_without_traps() {
  const std::span<const std::uint64_t> words(words_);
  for (std::size_t i = 0; i < words.size(); ++i)
    if (is_code(words[i]) && !arch::is_of_breakpoint(words.subspan(i))) kept_.push_back(words[i]);
}

// Fast exit: most words of a stack are small numbers.
bool LiveCodeAddresses::is_code(std::uint64_t word) const {
  if (code_.empty() || word < code_.front().value) return false;
  return (std::upper_bound(code_.begin(), code_.end(), Addr{word}) - code_.begin()) % 2 != 0;
}

}  // namespace uprobe::control
