// SPDX-License-Identifier: MIT
#include "engine/symbolize/stack_unwinder.h"

#include <algorithm>

#include "arch/shared/call_bytes.h"
#include "engine/symbolize/frame_walk.h"

namespace uprobe {
namespace {

using arch::kFramePointer;
using elf::kFrameIp;
using elf::kFrameSp;
using shared::Reg;

// As in the agent (preload/stack_walk.cpp): a link that leads further is not a frame.
constexpr std::uint64_t kMostFrameBytes = 1 << 20;

class Memory final : public elf::FrameMemory {
 public:
  explicit Memory(const trace::StackCopy& stack) : stack_(stack) {}
  std::optional<std::uint64_t> load(std::uint64_t address) const override { return stack_.word_at(address); }

 private:
  const trace::StackCopy& stack_;
};

class Unwinder {
 public:
  Unwinder(const trace::StackCopy& stack, const std::function<CodeAt(std::uint64_t)>& find)
      : stack_(stack), memory_(stack), find_(find) {
    for (std::size_t i = 0; i < elf::kFrameRegisters; ++i) state_[i] = stack[arch::kByFrameNumber[i]];
  }

  std::vector<format::StackFrame> run() {
    std::vector<format::StackFrame> frames{{*state_[kFrameIp], false}};
    while (frames.size() < kMostStackFrames && step(frames.back())) frames.push_back({*state_[kFrameIp], is_return_});
    return frames;
  }

 private:
  // Whether the frame is known by the frame pointer. In any other function that register is a value like others, or a link of some
  // outer frame, and may lead to a return address that an earlier call has left on the stack.
  static bool keeps_link(const elf::FrameRow& row) {
    return row.cfa.kind == elf::FrameRule::Kind::in_register && row.cfa.reg == kFramePointer;
  }

  // Steps to the caller of a frame. False: there is none, or it is not known.
  bool step(const format::StackFrame& frame) {
    const CodeAt code = find_(frame.address - (frame.is_return ? 1 : 0));
    const elf::FrameRow* row = code.tables == nullptr ? nullptr : code.tables->row_at(code.link_address);
    if (row == nullptr) return step_by_link(state_[kFrameSp].value_or(0));
    elf::FrameState caller = state_;
    const elf::Step done = elf::step_up(*row, memory_, caller);
    if (done == elf::Step::end) return false;
    is_return_ = !row->is_signal;
    if (done == elf::Step::up && find_(*caller[kFrameIp] - (is_return_ ? 1 : 0)).is_code) {
      state_ = caller;
      return true;
    }
    if (!keeps_link(*row)) return false;
    const auto top = elf::frame_top(*row, memory_, state_);
    return step_by_link(top && *top >= 16 ? *top - 16 : state_[kFrameSp].value_or(0));
  }

  // Steps to the frame whose link is at `low` or at the next place above.
  bool step_by_link(std::uint64_t low) {
    is_return_ = true;
    if (low == *state_[kFrameSp] && is_entered(low)) return true;
    const auto link = next_link(low);
    const auto address = link ? stack_.word_at(*link + 8) : std::nullopt;
    if (!address || !is_return_address(*address)) return false;
    const auto outer = stack_.word_at(*link);
    state_ = {};
    state_[kFrameIp] = address, state_[kFrameSp] = *link + 16, state_[kFramePointer] = outer;
    return true;
  }

  // A function that has just been entered, as the agent knows: the return address is at the stack pointer.
  bool is_entered(std::uint64_t sp) {
    if (stack_.frames.size() < 2 || stack_.frames[1].place != sp || stack_[Reg::sp] != sp) return false;
    if (!is_return_address(stack_.frames[1].address)) return false;
    state_[kFrameIp] = stack_.frames[1].address, state_[kFrameSp] = sp + 8;
    return true;
  }

  // The frame pointer's value, if it can be a link; otherwise the first frame of the agent's chain that is not below `low`.
  std::optional<std::uint64_t> next_link(std::uint64_t low) const {
    const auto link = state_[kFramePointer];
    if (link && *link >= low && *link - low < kMostFrameBytes && *link % 8 == 0 && stack_.word_at(*link + 8))
      return link;
    for (std::size_t i = 1; i < stack_.frames.size(); ++i)
      if (stack_.has_link(i) && stack_.frames[i].place >= low + 8) return stack_.frames[i].place - 8;
    return std::nullopt;
  }

  bool is_return_address(std::uint64_t address) const {
    const CodeAt code = find_(address - 1);
    if (!code.is_code || code.file == nullptr) return code.is_code;
    // Code that starts threads of its own kind leaves a function's address + 1 there (Go's goexit), because unwinders look one
    // byte back.
    const auto function = code.file->range_at(code.link_address);
    return is_after_call(*code.file, code.link_address + 1) || (function && function->begin == code.link_address);
  }

  const trace::StackCopy& stack_;
  const Memory memory_;
  const std::function<CodeAt(std::uint64_t)>& find_;
  elf::FrameState state_;
  bool is_return_ = true;  // for the frame found last
};

}  // namespace

bool is_after_call(const elf::ElfFile& file, std::uint64_t address) {
  const auto end = file.offset_of_address(address - 1);
  if (!end) return false;
  const auto before = file.bytes().first(std::min<std::size_t>(*end + 1, file.bytes().size()));
  std::uint8_t bytes[shared::kLongestCall] = {};
  const std::size_t known = std::min(before.size(), sizeof bytes);
  std::copy(before.end() - static_cast<std::ptrdiff_t>(known), before.end(), std::end(bytes) - known);
  return shared::ends_with_call(bytes);
}

std::vector<format::StackFrame> unwind(const trace::StackCopy& stack,
                                       const std::function<CodeAt(std::uint64_t address)>& find) {
  return Unwinder(stack, find).run();
}

}  // namespace uprobe
