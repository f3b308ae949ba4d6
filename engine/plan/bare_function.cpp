// SPDX-License-Identifier: MIT
#include "engine/plan/bare_function.h"

#include <map>
#include <vector>

#include "arch/code/scan.h"
#include "engine/base/text.h"
#include "engine/plan/tracked_stack.h"

namespace uprobe::plan {
namespace {

using arch::Leads;

constexpr std::uint64_t kLongest = 1u << 20;

// Follows control from the entry, and with it the stack pointer: again where it comes to a place with another one, which leaves less
// that is known, until nothing changes.
class BareFlow {
 public:
  BareFlow(const FileFlow& flow, const elf::Range& range) : flow_(flow), range_(range) {}

  std::string run() {
    arrive(range_.begin, kStackAtEntry);
    while (!pending_.empty() && why_.empty()) {
      const std::uint64_t at = pending_.back();
      pending_.pop_back();
      follow(at);
    }
    if (why_.empty()) check_returns();
    if (why_.empty()) check_starts();
    return why_;
  }

 private:
  void refuse(std::uint64_t at, const char* what) {
    why_ = "at " + hex(flow_.file().offset_of_address(at).value_or(at)) + " " + what;
  }

  void arrive(std::uint64_t at, const TrackedStack& stack) {
    const auto [known, is_new] = stacks_.try_emplace(at, stack);
    const TrackedStack both = either(known->second, stack);
    if (!is_new && both == known->second) return;
    known->second = both;
    pending_.push_back(at);
  }

  void follow(std::uint64_t at) {
    const TrackedStack stack = stacks_.at(at);
    arch::Scanned insn;
    const auto code = flow_.bytes_at(at);
    const auto use = arch::scan(code, Addr{at}, insn) ? arch::stack_use(code.first(insn.length)) : std::nullopt;
    if (!use) return refuse(at, "bytes that are no instruction");
    lengths_[at] = insn.length;
    if (insn.leads == Leads::out) returns_.push_back(at);
    check_way(at, insn);
    check_stack(at, *use, stack);
    if (!why_.empty()) return;
    const TrackedStack after = stack_after(*use, stack);
    if (insn.leads == Leads::jump || insn.leads == Leads::jump_if) arrive(insn.target, after);
    // What is the last and goes on is refused by those who read the function from its beginning to its end.
    if (insn.falls_through && range_.holds(at + insn.length)) arrive(at + insn.length, after);
  }

  void check_way(std::uint64_t at, const arch::Scanned& insn) {
    switch (insn.leads) {
      case Leads::jump:
      case Leads::jump_if:
        if (!range_.holds(insn.target)) refuse(at, "a jump that leaves it");
        return;
      case Leads::jump_by_register:
      case Leads::jump_by_memory:
        return refuse(at, "a jump whose target is not known");
      case Leads::call:
        if (insn.target != range_.begin && range_.holds(insn.target)) refuse(at, "a call of a part of itself");
        return;
      default:
        return;
    }
  }

  void check_stack(std::uint64_t at, const arch::StackUse& use, const TrackedStack& stack) {
    if (use.writes && is_return_address(*use.writes, stack))
      refuse(at, "an instruction that changes its return address");
    const auto after = stack_after(use, stack).sp;
    if (after && *after > 0) refuse(at, "an instruction that takes its return address from the stack");
  }

  // Of what leads out otherwise, by a fault, nothing is a return.
  void check_returns() {
    for (const std::uint64_t at : returns_) {
      const auto decoded = arch::decode(flow_.bytes_at(at).first(lengths_.at(at)), Addr{at});
      if (!decoded || !decoded->is_return) continue;
      const auto sp = stacks_.at(at).sp;
      if (!sp) return refuse(at, "a return instruction whose place on the stack is not known");
      if (*sp != 0) return refuse(at, "a return instruction that is none of a call");
    }
  }

  // All that the code in a row shows, but for padding, is reached, and nothing else.
  void check_starts() {
    for (auto at = flow_.next_start(range_.begin, range_.end); at; at = flow_.next_start(*at + 1, range_.end))
      if (!lengths_.contains(*at) && !flow_.is_padding(*at))
        return refuse(*at, "code or data that its flow does not reach");
    for (const auto& [at, length] : lengths_)
      if (!flow_.is_start(at)) return refuse(at, "instructions that overlap");
  }

  const FileFlow& flow_;
  const elf::Range range_;
  std::map<std::uint64_t, TrackedStack> stacks_;   // in front of each instruction that is reached
  std::map<std::uint64_t, std::uint8_t> lengths_;  // of those that have been looked at
  std::vector<std::uint64_t> pending_, returns_;
  std::string why_;
};

}  // namespace

std::string reason_against_bare(const FileFlow& flow, const SweptFunction& function) {
  constexpr const char* kStart = "has no unwind information";
  const auto symbol = flow.file().range_at(function.range.begin);
  const bool is_whole = symbol && symbol->begin == function.range.begin && symbol->end == function.range.end;
  if (!is_whole || function.range.end - function.range.begin > kLongest)
    return std::string(kStart) + ": its returns are not known";
  const std::string why = BareFlow(flow, function.range).run();
  return why.empty() ? why : std::string(kStart) + ", and " + why;
}

}  // namespace uprobe::plan
