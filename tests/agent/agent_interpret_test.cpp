// SPDX-License-Identifier: MIT
// Event programs in the agent: each operation, every way in which memory can be unreadable, the limits, and programs that no
// verifier would accept. No store ever goes outside of the payload.
#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "tests/agent/interpreting.h"

namespace uprobe::test {
namespace {

TEST_F(Interpret, HeadHasTypeThreadAndAddress) {
  const Outcome outcome = run({insn(Op::end)}, kHead);
  ASSERT_EQ(outcome.built, Built::ok);
  ASSERT_EQ(outcome.payload.size(), kHead);
  const auto head = outcome.at<shared::PayloadHead>(0);
  EXPECT_EQ(head.type, 7);
  EXPECT_EQ(head.pid, 4711);
  EXPECT_EQ(head.ip, registers_[Reg::ip]);
  EXPECT_EQ(head.flags, 0);
}

TEST_F(Interpret, EveryRegisterInEverySize) {
  for (u32 r = 0; r < shared::kRegCount; ++r)
    for (const u8 size : {u8{1}, u8{2}, u8{4}, u8{8}}) {
      const Outcome outcome =
          run({begin(), insn(Op::load_register, static_cast<u8>(r)), store(kHead, size), insn(Op::end)}, kHead + size);
      const u64 mask = size == 8 ? ~u64{0} : (u64{1} << 8 * size) - 1;
      u64 value = 0;
      std::memcpy(&value, outcome.payload.data() + kHead, size);
      EXPECT_EQ(value, registers_.value[r] & mask) << r << " " << int{size};
    }
}

TEST_F(Interpret, AnIndexIsAddedByItsScale) {
  for (u16 scale = 0; scale < 4; ++scale) {
    const Insn index = insn(Op::add_register, static_cast<u8>(Reg::cx), scale);
    const Outcome outcome = run({begin(), constant(1000), index, store(kHead, 8), insn(Op::end)}, kHead + 8);
    EXPECT_EQ(outcome.at<u64>(kHead), 1000 + (registers_[Reg::cx] << scale));
  }
  const Outcome none =
      run({begin(), constant(7), insn(Op::add_register, 250, 0), store(kHead, 8), insn(Op::end)}, kHead + 8);
  EXPECT_EQ(none.at<u64>(kHead), 7u);
}

// As for the place of a virtual base: the object's table says how far it is from the object.
TEST_F(Interpret, WhatWasKeptIsAdded) {
  u64 table[3] = {static_cast<u64>(-8), 0, 0}, object[2] = {4711, word_of(&table[2])};
  const Outcome outcome = run({begin(), constant(word_of(&object[1])), insn(Op::keep), dereference(),
                               dereference(static_cast<u64>(-16)), insn(Op::add_kept), dereference(), store(kHead, 8),
                               begin(), constant(5), insn(Op::add_kept), store(kHead + 8, 8), insn(Op::end)},
                              kHead + 16);
  EXPECT_EQ(outcome.at<u64>(kHead), 4711u);
  EXPECT_EQ(outcome.at<u64>(kHead + 8), 5u) << "nothing is kept from one argument to the next";
}

TEST_F(Interpret, TheThreadPointerLeadsToTheThreadsOwn) {
  static thread_local u64 own = 0;
  own = 815;
  u64 self = 0;
  asm("movq %%fs:0, %0" : "=r"(self));
  const u64 distance = word_of(&own) - self;
  const Outcome outcome =
      run({begin(), insn(Op::load_thread_pointer), dereference(distance), store(kHead, 8), insn(Op::end)}, kHead + 8);
  EXPECT_EQ(outcome.at<u64>(kHead), 815u);
}

TEST_F(Interpret, ADistanceIsAddedToTheThreadPointer) {
  static thread_local u64 own = 0;
  own = 816;
  u64 self = 0;
  asm("movq %%fs:0, %0" : "=r"(self));
  const auto outcome_of = [&](u64 distance) {
    return run(
        {begin(), constant(distance), insn(Op::add_thread_pointer), dereference(), store(kHead, 8), insn(Op::end)},
        kHead + 8);
  };
  const Outcome there = outcome_of(word_of(&own) - self);
  EXPECT_EQ(there.at<u64>(kHead), 816u);
  EXPECT_EQ(there.flags & shared::kRecordNoEntry, 0);
  for (const u64 none : {u64{0}, u64{8}, u64{1} << 62}) {
    const Outcome outcome = outcome_of(none);
    EXPECT_EQ(outcome.at<u64>(kHead), 0u) << "the loader has not written the distance yet";
    EXPECT_NE(outcome.flags & shared::kRecordNoEntry, 0);
  }
}

// The test's own modules, as its libc knows them.
TEST_F(Interpret, TheDataOfAModule) {
  static thread_local u64 own = 0;
  own = 817;
  block_->tid_offset = shared::kControlBlocks[0].tid;
  u64 self = 0, table = 0;
  asm("movq %%fs:0, %0" : "=r"(self));
  std::memcpy(&table, reinterpret_cast<void*>(self + 8), sizeof table);
  u64 first = 0;
  std::memcpy(&first, reinterpret_cast<void*>(table + 16), sizeof first);
  const auto outcome_of = [&](u64 module) {
    return run({begin(), constant(module), insn(Op::find_thread_data), dereference(word_of(&own) - first),
                store(kHead, 8), insn(Op::end)},
               kHead + 8);
  };
  EXPECT_EQ(outcome_of(1).at<u64>(kHead), 817u) << "the program is the first module";
  for (const u64 none : {u64{0}, u64{1} << 60, ~u64{0}}) {
    const Outcome outcome = outcome_of(none);
    EXPECT_EQ(outcome.at<u64>(kHead), 0u);
    EXPECT_NE(outcome.flags & shared::kRecordNoEntry, 0);
  }
  block_->tid_offset = 0;
  EXPECT_NE(outcome_of(1).flags & shared::kRecordNoEntry, 0) << "of an unknown libc nothing is known";
}

TEST_F(Interpret, VectorRegistersComeFromTheFrame) {
  constexpr u32 kMagic = 0x46505853;
  for (u32 n = 0; n < 16; ++n)
    for (u32 i = 0; i < 16; ++i)
      vectors_.xmm[n][i] = static_cast<u8>(n * 16 + i), vectors_.upper[n][i] = static_cast<u8>(~(n * 16 + i));
  const auto bytes_of = [&](u8 number, u16 count) {
    const Outcome outcome = run({begin(), insn(Op::store_vector, number, count, kHead), insn(Op::end)}, kHead + count);
    return std::vector<u8>(outcome.payload.begin() + kHead, outcome.payload.end());
  };
  const auto expected = [&](u8 number, u16 count, bool low, bool high) {
    std::vector<u8> bytes(count);
    for (u16 i = 0; i < count; ++i) {
      if (i < 16 && low) bytes[i] = static_cast<u8>(number * 16 + i);
      if (i >= 16 && high) bytes[i] = static_cast<u8>(~(number * 16 + i - 16));
    }
    return bytes;
  };
  const struct {
    u32 magic;
    u64 features, in_use;
    bool low, high;
  } states[] = {{kMagic, 7, 7, true, true},  {kMagic, 7, 3, true, false},  {kMagic, 7, 4, false, true},
                {kMagic, 3, 7, true, false}, {kMagic, 7, 0, false, false}, {0, 7, 7, true, false}};
  for (const auto& state : states) {
    vectors_.magic = state.magic, vectors_.features = state.features, vectors_.in_use = state.in_use;
    for (const u8 number : {u8{0}, u8{9}, u8{15}})
      for (const u16 count : {u16{1}, u16{8}, u16{16}, u16{17}, u16{32}})
        EXPECT_EQ(bytes_of(number, count), expected(number, count, state.low, state.high)) << +number << " " << count;
  }
}

TEST_F(Interpret, AVectorRegisterThatDoesNotExistIsLeftOut) {
  for (const Insn bad : {insn(Op::store_vector, 16, 8, kHead), insn(Op::store_vector, 0, 33, kHead),
                         insn(Op::store_vector, 0, 8, kHead + 1), insn(Op::store_vector, 0, 8, ~u32{0})}) {
    const Outcome outcome = run({begin(), bad, insn(Op::end)}, kHead + 8);
    EXPECT_EQ(outcome.at<u64>(kHead), 0x0101010101010101ull * kCanary);
  }
}

TEST_F(Interpret, ARegisterThatDoesNotExistIsZero) {
  const Outcome outcome =
      run({begin(), insn(Op::load_register, shared::kRegCount), store(kHead, 8), insn(Op::end)}, kHead + 8);
  EXPECT_EQ(outcome.at<u64>(kHead), 0U);
}

TEST_F(Interpret, ConstantAndFileOffset) {
  const Outcome outcome = run({begin(), constant(~u64{0}), store(16, 8), begin(),
                               insn(Op::load_file_offset, 0, 0, 0, 0x123), store(24, 8), insn(Op::end)},
                              32);
  EXPECT_EQ(outcome.at<u64>(16), ~u64{0});
  EXPECT_EQ(outcome.at<u64>(24), 0x7000123U);
}

// The sentinel is the object's: if it is unreadable, or another word, nothing of the object is read.
TEST_F(Interpret, DataOfAnObjectThatIsThere) {
  const u64 data[2] = {0x1122334455667788, 42};
  const u64 sentinel = 0xfeedfacecafebeef;
  const HoleyMemory hole(1);
  shared::MappedObject& object = block_->objects[3];
  const u64 bias = word_of(data) - 0x4000;
  const auto seen = [&](const shared::MappedObject& place, u16 number = 3, bool may_fault = true) {
    object = place;
    const Outcome outcome =
        run({begin(), insn(Op::load_object, 0, number, 0, 0x4000), insn(Op::store_memory, 0, 8, 16, 8), begin(),
             insn(Op::load_object, 0, number, 0, 0x4000), store(24, 8), begin(), insn(Op::load_constant, 0, 0, 0, 9),
             store(32, 8), insn(Op::end)},
            40, shared::kMaxPayload, may_fault);
    EXPECT_EQ(outcome.at<u64>(32), 9u) << "the next argument";
    EXPECT_EQ(outcome.at<u64>(24), outcome.at<u64>(16) == 0 ? 0 : word_of(data));
    return outcome.at<u64>(16);
  };
  EXPECT_EQ(seen({bias, word_of(&sentinel), sentinel}), 42u);
  EXPECT_EQ(seen({bias, word_of(&sentinel), sentinel + 1}), 0u) << "another object in its place";
  EXPECT_EQ(seen({bias, word_of(hole.end()), sentinel}), 0u) << "it has gone";
  EXPECT_EQ(seen({bias, 0, 0}), 0u) << "it is not there";
  EXPECT_EQ(seen({bias, word_of(&sentinel), sentinel}, 2), 0u) << "another one's entry";
  EXPECT_EQ(seen({bias, word_of(&sentinel), sentinel}, shared::kMappedObjects), 0u);
  EXPECT_EQ(seen({bias, word_of(&sentinel), sentinel}, 3, false), 0u);
  object = {};
}

// The sentinel lies where the record is written: storing the value is the moment when the object goes.
TEST_F(Interpret, AnObjectThatGoesWhileItIsRead) {
  const char* const text = "an object's text";
  const u64 data = 42, pointer = word_of(text), sentinel = 0x6666666666666666;
  const Insn stores[] = {insn(Op::store_memory, 0, 8, 16), insn(Op::store_value, 8, 0, 16), string(16),
                         insn(Op::store_string_array, 0, 2, 16)};
  for (const Insn& one : stores) {
    const bool is_array = one.op == Op::store_string_array;
    const u64 from = is_array ? word_of(&pointer) : one.op == Op::store_string ? word_of(text) : word_of(&data);
    alignas(8) u8 memory[4096];
    std::fill(std::begin(memory), std::end(memory), u8{0x66});
    for (const bool goes : {false, true}) {
      const u64 at = goes ? word_of(memory + 16) : word_of(&sentinel);
      block_->objects[0] = {from, at, sentinel};
      area_.insns[0] = begin(), area_.insns[1] = insn(Op::load_object), area_.insns[2] = one;
      area_.insns[3] = insn(Op::end);
      shared::Event event{};
      event.insn_count = 4, event.fixed_bytes = 24;
      agent::Payload payload{memory, sizeof memory, 0, 0, false, sizeof memory};
      const agent::Hit hit{block_, &point_, &registers_, 4711, true, false, false, 0, word_of(&vectors_)};
      std::fill(std::begin(memory), std::end(memory), u8{0x66});
      ASSERT_EQ(agent::build_payload(hit, &area_.header, event, payload), Built::ok);
      u32 words[2] = {};
      std::memcpy(words, memory + 16, sizeof words);
      const bool is_text = is_array || one.op == Op::store_string;
      const u32 seen = is_text ? words[0] >> 16 : words[0];
      EXPECT_EQ(seen != 0, !goes) << static_cast<int>(one.op);
      block_->objects[0] = {};
    }
  }
}

TEST_F(Interpret, DereferencesFollowEachOtherAndNegativeOffsetsWork) {
  const u64 values[3] = {1, 0x1122334455667788, 3};
  const u64 pointer = word_of(&values[2]);
  const Outcome outcome = run({begin(), constant(word_of(&pointer)), dereference(), dereference(static_cast<u64>(-8)),
                               store(16, 8), insn(Op::end)},
                              24);
  EXPECT_EQ(outcome.at<u64>(16), values[1]);
}

TEST_F(Interpret, WhatCannotBeReadIsZeroAtEveryStage) {
  const HoleyMemory memory(1);
  const u64 nowhere = word_of(memory.end());
  for (const u64 bad :
       {u64{0}, nowhere, nowhere - 7, word_of(memory.begin()) - 1, kKernel, kNonCanonical, ~u64{0}, ~u64{0} - 7}) {
    const u64 link = bad;
    const Outcome first = run({begin(), constant(bad), dereference(), store(16, 8), insn(Op::end)}, 24);
    const Outcome second = run(
        {begin(), constant(word_of(&link)), dereference(), dereference(), dereference(), store(16, 8), insn(Op::end)},
        24);
    EXPECT_EQ(first.at<u64>(16), 0U) << std::hex << bad;
    EXPECT_EQ(second.at<u64>(16), 0U) << std::hex << bad;
  }
}

TEST_F(Interpret, AFaultEndsWithItsArgument) {
  const u64 value = 99;
  const Outcome outcome = run({begin(), constant(0), dereference(), store(16, 8), begin(), constant(word_of(&value)),
                               dereference(), store(24, 8), insn(Op::end)},
                              32);
  EXPECT_EQ(outcome.at<u64>(16), 0U);
  EXPECT_EQ(outcome.at<u64>(24), 99U);
}

TEST_F(Interpret, NothingIsReadWhereAFaultWouldKill) {
  const u64 value = 99;
  const auto program = {begin(),
                        constant(word_of(&value)),
                        dereference(),
                        store(16, 8),
                        begin(),
                        constant(word_of("abc")),
                        string(24),
                        begin(),
                        constant(word_of(&value)),
                        insn(Op::store_memory, 0, 8, 28),
                        insn(Op::end)};
  const Outcome outcome = run(program, 36, shared::kMaxPayload, false);
  EXPECT_EQ(outcome.at<u64>(16), 0U);
  EXPECT_EQ(outcome.dynamic(24), "(fault)");
  EXPECT_EQ(outcome.at<u64>(28), 0U);
}

TEST_F(Interpret, MemoryIsReadUpToTheFirstUnreadableByte) {
  const HoleyMemory memory(2);
  std::memset(memory.begin(), 0x77, 2 * kPage);
  for (u32 readable = 0; readable <= 24; ++readable) {
    const Outcome outcome = run(
        {begin(), constant(word_of(memory.end()) - readable), insn(Op::store_memory, 0, 24, 16), insn(Op::end)}, 40);
    for (u32 i = 0; i < 24; ++i) EXPECT_EQ(outcome.at<u8>(16 + i), i < readable ? 0x77 : 0) << readable << " " << i;
  }
  const Outcome before =
      run({begin(), constant(word_of(memory.begin()) - 3), insn(Op::store_memory, 0, 24, 16), insn(Op::end)}, 40);
  EXPECT_EQ(before.at<u64>(16), 0U);
}

// As the kernel fetches them: one by one.
TEST_F(Interpret, ElementsAfterAHoleAreRead) {
  const HoleyMemory memory(1);
  for (u32 i = 0; i < 64; ++i)
    memory.begin()[i] = static_cast<u8>(i + 1), *(memory.end() - 64 + i) = static_cast<u8>(i + 101);
  for (const u8 size : {u8{1}, u8{2}, u8{4}, u8{8}})
    for (u64 before = 0; before <= 48; ++before) {
      const u64 at = word_of(memory.begin()) - before;
      const Outcome outcome =
          run({begin(), constant(at), insn(Op::store_memory, size, 48, 16), insn(Op::end)}, 16 + 48);
      for (u64 i = 0; i < 48; ++i) {
        const u64 element = i / size * size;
        ASSERT_EQ(outcome.payload[16 + i], element >= before ? i - before + 1 : 0)
            << int{size} << " " << before << " " << i;
      }
    }
  const Outcome end =
      run({begin(), constant(word_of(memory.end()) - 20), insn(Op::store_memory, 4, 48, 16), insn(Op::end)}, 64);
  EXPECT_EQ(end.payload[16 + 19], 164);
  EXPECT_EQ(end.payload[16 + 20], 0);
}

TEST_F(Interpret, MemoryAfterAFaultIsZero) {
  const Outcome outcome =
      run({begin(), constant(8), dereference(), insn(Op::store_memory, 0, 16, 16), insn(Op::end)}, 32);
  EXPECT_EQ(outcome.at<u64>(16), 0U);
  EXPECT_EQ(outcome.at<u64>(24), 0U);
}

TEST_F(Interpret, StringArraysFaultElementByElement) {
  const HoleyMemory memory(1);
  const u64 pointers[5] = {word_of("one"), 0, word_of(""), kNonCanonical, word_of("five")};
  const Outcome outcome =
      run({begin(), constant(word_of(pointers)), insn(Op::store_string_array, 0, 5, 16), insn(Op::end)}, 36);
  EXPECT_EQ(outcome.dynamic(16), std::string("one", 4));
  EXPECT_EQ(outcome.dynamic(20), "(fault)");
  EXPECT_EQ(outcome.dynamic(24), std::string("", 1));
  EXPECT_EQ(outcome.dynamic(28), "(fault)");
  EXPECT_EQ(outcome.dynamic(32), std::string("five", 5));
  EXPECT_EQ(outcome.payload.size(), 36U + 4 + 1 + 5);
}

TEST_F(Interpret, APointerTableMayEndInAHole) {
  const HoleyMemory memory(1);
  const u64 pointers[2] = {word_of("a"), word_of("b")};
  const u64 at = memory.put_at_end(pointers, sizeof pointers);
  const Outcome outcome = run({begin(), constant(at), insn(Op::store_string_array, 0, 4, 16), insn(Op::end)}, 32);
  EXPECT_EQ(outcome.dynamic(16), std::string("a", 2));
  EXPECT_EQ(outcome.dynamic(20), std::string("b", 2));
  EXPECT_EQ(outcome.dynamic(24), "(fault)");
  EXPECT_EQ(outcome.dynamic(28), "(fault)");
  const Outcome skewed = run({begin(), constant(at + 4), insn(Op::store_string_array, 0, 2, 16), insn(Op::end)}, 24);
  EXPECT_EQ(skewed.dynamic(20), "(fault)");
}

TEST_F(Interpret, TextIsTakenFromTheSession) {
  std::memcpy(area_.text + 10, "constant", 9);
  const Outcome outcome = run({begin(), insn(Op::store_text, 0, 9, 16, 10), insn(Op::end)}, 20);
  EXPECT_EQ(outcome.dynamic(16), std::string("constant", 9));
}

TEST_F(Interpret, TaskNameIsFetchedUnlessTheProcessIsFiltered) {
  ASSERT_EQ(::syscall(SYS_prctl, 15 /* PR_SET_NAME */, "interpreter", 0, 0, 0), 0);
  const auto program = {begin(), insn(Op::store_comm, 0, 0, 16), insn(Op::end)};
  const Outcome known = run(program, 20);
  EXPECT_EQ(known.dynamic(16), std::string("interpreter", 12));
  EXPECT_EQ(known.flags, 0);
  block_->flags = shared::kBlockFiltered;
  const Outcome later = run(program, 20);
  EXPECT_EQ(later.dynamic(16).size(), 16U);
  EXPECT_EQ(later.flags, shared::kRecordCommLater);
}

TEST_F(Interpret, BitfieldsShiftInTheirOwnWidth) {
  struct {
    u8 size, left, right;
    u64 value, expected;
  } const cases[] = {{1, 2, 5, 0xb6, (0xb6 << 2 & 0xff) >> 5},
                     {2, 0, 15, 0x8001, 1},
                     {4, 31, 31, 0xffffffff, 1},
                     {8, 60, 60, 0xabcdef0123456789, 9},
                     {8, 0, 0, 0xabcdef0123456789, 0xabcdef0123456789},
                     {8, 63, 63, 1, 1}};
  for (const auto& c : cases) {
    const u64 shifts = c.left | u64{c.right} << 8;
    const Outcome outcome =
        run({begin(), constant(c.value), store(16, c.size), insn(Op::shift, c.size, 1, 16, shifts), insn(Op::end)},
            16u + c.size);
    u64 value = 0;
    std::memcpy(&value, outcome.payload.data() + 16, c.size);
    EXPECT_EQ(value, c.expected) << int{c.size};
  }
}

TEST_F(Interpret, ShiftsThatKeepTheSign) {
  for (const u8 size : {u8{1}, u8{2}, u8{4}, u8{8}})
    for (u32 width = 1; width <= 8u * size; ++width)
      for (const u64 number : {u64{0}, u64{1}, ~u64{0}, u64{1} << (width - 1), (u64{1} << (width - 1)) - 1}) {
        const u64 bits = 8u * size, low = (bits - width) / 2, left = bits - width - low;
        const u64 mask = ~u64{0} >> (64 - width), noise = 0x5a5a5a5a5a5a5a5a;
        const u64 container = (noise & ~(mask << low)) | (number & mask) << low;
        const Outcome outcome =
            run({begin(), constant(container), store(16, size),
                 insn(Op::shift, size, 1, 16, left | (bits - width) << 8 | shared::kShiftSigned), insn(Op::end)},
                16u + size);
        u64 value = 0;
        std::memcpy(&value, outcome.payload.data() + 16, size);
        const shared::i64 seen = static_cast<shared::i64>(value << (64 - bits)) >> (64 - bits);
        const shared::i64 expected = static_cast<shared::i64>(number << (64 - width)) >> (64 - width);
        ASSERT_EQ(seen, expected) << int{size} << " " << width << " " << number;
      }
}

TEST_F(Interpret, SumsAndUpperParts) {
  const u64 words[2] = {7, 0x123456789abcdef0};
  const Outcome outcome =
      run({begin(), constant(word_of(words)), insn(Op::add, 0, 0, 0, 8), store(16, 8), begin(),
           constant(word_of(words)), insn(Op::add, 0, 0, 0, ~u64{0} - 7), insn(Op::dereference, 0, 0, 0, 16),
           insn(Op::shift_right, 0, 0, 0, 16), store(24, 2), begin(), constant(5), insn(Op::dereference),
           insn(Op::add, 0, 0, 0, 9), store(26, 8), insn(Op::end)},
          34);
  EXPECT_EQ(outcome.at<u64>(16), word_of(words + 1));
  EXPECT_EQ(outcome.at<u16>(24), 0x9abc);
  EXPECT_EQ(outcome.at<u64>(26), 0U) << "a value that could not be read stays 0";
}

TEST_F(Interpret, ShiftsOfArraysTouchEachElementAlone) {
  const u16 values[3] = {0xffff, 0x0ff0, 0x1234};
  const Outcome outcome = run({begin(), constant(word_of(values)), insn(Op::store_memory, 0, 6, 16),
                               insn(Op::shift, 2, 3, 16, 4 | 8 << 8), insn(Op::end)},
                              22);
  EXPECT_EQ(outcome.at<u16>(16), 0xff);
  EXPECT_EQ(outcome.at<u16>(18), 0xff);
  EXPECT_EQ(outcome.at<u16>(20), 0x23);
}

// Programs that the verifier refuses, such as an application that overwrites the session area may leave.
TEST_F(Interpret, StoresOutsideOfTheFixedPartAreLeftOut) {
  for (const u32 offset : {24u, 23u, 4000u, 0x7fffffffu, 0xfffffff0u, 0xffffffffu}) {
    const std::vector<Insn> stores = {store(offset, 8),
                                      insn(Op::store_memory, 0, 64, offset),
                                      string(offset),
                                      insn(Op::store_string_array, 0, 8, offset),
                                      insn(Op::store_text, 0, 8, offset),
                                      insn(Op::store_comm, 0, 0, offset),
                                      insn(Op::shift, 8, 4, offset, 1)};
    for (const Insn& bad : stores) {
      const Outcome outcome = run({begin(), constant(word_of("hostile")), bad, insn(Op::end)}, 24);
      EXPECT_EQ(outcome.built, Built::ok);
    }
  }
}

TEST_F(Interpret, TextOutsideOfThePoolIsLeftOut) {
  for (const u64 at : {u64{257}, u64{250}, ~u64{0}, ~u64{0} - 9, u64{1} << 63, u64{1} << 32}) {
    const Outcome outcome = run({begin(), insn(Op::store_text, 0, 10, 16, at), insn(Op::end)}, 20);
    EXPECT_EQ(outcome.payload.size(), 20U) << std::hex << at;
  }
}

TEST_F(Interpret, AProgramOutsideOfTheAreaIsNotRun) {
  for (const u32 first : {513u, 500u, 0x10000000u, 0xffffffffu}) {
    shared::Event event{};
    event.first_insn = first, event.insn_count = 100, event.fixed_bytes = 24;
    EXPECT_EQ(run_event(event, shared::kMaxPayload).built, Built::too_big) << first;
  }
  shared::Event endless{};
  endless.insn_count = 0xffffffff, endless.fixed_bytes = 24;
  EXPECT_EQ(run_event(endless, shared::kMaxPayload).built, Built::too_big);
}

TEST_F(Interpret, FixedPartsThatCannotBeAreRefused) {
  for (const u32 fixed : {0u, kHead - 1, shared::kMaxPayload + 1, ~0u}) {
    shared::Event event{};
    event.fixed_bytes = fixed;
    EXPECT_NE(run_event(event, shared::kMaxPayload).built, Built::ok) << fixed;
  }
}

// With any words it ends and stays inside its payload; run_event() checks the canaries.
TEST_F(Interpret, RandomPrograms) {
  std::mt19937_64 random(20);
  const char* const text = "random";
  const HoleyMemory memory(1);
  const u64 edge[] = {0, ~u64{0}, word_of(text), word_of(memory.end()) - 5, kKernel, kNonCanonical, 24, 0x7fffffff};
  for (int round = 0; round < 2000; ++round) {
    std::vector<Insn> program;
    for (u64 n = random() % 24; n != 0; --n) {
      Insn any{static_cast<Op>(random() % (shared::kOpCount + 2)), static_cast<u8>(random() % 12),
               static_cast<u16>(random() % 80), static_cast<u32>(random() % 96), edge[random() % std::size(edge)]};
      if (random() % 8 == 0) any.offset = static_cast<u32>(random());
      if (random() % 64 == 0) any.count = static_cast<u16>(random());
      if (random() % 8 == 0) any.size = static_cast<u8>(random());
      program.push_back(any);
    }
    run(program, static_cast<u32>(kHead + random() % 80), static_cast<u32>(random() % (shared::kMaxPayload + 1)));
  }
}

}  // namespace
}  // namespace uprobe::test
