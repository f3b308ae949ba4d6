// SPDX-License-Identifier: MIT
#include "engine/plan/window.h"

#include <algorithm>

#include "arch/code/go_patterns.h"
#include "arch/code/instruction_bytes.h"
#include "arch/code/scan.h"
#include "engine/elf/rseq_sections.h"
#include "engine/plan/window_padding.h"

namespace uprobe::plan {
namespace {

using arch::Leads;

constexpr std::uint64_t kPage = 4096;

const char* reason_text(WindowReason reason) {
  switch (reason) {
    case WindowReason::not_code:
      return "not in an executable part of the file";
    case WindowReason::not_displaceable:
      return "the instruction cannot be displaced";
    case WindowReason::critical_section:
      return "inside an rseq critical section";
    case WindowReason::covered:
      return "inside the jump of another probe";
    case WindowReason::not_a_start:
      return "not known to be the start of an instruction";
    case WindowReason::go_libc:
      return "Go code in a program with a C library, or position-independent: its threads may have no stack for a "
             "trampoline";
    case WindowReason::go_version:
      return "Go code of a version that is not known: its stacks may be too small for a trampoline";
    case WindowReason::go_middle:
      return "Go code: an instruction after it may fault, or is a call";
    case WindowReason::branch_enters:
      return "a branch enters the window";
    case WindowReason::function_unknown:
      return "function range unknown";
    case WindowReason::too_short:
      return "shorter than five bytes at the function's end";
    case WindowReason::call_inside:
      return "a call returns into the window";
    case WindowReason::system_call_inside:
      return "a system call inside the window";
    case WindowReason::neighbour:
      return "an instruction after it cannot be displaced";
    case WindowReason::critical_section_after:
      return "an rseq critical section begins in the window";
    case WindowReason::probe_inside:
      return "another probe stands in the window";
    case WindowReason::page_end:
      return "a page ends inside the jump";
    case WindowReason::pops_flags:
      return "it may set the trap flag";
    case WindowReason::none:
    case WindowReason::flow_unknown:
      break;
  }
  return "";
}

// Whether what the sweep says of an instruction's boundaries holds.
bool is_decoded(FlowTrouble trouble) {
  return trouble != FlowTrouble::undecodable && trouble != FlowTrouble::overlap &&
         trouble != FlowTrouble::text_relocations;
}

class Planner {
 public:
  Planner(const FileFlow& flow, std::uint64_t address, const WindowClaims& claims)
      : flow_(flow), claims_(claims), sections_(flow.file().rseq_sections()) {
    window_.address = address;
  }

  Window run() {
    if (!check_place()) return window_;
    if (flow_.is_go()) return run_in_go();
    const Window place = window_;
    if (grow(kJumpBytes)) return window_;
    const Window refusal = window_;
    window_ = place;
    if (grow(kShortJumpBytes) && find_padding()) return window_;
    window_ = place;
    return find_prefix_window() ? window_ : refusal;
  }

 private:
  // No short jumps, and none that begins before the place. What the program sees of a thread in the window is its first instruction,
  // or a place after it; but a goroutine that was led away before the window was there may come back to any instruction.
  Window run_in_go() {
    if (!grow(kJumpBytes) || !check_middle()) return window_;
    window_.switches_stack = true;
    window_.keeps_addresses = window_.instructions > 1 && !arch::is_go_stack_check(flow_.bytes_at(window_.address));
    return window_;
  }

  bool check_middle() {
    for (unsigned i = 1; i < window_.instructions; ++i) {
      const std::uint64_t end = i + 1U < window_.instructions ? window_.offsets[i + 1U] : window_.code_length;
      const auto insn = flow_.bytes_at(window_.address + window_.offsets[i]).first(end - window_.offsets[i]);
      if (!arch::is_safe_in_go(insn)) return give_up(WindowReason::go_middle);
    }
    return true;
  }

  bool refuse(WindowReason reason) { return end(WindowKind::refused, reason); }
  bool give_up(WindowReason reason) { return end(WindowKind::breakpoint, reason); }
  bool end(WindowKind kind, WindowReason reason) {
    const std::uint64_t address = window_.address;
    window_ = Window{.kind = kind, .reason = reason, .address = address};
    return false;
  }
  bool flow_unknown(FlowTrouble trouble) {
    give_up(WindowReason::flow_unknown);
    window_.trouble = trouble;
    return false;
  }
  std::uint64_t after() const { return window_.address + window_.code_length; }

  bool touches_section(std::uint64_t begin, std::uint64_t end) const {
    return std::any_of(sections_.begin(), sections_.end(),
                       [=](const elf::RseqSection& section) { return section.touches(begin, end); });
  }

  // What holds for a jump of any length.
  bool check_place() {
    const std::uint64_t at = window_.address;
    if (!arch::scan(flow_.bytes_at(at), Addr{at}, insn_)) return refuse(WindowReason::not_code);
    if (!arch::can_displace(flow_.bytes_at(at), Addr{at})) return refuse(WindowReason::not_displaceable);
    if (touches_section(at, at + 1)) return refuse(WindowReason::critical_section);
    if (!claims_.is_free(at, at + 1)) return refuse(WindowReason::covered);
    if (flow_.go() == GoProgram::with_libc) return give_up(WindowReason::go_libc);
    if (flow_.go() == GoProgram::other_version) return give_up(WindowReason::go_version);
    function_ = flow_.function_at(at);
    if (!function_) return give_up(WindowReason::function_unknown);
    if (!is_decoded(function_->trouble)) return flow_unknown(function_->trouble);
    if (!flow_.is_start(at)) return give_up(WindowReason::not_a_start);
    return take(at);
  }

  // The instruction after one that sets the trap flag is the first to trap: it has to be the program's.
  bool pops_flags(std::uint64_t at) const { return arch::pops_flags(flow_.bytes_at(at).first(insn_.length)); }

  // Adds the instruction insn_, which stands at `at`, to the window.
  bool take(std::uint64_t at) {
    const std::uint64_t end = at + insn_.length;
    if (flow_.has_arrival(at + 1, end)) return give_up(WindowReason::branch_enters);
    if (pops_flags(at)) return give_up(WindowReason::pops_flags);
    if (touches_section(at, end)) return give_up(WindowReason::critical_section_after);
    if (claims_.has_place_in(at + 1, end) || !claims_.is_free(at, end)) return give_up(WindowReason::probe_inside);
    window_.offsets[window_.instructions++] = static_cast<std::uint8_t>(at - window_.address);
    window_.code_length = window_.length = static_cast<std::uint8_t>(end - window_.address);
    return true;
  }

  // A page may lose what was written to it (madvise): then all of a jump goes, or nothing.
  static bool is_one_page(std::uint64_t first, std::uint64_t last) { return first / kPage == last / kPage; }

  bool grow(unsigned bytes) {
    if (!is_one_page(window_.address, window_.address + bytes - 1)) return give_up(WindowReason::page_end);
    window_.kind = WindowKind::one;
    arch::scan(flow_.bytes_at(window_.address), Addr{window_.address}, insn_);
    while (window_.code_length < bytes) {
      if (!insn_.falls_through) return grow_into_padding(bytes);
      if (!may_go_on() || !take_next()) return false;
      window_.kind = WindowKind::several;
    }
    return true;
  }

  // The last instruction so far, and what it allows after it.
  bool may_go_on() {
    if (insn_.leads == Leads::call || insn_.leads == Leads::call_indirect) return give_up(WindowReason::call_inside);
    if (insn_.leads == Leads::system_call) return give_up(WindowReason::system_call_inside);
    return true;
  }

  bool take_next() {
    const std::uint64_t at = after();
    if (!function_->is_known() && !is_entry_of_unknown()) return flow_unknown(function_->trouble);
    if (at >= function_->range.end) return give_up(WindowReason::too_short);
    if (flow_.is_arrival(at)) return give_up(WindowReason::branch_enters);
    if (claims_.has_place_in(at, at + 1)) return give_up(WindowReason::probe_inside);
    if (!flow_.is_start(at) || !arch::scan(flow_.bytes_at(at), Addr{at}, insn_))
      return flow_unknown(FlowTrouble::undecodable);
    if (insn_.leads == Leads::system_call) return give_up(WindowReason::system_call_inside);
    if (!arch::can_displace(flow_.bytes_at(at), Addr{at})) return give_up(WindowReason::neighbour);
    return take(at);
  }

  // Without unwind information there may be ways into a function that its branches do not show (the exception handlers of
  // a virtual machine's builtins), but none into its first bytes, unless it computes where it jumps.
  bool is_entry_of_unknown() const {
    return function_->trouble == FlowTrouble::no_unwind && !function_->jumps_anywhere &&
           window_.address == function_->range.begin && flow_.is_entered(window_.address);
  }

  bool grow_into_padding(unsigned bytes) {
    const std::uint64_t end = window_.address + bytes;
    const std::uint64_t last = window_.address + window_.offsets[window_.instructions - 1U];
    if (padding_end(flow_, last, end) < end)
      return give_up(flow_.is_arrival(after()) ? WindowReason::branch_enters : WindowReason::too_short);
    if (!is_usable(after(), end)) return give_up(WindowReason::probe_inside);
    window_.kind = WindowKind::padded;
    window_.length = static_cast<std::uint8_t>(bytes);
    return true;
  }

  bool is_usable(std::uint64_t begin, std::uint64_t end) const {
    return claims_.is_free(begin, end) && !claims_.has_place_in(begin, end) && !touches_section(begin, end);
  }

  // Padding for the long jump, the nearest below and above the reach of a short one.
  bool find_padding() {
    constexpr std::uint64_t kBack = 128, kAhead = 127, kLongestInsn = arch::kMaxInsnBytes, kLongestRun = 64;
    const std::uint64_t from = window_.address + kShortJumpBytes;
    const std::uint64_t low = from - std::min(from, kBack), high = from + kAhead;
    const std::uint64_t first = low - std::min(low, kLongestInsn + kLongestRun);
    for (auto stop = flow_.next_stop(first, high); stop; stop = flow_.next_stop(*stop + 1, high)) {
      arch::Scanned insn;
      if (!arch::scan(flow_.bytes_at(*stop), Addr{*stop}, insn)) continue;
      const std::uint64_t begin = *stop + insn.length;
      const std::uint64_t end = padding_end(flow_, *stop, begin + kLongestRun);
      if (take_padding(std::max(begin, low), end, high)) return true;
    }
    return give_up(WindowReason::too_short);
  }

  bool take_padding(std::uint64_t at, std::uint64_t end, std::uint64_t high) {
    const std::uint64_t window_end = window_.address + window_.length;
    for (; at <= high && at + kJumpBytes <= end; ++at) {
      if (at < window_end && at + kJumpBytes > window_.address) continue;
      if (!is_usable(at, at + kJumpBytes)) continue;
      if (!is_one_page(at, at + kJumpBytes - 1) || !is_one_page(at, window_.address)) continue;
      window_.kind = WindowKind::short_jump;
      window_.padding = at;
      return true;
    }
    return false;
  }

  // As many of the instructions before the place as make room for a jump. No branch comes to the place, or to one of them but the
  // first, in another way than through them.
  bool find_prefix_window() {
    const std::uint64_t end = after();
    arch::scan(flow_.bytes_at(window_.address), Addr{window_.address}, insn_);
    if (!function_->is_known() || insn_.leads == Leads::system_call) return false;
    while (end - window_.begin() < kJumpBytes)
      if (!take_prefix_window(window_.begin())) return false;
    if (window_.prefix_window >= kJumpBytes || !is_one_page(window_.begin(), window_.begin() + kJumpBytes - 1))
      return false;
    window_.kind = WindowKind::prefix_window;
    return true;
  }

  // The instruction that ends at `end`.
  bool take_prefix_window(std::uint64_t end) {
    const std::uint64_t from = end - std::min<std::uint64_t>(end, arch::kMaxInsnBytes);
    const auto at = flow_.last_start(std::max(from, function_->range.begin), end);
    if (flow_.is_arrival(end) || !at || !arch::scan(flow_.bytes_at(*at), Addr{*at}, insn_)) return false;
    if (*at + insn_.length != end || !insn_.falls_through || !may_go_on() || pops_flags(*at)) return false;
    if (flow_.has_arrival(*at + 1, end) || !is_usable(*at, end)) return false;
    if (!arch::can_displace(flow_.bytes_at(*at), Addr{*at})) return false;
    window_.prefix_window = static_cast<std::uint8_t>(window_.address - *at);
    return true;
  }

  const FileFlow& flow_;
  const WindowClaims& claims_;
  std::span<const elf::RseqSection> sections_;
  std::optional<FunctionFlow> function_;  // of the place
  arch::Scanned insn_;
  Window window_;
};

}  // namespace

std::string Window::text() const {
  return reason == WindowReason::flow_unknown ? plan::text_of(trouble) : reason_text(reason);
}

void WindowClaims::take(const Window& window) {
  if (!window.is_jump()) return;
  for (std::uint64_t at = window.begin(); at < window.address + window.length; ++at) taken_.add(at);
  if (window.kind != WindowKind::short_jump) return;
  for (unsigned i = 0; i < kJumpBytes; ++i) taken_.add(window.padding + i);
}

Window plan_window(const FileFlow& flow, std::uint64_t address, const WindowClaims& claims) {
  return Planner(flow, address, claims).run();
}

}  // namespace uprobe::plan
