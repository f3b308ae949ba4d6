// SPDX-License-Identifier: MIT
#include "engine/symbolize/frame_walk.h"

#include <vector>

namespace uprobe::elf {
namespace {

using Kind = FrameRule::Kind;
using Value = std::optional<std::uint64_t>;

constexpr unsigned kMostWalked = 1000;
constexpr std::size_t kMostDepth = 64;

class Evaluator {
 public:
  Evaluator(BytesView code, const FrameMemory& memory, const FrameState& state)
      : code_(code), cursor_(code), memory_(memory), state_(state) {}

  Value run(Value first) {
    if (first) stack_.push_back(*first);
    for (unsigned steps = 0; cursor_.at() < code_.size(); ++steps)
      if (steps == kMostWalked || !step() || !cursor_.good() || stack_.size() > kMostDepth) return std::nullopt;
    return stack_.empty() ? std::nullopt : Value(stack_.back());
  }

 private:
  bool step() {
    const auto op = cursor_.take<std::uint8_t>();
    if (op >= 0x30 && op <= 0x4f) return push(op - 0x30u);                           // lit0..lit31
    if (op >= 0x70 && op <= 0x8f) return push_register(op - 0x70u, cursor_.sleb());  // breg0..breg31
    if (op >= 0x08 && op <= 0x11) return push_constant(op);
    if (op >= 0x1a && op <= 0x2e && op != 0x1f && op != 0x20 && op != 0x23 && op != 0x28) return combine(op);
    return further(op);
  }

  bool further(std::uint8_t op) {
    switch (op) {
      case 0x06:  // deref
        return replace(need(0) ? memory_.load(top()) : std::nullopt);
      case 0x12:  // dup
        return pick(0);
      case 0x13:  // drop
        return drop(1);
      case 0x14:  // over
        return pick(1);
      case 0x15:  // pick
        return pick(cursor_.take<std::uint8_t>());
      case 0x16:  // swap
        if (!need(1)) return false;
        std::swap(top(), stack_[stack_.size() - 2]);
        return true;
      case 0x1f:  // neg
        return replace(need(0) ? Value(-top()) : std::nullopt);
      case 0x20:  // not
        return replace(need(0) ? Value(~top()) : std::nullopt);
      case 0x23:  // plus_uconst
        return replace(need(0) ? Value(top() + cursor_.uleb()) : std::nullopt);
      case 0x28:  // bra
        return branch(true);
      case 0x2f:  // skip
        return branch(false);
      case 0x92: {  // bregx
        const std::uint64_t reg = cursor_.uleb();
        return push_register(reg, cursor_.sleb());
      }
      case 0x96:  // nop
        return true;
      default:
        return false;
    }
  }

  bool push_constant(std::uint8_t op) {
    const auto widen = [](auto value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)); };
    switch (op) {
      case 0x08:
        return push(cursor_.take<std::uint8_t>());
      case 0x09:
        return push(widen(cursor_.take<std::int8_t>()));
      case 0x0a:
        return push(cursor_.take<std::uint16_t>());
      case 0x0b:
        return push(widen(cursor_.take<std::int16_t>()));
      case 0x0c:
        return push(cursor_.take<std::uint32_t>());
      case 0x0d:
        return push(widen(cursor_.take<std::int32_t>()));
      case 0x0e:
      case 0x0f:
        return push(cursor_.take<std::uint64_t>());
      case 0x10:
        return push(cursor_.uleb());
      default:
        return push(static_cast<std::uint64_t>(cursor_.sleb()));
    }
  }

  // Of two numbers, the upper one is the right.
  bool combine(std::uint8_t op) {
    if (!need(1)) return false;
    const std::uint64_t b = top();
    stack_.pop_back();
    return replace(combined(op, top(), b));
  }
  static Value combined(std::uint8_t op, std::uint64_t a, std::uint64_t b) {
    const auto sa = static_cast<std::int64_t>(a), sb = static_cast<std::int64_t>(b);
    switch (op) {
      case 0x1a:
        return a & b;
      case 0x1c:
        return a - b;
      case 0x1e:
        return a * b;
      case 0x21:
        return a | b;
      case 0x22:
        return a + b;
      case 0x24:
        return b < 64 ? a << b : 0;
      case 0x25:
        return b < 64 ? a >> b : 0;
      case 0x26:
        return static_cast<std::uint64_t>(sa >> (b < 64 ? b : 63));
      case 0x27:
        return a ^ b;
      case 0x29:
        return sa == sb;
      case 0x2a:
        return sa >= sb;
      case 0x2b:
        return sa > sb;
      case 0x2c:
        return sa <= sb;
      case 0x2d:
        return sa < sb;
      case 0x2e:
        return sa != sb;
      default:
        return std::nullopt;  // div, mod
    }
  }

  bool branch(bool is_conditional) {
    const auto distance = cursor_.take<std::int16_t>();
    if (is_conditional) {
      if (!need(0)) return false;
      const bool is_taken = top() != 0;
      stack_.pop_back();
      if (!is_taken) return true;
    }
    const std::uint64_t target = cursor_.at() + static_cast<std::uint64_t>(std::int64_t{distance});
    if (target > code_.size()) return false;
    cursor_ = Cursor(code_, target);
    return true;
  }

  bool need(std::size_t below) const { return stack_.size() > below; }
  std::uint64_t& top() { return stack_.back(); }
  bool push(std::uint64_t value) {
    stack_.push_back(value);
    return true;
  }
  bool replace(Value value) {
    if (value) top() = *value;
    return value.has_value();
  }
  bool pick(std::size_t below) { return need(below) && push(stack_[stack_.size() - 1 - below]); }
  bool drop(std::size_t count) {
    if (!need(count - 1)) return false;
    stack_.pop_back();
    return true;
  }
  bool push_register(std::uint64_t reg, std::int64_t offset) {
    if (reg >= kFrameRegisters || !state_[reg]) return false;
    return push(*state_[reg] + static_cast<std::uint64_t>(offset));
  }

  BytesView code_;
  Cursor cursor_;
  const FrameMemory& memory_;
  const FrameState& state_;
  std::vector<std::uint64_t> stack_;
};

// A register of the caller's.
Value follow(const FrameRule& rule, std::size_t reg, std::uint64_t top, const FrameMemory& memory,
             const FrameState& state) {
  const std::uint64_t place = top + static_cast<std::uint64_t>(rule.offset);
  switch (rule.kind) {
    case Kind::unsaid:
      return reg == kFrameSp ? Value(top) : arch::is_kept(reg) ? state[reg] : std::nullopt;
    case Kind::undefined:
      return std::nullopt;
    case Kind::same:
      return state[reg];
    case Kind::at_offset:
      return memory.load(place);
    case Kind::is_offset:
      return place;
    case Kind::in_register:
      return rule.reg < kFrameRegisters ? state[rule.reg] : std::nullopt;
    case Kind::at_expression: {
      const Value at = evaluate(rule.expression, top, memory, state);
      return at ? memory.load(*at) : std::nullopt;
    }
    case Kind::is_expression:
      return evaluate(rule.expression, top, memory, state);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> evaluate(BytesView expression, std::optional<std::uint64_t> first,
                                      const FrameMemory& memory, const FrameState& state) {
  return Evaluator(expression, memory, state).run(first);
}

std::optional<std::uint64_t> frame_top(const FrameRow& row, const FrameMemory& memory, const FrameState& state) {
  if (row.cfa.kind == Kind::is_expression) return evaluate(row.cfa.expression, std::nullopt, memory, state);
  if (row.cfa.reg >= kFrameRegisters || !state[row.cfa.reg]) return std::nullopt;
  return *state[row.cfa.reg] + static_cast<std::uint64_t>(row.cfa.offset);
}

Step step_up(const FrameRow& row, const FrameMemory& memory, FrameState& state) {
  if (row.registers[kFrameIp].kind == Kind::undefined) return Step::end;
  const Value top = frame_top(row, memory, state);
  if (!top) return Step::unknown;
  FrameState caller;
  for (std::size_t reg = 0; reg < kFrameRegisters; ++reg)
    caller[reg] = follow(row.registers[reg], reg, *top, memory, state);
  if (!caller[kFrameIp] || !caller[kFrameSp]) return Step::unknown;
  if (*caller[kFrameIp] == 0) return Step::end;
  // The stack grows downwards: a caller's frame is above. One that was interrupted may be on another stack.
  if (!row.is_signal && (!state[kFrameSp] || *caller[kFrameSp] <= *state[kFrameSp])) return Step::unknown;
  state = caller;
  return Step::up;
}

}  // namespace uprobe::elf
