// SPDX-License-Identifier: MIT
// Tests as compares and jumps. Conditions are those of the compare "number with value".
#include "arch/code/trampoline_filter.h"

#include <algorithm>

#include "engine/shared/session_area.h"
#include "engine/shared/trampoline.h"

namespace uprobe::arch {
namespace {

using shared::Op;
using shared::Reg;
using shared::Test;
using shared::TestOp;

constexpr std::size_t kMostTests = 64;  // more are the agent's
constexpr std::uint32_t kIpOffset = offsetof(shared::PayloadHead, ip);

unsigned condition_of(TestOp op) {
  switch (op) {
    case TestOp::equal:
    case TestOp::no_bit:
      return 4;
    case TestOp::below:
      return 2;
    case TestOp::not_below:
      return 3;
    case TestOp::above:
      return 7;
    case TestOp::not_above:
      return 6;
    case TestOp::less:
      return 12;
    case TestOp::not_less:
      return 13;
    case TestOp::greater:
      return 15;
    case TestOp::not_greater:
      return 14;
    default:  // not_equal, any_bit
      return 5;
  }
}

bool is_bits(TestOp op) { return op == TestOp::any_bit || op == TestOp::no_bit; }

bool is_end(TestOp op) { return op == TestOp::pass || op == TestOp::drop; }

bool is_generated(const Test& test) { return is_end(test.op) || test.op == TestOp::go_on || is_number_test(test.op); }

bool is_in_record(const FastRecord& fast, const Test& test) {
  const bool is_size = test.size == 1 || test.size == 2 || test.size == 4 || test.size == 8;
  if (test.offset == shared::kTestCpu) return test.size == 4;
  if (fast.is_elsewhere && shared::is_of_task(test.offset, test.size)) return false;
  return is_size && std::uint64_t{test.offset} + test.size <= fast.fixed_bytes;
}

void with_number(Assembler& a, const Operand& operand, unsigned opcode, unsigned size, unsigned reg) {
  std::visit([&](const auto& place) { a.op(opcode, size, reg, place); }, operand);
}

// cmp or test with a constant; one of 64 bits that no instruction can hold comes from a register.
void compare(Assembler& a, const Test& test, const Operand& operand, Gpr scratch) {
  const bool bits = is_bits(test.op);
  const auto value = static_cast<std::int64_t>(test.value);
  if (test.size == 8 && value != static_cast<std::int32_t>(value)) {
    a.constant(scratch, test.value);
    return with_number(a, operand, bits ? 0x85 : 0x39, 8, scratch);
  }
  const unsigned opcode = bits ? 0xf6 : 0x80;
  with_number(a, operand, test.size == 1 ? opcode : opcode + 1, test.size, bits ? 0 : 7);
  a.number(test.value, std::min<unsigned>(test.size, 4));
}

}  // namespace

std::optional<Reg> register_of(const FastRecord& fast, const Test& test) {
  if (test.offset == kIpOffset && test.size == 8) return Reg::ip;
  for (std::size_t i = 0; i + 1 < fast.program.size(); ++i) {
    const shared::Insn &load = fast.program[i], &store = fast.program[i + 1];
    if (load.op == Op::load_register && store.op == Op::store_value && store.offset == test.offset &&
        store.size == test.size)
      return static_cast<Reg>(load.size);
  }
  return std::nullopt;
}

namespace {

// Whether the register has what the record will have: it may hold the address of a return stub.
bool is_as_recorded(const FastRecord& fast, const Test& test) {
  const auto reg = register_of(fast, test);
  return reg && (fast.agent_text_bytes == 0 || test.size < 8 || *reg == Reg::ip || *reg == Reg::sp);
}

}  // namespace

FilterPlace filter_place(const FastRecord& fast) {
  const auto& tests = fast.filter;
  if (tests.empty()) return FilterPlace::none;
  if (tests.size() > kMostTests || !is_end(tests.back().op)) return FilterPlace::agent;
  bool in_registers = true;
  for (std::size_t i = 0; i < tests.size(); ++i) {
    const Test& test = tests[i];
    if (!is_generated(test)) return FilterPlace::agent;
    if (is_end(test.op)) continue;
    if (test.target <= i || test.target >= tests.size()) return FilterPlace::agent;
    if (test.op == TestOp::go_on) continue;
    if (!is_in_record(fast, test)) return FilterPlace::agent;
    in_registers = in_registers && is_as_recorded(fast, test);
  }
  // At a return some registers are not yet what the record says of them.
  return in_registers && !fast.is_return ? FilterPlace::registers : FilterPlace::record;
}

void run_tests(Assembler& a, std::span<const Test> tests, Gpr scratch,
               const std::function<Operand(const Test&)>& operand_of, Label& pass, Label& drop) {
  std::vector<Label> places(tests.size());
  for (std::size_t i = 0; i < tests.size(); ++i) {
    const Test& test = tests[i];
    a.bind(places[i]);
    if (is_end(test.op)) {
      a.jump(test.op == TestOp::pass ? pass : drop);
      continue;
    }
    // An end is a place of its own only for who falls into it.
    const Test& target = tests[test.target];
    Label& to = target.op == TestOp::pass ? pass : target.op == TestOp::drop ? drop : places[test.target];
    if (test.op == TestOp::go_on) {
      a.jump(to);
      continue;
    }
    compare(a, test, operand_of(test), scratch);
    a.jump_if(condition_of(test.op), to);
  }
}

void next_dropped(const FastRecord& fast, Assembler& a) {
  constexpr std::int32_t kSlotEvent =
      static_cast<std::int32_t>(offsetof(shared::SlotHead, event)) - static_cast<std::int32_t>(shared::kCopyAfterThunk);
  a.raw({0x69, 0xc9}), a.number(fast.dropped_stride, 4);  // imul, %ecx, %ecx
  a.op(0x01, 8, rcx, rsi);                                // add %rcx, %rsi
  a.load(rax, {rsp, kCopyInFrame});
  a.load4(rax, {rax, kSlotEvent});
  a.raw({0x48, 0x8d, 0xbc, 0xc6}), a.number(fast.dropped_offset, 4);  // lea dropped_offset(%rsi,%rax,8), %rdi
  a.load(rsi, {rdi, 0});
  a.raw({0x48, 0x83, 0xc6, 1});  // add $1, %rsi
}

}  // namespace uprobe::arch
