// SPDX-License-Identifier: MIT
// The verifier: programs with one thing wrong each, and random ones.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "engine/program/compile.h"
#include "engine/program/verify.h"
#include "engine/spec/parse.h"

namespace uprobe::program {
namespace {

using shared::Op;

// begin, register, dereference, store_value | begin, register, store_memory, shift | begin, store_text | end
EventProgram good() {
  const auto spec =
      spec::parse_definition("p:g/e /b/x:f $stack1:u16 +0(%si):b4@0/8[2] \\\"text\"", {.file_check = nullptr});
  return compile(*spec).take();
}

std::string answer(const std::function<void(EventProgram&)>& change) {
  EventProgram program = good();
  change(program);
  const auto status = verify(program);
  return status ? "ok" : status.error().text;
}

TEST(Verify, AcceptsWhatIsCompiled) {
  EXPECT_EQ(answer([](EventProgram&) {}), "ok");
  ASSERT_EQ(good().insns.size(), 11u);
}

TEST(Verify, TheEndIsAtTheEnd) {
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.clear(); }), "the program has no end");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.pop_back(); }), "the program has no end");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.insert(p.insns.begin() + 4, {.op = Op::end}); }),
            "instruction 4: an end in the middle");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.insert(p.insns.begin(), 4000, {.op = Op::begin}); }),
            "the program is too long");
}

TEST(Verify, OperationsAndTheirOrder) {
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].op = static_cast<Op>(shared::kOpCount); }),
            "instruction 1: an unknown operation");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].op = static_cast<Op>(255); }),
            "instruction 1: an unknown operation");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.erase(p.insns.begin()); }), "instruction 0: a load out of order");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.erase(p.insns.begin() + 1); }), "instruction 1: a load out of order");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.erase(p.insns.begin() + 3); }),
            "instruction 3: the argument before stores nothing");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.erase(p.insns.begin() + 5); }),
            "instruction 5: a store without a value");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.erase(p.insns.begin() + 9); }),
            "instruction 9: the last argument stores nothing");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].size = shared::kRegCount; }), "instruction 1: an unknown register");
}

TEST(Verify, AnObjectIsOneOfTheList) {
  auto spec = spec::parse_definition("p:g/e /b/x:f @./a.so:count:u8 +0(@./b.so:text):string", {.file_check = nullptr});
  ASSERT_TRUE(spec);
  for (spec::Argument& argument : spec->arguments) argument.symbol.clear();
  spec->arguments[1].exported = "text";
  auto program = compile(*spec);
  ASSERT_TRUE(program);
  ASSERT_EQ(program->objects.size(), 2u);
  EXPECT_EQ(program->objects[0].path, "./a.so");
  EXPECT_EQ(program->objects[1].exported, "text");
  EXPECT_EQ(program->insns[1].op, Op::load_object);
  EXPECT_EQ(program->insns[1].count, 0);
  EXPECT_EQ(program->insns[4].count, 1);
  EXPECT_TRUE(verify(*program));
  program->insns[4].count = 2;
  EXPECT_EQ(verify(*program).error().text, "instruction 4: an unknown object");
}

TEST(Verify, ValuesChangeAfterTheirSource) {
  const auto with = [](std::size_t at, shared::Insn insn) {
    return answer([&](EventProgram& p) { p.insns.insert(p.insns.begin() + static_cast<std::ptrdiff_t>(at), insn); });
  };
  const shared::Insn add{.op = Op::add, .immediate = UINT64_MAX}, shift{.op = Op::shift_right, .immediate = 63};
  EXPECT_EQ(with(2, add), "ok");
  EXPECT_EQ(with(3, shift), "ok");
  EXPECT_EQ(with(1, add), "instruction 1: a load out of order");
  EXPECT_EQ(with(4, shift), "instruction 4: a load out of order");
  EXPECT_EQ(with(2, {.op = Op::shift_right, .immediate = 64}), "instruction 2: a shift past the value");
}

TEST(Verify, WhatIsKeptIsAValue) {
  using Insns = std::vector<shared::Insn>;
  const auto with = [](const Insns& insns) {
    return answer([&](EventProgram& p) { p.insns.insert(p.insns.begin() + 2, insns.begin(), insns.end()); });
  };
  const shared::Insn keep{.op = Op::keep}, add{.op = Op::add_kept}, load{.op = Op::load_constant},
      thread{.op = Op::load_thread_pointer};
  EXPECT_EQ(with({keep}), "ok");
  EXPECT_EQ(with({keep, add}), "ok");
  EXPECT_EQ(with({keep, load}), "ok");
  EXPECT_EQ(with({keep, thread, add, keep, load}), "ok");
  const shared::Insn distance{.op = Op::add_thread_pointer}, data{.op = Op::find_thread_data};
  EXPECT_EQ(with({distance}), "ok");
  EXPECT_EQ(with({keep, load, data, add}), "ok");
  EXPECT_EQ(with({keep, load, data, load}), "instruction 5: a load out of order");
  EXPECT_EQ(answer([&](EventProgram& p) { p.insns.insert(p.insns.begin() + 1, data); }),
            "instruction 1: a load out of order");
  EXPECT_EQ(with({add}), "instruction 2: nothing was kept");
  EXPECT_EQ(with({load}), "instruction 2: a load out of order");
  EXPECT_EQ(with({keep, load, load}), "instruction 4: a load out of order");
  EXPECT_EQ(with({keep, add, load}), "instruction 4: a load out of order");
  EXPECT_EQ(answer([&](EventProgram& p) { p.insns.insert(p.insns.begin() + 1, keep); }),
            "instruction 1: nothing to keep");
}

TEST(Verify, AStringsLengthIsKept) {
  EventProgram program{.insns = {{.op = Op::begin},
                                 {.op = Op::load_constant},
                                 {.op = Op::keep},
                                 {.op = Op::load_constant},
                                 {.op = Op::store_string, .count = 1, .offset = kEntryHead},
                                 {.op = Op::end}}};
  program.layout.fixed_bytes = kEntryHead + 4;
  program.layout.fields = {{.name = "s", .kind = spec::Kind::string, .size = 4, .offset = kEntryHead}};
  EXPECT_TRUE(verify(program));
  program.insns[4].count = 2;
  EXPECT_EQ(verify(program).error().text, "instruction 4: a string without its length");
  program.insns[4].count = 1;
  program.insns.erase(program.insns.begin() + 2, program.insns.begin() + 4);
  EXPECT_EQ(verify(program).error().text, "instruction 2: a string without its length");
}

TEST(Verify, AnIndexIsARegisterOfAScale) {
  const auto with = [](std::size_t at, shared::Insn insn) {
    return answer([&](EventProgram& p) { p.insns.insert(p.insns.begin() + static_cast<std::ptrdiff_t>(at), insn); });
  };
  EXPECT_EQ(with(2, {.op = Op::add_register, .size = 1, .count = 3}), "ok");
  EXPECT_EQ(with(1, {.op = Op::add_register}), "instruction 1: a load out of order");
  EXPECT_EQ(with(2, {.op = Op::add_register, .size = shared::kRegCount}), "instruction 2: an unknown register");
  EXPECT_EQ(with(2, {.op = Op::add_register, .count = 4}), "instruction 2: an index of an impossible scale");
}

// A field of 8 bytes, of which 2 are read: begin, register, store_memory, shift, end.
TEST(Verify, AnExtensionShiftsOutWhatWasNotStored) {
  const auto answer = [](const std::function<void(EventProgram&)>& change) {
    auto spec = spec::parse_definition("p:g/e /b/x:f +0(%si):s64", {.file_check = nullptr});
    spec->arguments[0].source_bytes = 2;
    spec->arguments[0].extends_sign = true;
    EventProgram program = compile(*spec).take();
    change(program);
    const auto status = verify(program);
    return status ? "ok" : status.error().text;
  };
  EXPECT_EQ(answer([](EventProgram&) {}), "ok");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.erase(p.insns.begin() + 3); }), "byte 18 is never stored");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].immediate = 47 | 47 << 8; }),
            "instruction 3: a shift that keeps what was not stored");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].size = 4; }), "instruction 3: a shift past the element");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].offset = 17; }), "instruction 3: a shift of what was not stored");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].count = 2; }), "instruction 3: a shift of what was not stored");
}

// load_entry, latency | note: begin, register, store_value | begin, register, store_memory | end
TEST(Verify, WhatIsNotedAtTheEntry) {
  const auto answer = [](const std::function<void(EventProgram&)>& change) {
    const auto spec =
        spec::parse_definition("r:g/e /b/x:f $entry_arg1:u16 entry(+0(%si)):u32 $latency", {.file_check = nullptr});
    EventProgram program = compile(*spec).take();
    change(program);
    const auto status = verify(program);
    return status ? "ok" : status.error().text;
  };
  EXPECT_EQ(answer([](EventProgram&) {}), "ok");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].offset = 15; }), "instruction 1: a load outside of what is noted");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].offset = 21; }), "instruction 1: a load outside of what is noted");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].size = 3; }), "instruction 1: a load outside of what is noted");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].size = 16; }), "instruction 1: a load outside of what is noted");
  EXPECT_EQ(answer([](EventProgram& p) { p.note.clear(); }), "instruction 1: nothing is noted at the entry");
  EXPECT_EQ(answer([](EventProgram& p) { p.note.pop_back(); }), "the program has no end");
  EXPECT_EQ(answer([](EventProgram& p) { p.note[2].offset = 24; }), "instruction 2: a store outside of the record");
  EXPECT_EQ(answer([](EventProgram& p) { p.note[1].op = Op::load_latency; }),
            "instruction 1: nothing is noted at the entry");
  EXPECT_EQ(answer([](EventProgram& p) { p.note[1] = {.op = Op::store_comm, .offset = 16}; }),
            "dynamic data is noted at the entry");
  EXPECT_EQ(answer([](EventProgram& p) { p.noted.fixed_bytes = 23; }), "the fields do not fill the record");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.insert(p.insns.begin() + 1, {.op = Op::load_register}); }),
            "instruction 2: a load out of order");
}

TEST(Verify, VectorRegisters) {
  const auto answer = [](const std::function<void(EventProgram&)>& change) {
    EventProgram program = compile(*spec::parse_definition("p:g/e /b/x:f %ymm15 %di", {.file_check = nullptr})).take();
    change(program);
    const auto status = verify(program);
    return status ? "ok" : status.error().text;
  };
  EXPECT_EQ(answer([](EventProgram&) {}), "ok");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].size = 16; }), "instruction 1: an unknown vector register");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].count = 33; }), "instruction 1: an unknown vector register");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].count = 0; }), "instruction 1: a store outside of the record");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[1].offset = 17; }), "instruction 4: a second store to the same bytes");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns.insert(p.insns.begin() + 1, {.op = Op::load_constant}); }),
            "instruction 2: a store of its own after a value");
}

TEST(Verify, StoresStayInTheirBytes) {
  const char* outside = "instruction 3: a store outside of the record";
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].offset = 15; }), outside);
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].offset = 0; }), outside);
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].offset = 23; }), outside);
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].offset = UINT32_MAX; }), outside);
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[6].count = UINT16_MAX; }),
            "instruction 6: a store outside of the record");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[6].count = 0; }), "instruction 6: a store outside of the record");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].offset = 18; }), "instruction 6: a second store to the same bytes");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].size = 3; }), "instruction 3: a value of an impossible size");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[3].size = 1; }), "byte 17 is never stored");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[6].op = Op::store_string_array; }),
            "instruction 6: a store outside of the record");
}

TEST(Verify, ShiftsFitTheirElements) {
  const auto shift = [](std::uint64_t immediate) {
    return answer([=](EventProgram& p) { p.insns[7].immediate = immediate; });
  };
  EXPECT_EQ(shift(7 | 7 << 8), "ok");
  EXPECT_EQ(shift(7 | 7 << 8 | shared::kShiftSigned), "ok");
  EXPECT_EQ(shift(shared::kShiftSigned << 1), "instruction 7: a shift past the element");
  EXPECT_EQ(shift(8), "instruction 7: a shift past the element");
  EXPECT_EQ(shift(8 << 8), "instruction 7: a shift past the element");
  EXPECT_EQ(shift(UINT64_MAX), "instruction 7: a shift past the element");
  EXPECT_EQ(shift(1ull << 63), "instruction 7: a shift past the element");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[7].offset = 16; }), "instruction 7: a shift of what was not stored");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[7].count = 3; }), "instruction 7: a shift of what was not stored");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[7].size = 0; }), "instruction 7: a shift of an impossible size");
}

TEST(Verify, TextsLieInTheirPool) {
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[9].immediate = 5; }), "instruction 9: a text outside of its pool");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[9].immediate = UINT64_MAX; }),
            "instruction 9: a text outside of its pool");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[9].count = 6; }), "instruction 9: a text outside of its pool");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[9].count = 4; }), "instruction 9: a text without its NUL");
  EXPECT_EQ(answer([](EventProgram& p) { p.insns[9].count = 0; }), "instruction 9: a text of an impossible length");
  EXPECT_EQ(answer([](EventProgram& p) { p.text.clear(); }), "instruction 9: a text outside of its pool");
}

TEST(Verify, TheLayoutMatchesTheStores) {
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fixed_bytes = 15; }), "the record's size is impossible");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fixed_bytes = 16 + 3073; }), "the record's size is impossible");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fixed_bytes = UINT32_MAX; }), "the record's size is impossible");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fixed_bytes -= 1; }), "the fields do not fill the record");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.is_return = true; }), "the fields are not packed");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fields[1].offset += 1; }), "the fields are not packed");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fields[0].count = 65; }), "a field's size is impossible");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fields[2].size = 8; }), "a string's field is no locator");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fields[0].is_wide = true; }), "a wide field is no pair of numbers");
  EXPECT_EQ(answer([](EventProgram& p) { p.layout.fields.resize(129); }), "the record has too many fields");
}

// A program that passes stays inside the record: checked again here, by other means.
TEST(Verify, RandomProgramsThatPassAreHarmless) {
  std::mt19937_64 random(7);
  int passed = 0;
  for (int round = 0; round < 200000; ++round) {
    EventProgram program = good();
    for (auto changes = 1 + random() % 3; changes-- > 0;) {
      auto& insn = program.insns[random() % program.insns.size()];
      switch (random() % 5) {
        case 0:
          insn.op = static_cast<Op>(random() % 14);
          break;
        case 1:
          insn.size = static_cast<std::uint8_t>(random() % 10);
          break;
        case 2:
          insn.count = static_cast<std::uint16_t>(random() % 8);
          break;
        case 3:
          insn.offset = static_cast<std::uint32_t>(14 + random() % 12);
          break;
        default:
          insn.immediate = random() % 8;
          break;
      }
    }
    if (!verify(program)) continue;
    ++passed;
    ASSERT_EQ(program.insns.back().op, Op::end);
    for (const auto& insn : program.insns) {
      const std::uint64_t bytes = insn.op == Op::store_value          ? insn.size
                                  : insn.op == Op::store_memory       ? insn.count
                                  : insn.op == Op::store_string_array ? insn.count * 4u
                                                                      : 4u;
      if (insn.op < Op::store_value || insn.op == Op::shift) continue;
      ASSERT_GE(insn.offset, 16u);
      ASSERT_LE(insn.offset + bytes, program.layout.fixed_bytes);
    }
  }
  EXPECT_GT(passed, 1000);
}

}  // namespace
}  // namespace uprobe::program
