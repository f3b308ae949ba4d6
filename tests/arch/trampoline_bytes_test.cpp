// SPDX-License-Identifier: MIT
// Trampolines (thunks and bodies) as bytes: their contents, forbidden bytes, and the fields that the kernel and the agent read.
// tests/agent/agent_jump_test runs them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "arch/code/trampoline.h"
#include "engine/shared/process_block.h"
#include "engine/shared/session_area.h"
#include "engine/shared/trampoline.h"

namespace uprobe::arch {
namespace {

using shared::Insn;
using shared::Op;
using shared::Reg;

const std::vector<Insn>& program() {
  static const std::vector<Insn> insns = {
      {Op::begin, 0, 0, 0, 0},         {Op::load_register, static_cast<std::uint8_t>(Reg::di), 0, 0, 0},
      {Op::dereference, 0, 0, 0, 8},   {Op::store_value, 4, 0, 16, 0},
      {Op::begin, 0, 0, 0, 0},         {Op::load_register, static_cast<std::uint8_t>(Reg::si), 0, 0, 0},
      {Op::store_string, 4, 0, 20, 0}, {Op::end, 0, 0, 0, 0},
  };
  return insns;
}

BodySpec make_spec(bool fast, std::uint64_t base = 0x7f0000000000) {
  BodySpec spec{.at = Addr{base}, .block = Addr{base - 0x500000000}, .jump_entry = Addr{base - 0x600000000}};
  if (!fast) return spec;
  FastRecord record;
  record.area = Addr{base - 0x700000000};
  record.data_offset = 0x3000, record.ring_bytes = 1 << 20, record.ring_offset = 0x2000, record.cpu_ring_count = 4;
  record.events_offset = 0x100, record.fixed_bytes = 24, record.program = program();
  spec.fast = record;
  return spec;
}

template <class T>
T load(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

shared::BodyHead head_of(const Body& body) { return load<shared::BodyHead>(body.bytes, 0); }

// Every instruction from the entry on, with its offset. The signature before the abort address is one of them.
std::vector<std::pair<std::size_t, std::string>> listing(const Body& body, Addr at) {
  std::vector<std::pair<std::size_t, std::string>> lines;
  for (std::size_t i = kBodyEntry; i < body.bytes.size();) {
    const Bytes rest = Bytes(body.bytes).subspan(i);
    const auto insn = decode(rest, at + i);
    EXPECT_TRUE(insn) << i;
    if (!insn) break;
    lines.emplace_back(i, disassemble(rest, at + i));
    i += insn->length;
  }
  return lines;
}

struct Section {
  std::uint64_t flags, start, length, abort;
};
constexpr std::size_t kDescriptor = 64;

TEST(TrampolineBytes, HeadNamesItselfAndItsFaults) {
  const BodySpec spec = make_spec(true);
  const Body made = make_body(spec);
  EXPECT_TRUE(made.records);
  const shared::BodyHead head = head_of(made);
  EXPECT_EQ(head.mark, shared::kBodyMagic ^ spec.at.value);
  EXPECT_EQ(head.bytes, made.bytes.size());
  EXPECT_EQ(head.code, kBodyEntry);
  const auto used = std::count_if(std::begin(head.faults), std::end(head.faults), [](auto f) { return f.insn != 0; });
  EXPECT_EQ(used, 3);
}

TEST(TrampolineBytes, TheSectionIsWhatTheKernelAsksFor) {
  const BodySpec spec = make_spec(true);
  const Body made = make_body(spec);
  const auto section = load<Section>(made.bytes, kDescriptor);
  EXPECT_EQ(section.flags, 0u);
  EXPECT_GT(section.start, spec.at.value + kBodyEntry);
  EXPECT_LT(section.start + section.length, spec.at.value + made.bytes.size());
  EXPECT_GE(section.abort - section.start, section.length) << "the abort address lies outside";
  EXPECT_EQ(load<std::uint32_t>(made.bytes, section.abort - spec.at.value - 4), 0x53053053u);
  const std::size_t end = section.start + section.length - spec.at.value;
  std::string last;
  for (const auto& [offset, text] : listing(made, spec.at))
    if (offset < end) last = text;
  EXPECT_EQ(last, "mov %rsi, (%rdi)") << "the commit is the last instruction";
}

TEST(TrampolineBytes, NothingThatTheApplicationWouldNotice) {
  for (const bool fast : {false, true}) {
    const BodySpec spec = make_spec(fast);
    const auto lines = listing(make_body(spec), spec.at);
    EXPECT_GT(lines.size(), 20u);
    for (const auto& [offset, text] : lines) {
      for (const char* bad : {"mm", "rep", "movs", "stos", "lods", "scas", "syscall", "popf", "%st", "cld", "std"})
        EXPECT_FALSE(text.find(bad) != std::string::npos && !text.starts_with("movsx") && !text.starts_with("movslq"))
            << text;
    }
  }
}

TEST(TrampolineBytes, ItsSizeIsKnownBeforeItsPlace) {
  for (const bool fast : {false, true}) {
    const std::size_t most = longest_body(make_spec(fast)).bytes.size();
    for (const std::uint64_t base : {0x7f0000000000ull, 0x800000000ull, 0x555555554000ull})
      EXPECT_LE(make_body(make_spec(fast, base)).bytes.size(), most);
  }
}

TEST(TrampolineBytes, TheThunkIsAsTheAgentKnowsIt) {
  const Addr at{0x7f0000000010};
  std::vector<std::uint8_t> bytes;
  ASSERT_TRUE(append_thunk(bytes, at, at + 0x1000));
  ASSERT_EQ(bytes.size(), shared::kThunkBytes);
  const auto skip = decode(bytes, at);
  ASSERT_TRUE(skip);
  EXPECT_EQ(skip->length, shared::kThunkCall);
  EXPECT_EQ(disassemble(bytes, at), "lea -0x80(%rsp), %rsp");
  const auto call = decode(Bytes(bytes).subspan(shared::kThunkCall), at + shared::kThunkCall);
  ASSERT_TRUE(call);
  EXPECT_TRUE(call->is_call);
  EXPECT_EQ(call->target, at + 0x1000);
}

TEST(TrampolineBytes, ASwitchLeadsToTheCallOfItsThunk) {
  const Addr at{0x7f0000000010}, entry = at + 0x1000, begin = at - shared::kSwitchBytes;
  std::vector<std::uint8_t> thunk;
  ASSERT_TRUE(append_switched_thunk(thunk, at, entry));
  ASSERT_EQ(thunk.size(), shared::kThunkBytes);
  const auto call = decode(Bytes(thunk).subspan(shared::kSwitchedCall), at + shared::kSwitchedCall);
  ASSERT_TRUE(call && call->is_call);
  EXPECT_EQ(call->target, entry);
  EXPECT_EQ(shared::kSwitchedCall + call->length + shared::kStackRestoreBytes, shared::kThunkBytes);
  EXPECT_EQ(disassemble(Bytes(thunk).last(shared::kStackRestoreBytes), at), "pop %rsp");
  const auto code = make_switch(begin, at);
  ASSERT_EQ(code.size(), shared::kSwitchBytes);
  const std::pair<std::uint32_t, const char*> known[] = {{0, "mov %rcx, %fs:0x8"},
                                                         {9, "mov %fs:0x0, %rcx"},
                                                         {20, "mov %rsp, (%rcx)"},
                                                         {23, "mov %rcx, %rsp"},
                                                         {shared::kSwitchIsOver, "mov %fs:0x8, %rcx"}};
  for (const auto& [offset, text] : known)
    EXPECT_EQ(disassemble(Bytes(code).subspan(offset), begin + offset), text) << offset;
  const auto jump = decode(Bytes(code).subspan(shared::kSwitchJump), begin + shared::kSwitchJump);
  ASSERT_TRUE(jump);
  EXPECT_EQ(jump->target, at + shared::kSwitchedCall);
  EXPECT_EQ(code[shared::kSwitchTrap], 0xcc);
}

// The same places, but for the way back; a claim in place of a section.
TEST(TrampolineBytes, ABodyOnASwitchedStackClaims) {
  for (const bool has_cpu_number : {false, true}) {
    BodySpec spec = make_spec(true);
    spec.switches = true;
    spec.fast->claimed_ring_count = 4, spec.fast->has_cpu_number = has_cpu_number;
    const Body made = make_body(spec);
    ASSERT_TRUE(made.records);
    const shared::BodyHead head = head_of(made);
    std::map<std::size_t, std::string> lines;
    for (const auto& [offset, text] : listing(made, spec.at)) lines[offset] = text;
    EXPECT_TRUE(lines.at(head.claimed).starts_with("jn")) << lines.at(head.claimed);
    EXPECT_TRUE(std::prev(lines.find(head.claimed))->second.starts_with("lock cmpxchg"));
    EXPECT_TRUE(lines.at(head.recorded).starts_with("mov")) << lines.at(head.recorded);
    EXPECT_EQ(std::prev(lines.find(head.recorded))->second, "mov %rsi, (%rdi)");
    EXPECT_EQ(lines.at(head.unclaim), lines.at(head.recorded)) << "both give the ring back";
    EXPECT_LT(head.unclaim, head.claimed);
    EXPECT_EQ(std::prev(lines.find(head.slow - 7U))->second.substr(0, 3), "jmp") << "before the signature";
  }
  BodySpec spec = make_spec(true);
  spec.switches = true;
  EXPECT_FALSE(make_body(spec).records) << "there is no ring to claim";
  spec.fast->claimed_ring_count = 4, spec.fast->is_elsewhere = true;
  EXPECT_FALSE(make_body(spec).records);
  EXPECT_NE(head_of(make_body(spec)).claimed, 0) << "it still says that the stack is switched";
  EXPECT_EQ(head_of(make_body(spec)).unclaim, 0);
}

TEST(TrampolineBytes, ABodyOutOfReachIsRefused) {
  const Addr at{0x7f0000000010};
  std::vector<std::uint8_t> bytes;
  const Status made = append_thunk(bytes, at, at + 0x100000000);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::refused);
  EXPECT_TRUE(bytes.empty());
}

// The agent finds its place by this: for any address at most one beginning of a slot is proven.
TEST(TrampolineBytes, ASlotIsItsPoints) {
  shared::Point point{};
  point.address = 0x401000, point.copy = 0x500010;
  const shared::SlotHead head{.address = point.address, .point = 0, .event = 0};
  for (const std::uint64_t copy : {0x500010ull, 0x50001aull}) {
    point.copy = copy;
    for (std::uint64_t at = 0x4fff00; at < 0x500100; at += shared::kSlotUnit)
      EXPECT_EQ(shared::is_slot_of(head, at, point), at == 0x500000) << std::hex << at;
  }
  point.address += 1;
  EXPECT_FALSE(shared::is_slot_of(head, 0x500000, point));
}

TEST(TrampolineBytes, AProgramThatIsTooLongIsTheAgents) {
  std::vector<Insn> many;
  for (std::uint32_t i = 0; i < 60; ++i) {
    many.push_back({Op::begin, 0, 0, 0, 0});
    many.push_back({Op::load_register, static_cast<std::uint8_t>(Reg::si), 0, 0, 0});
    many.push_back({Op::store_string, 4, 0, 16 + 4 * i, 0});
  }
  many.push_back({Op::end, 0, 0, 0, 0});
  BodySpec spec = make_spec(true);
  spec.fast->program = many;
  spec.fast->fixed_bytes = 256;
  const Body made = make_body(spec);
  EXPECT_FALSE(made.records);
  EXPECT_LE(made.bytes.size(), shared::kMaxBodyBytes);
}

// For an area that the application has overwritten, or of a later version, the agent records: it checks each time.
TEST(TrampolineBytes, AnAreaThatMakesNoSenseIsTheAgents) {
  const auto spoil = [](auto change) {
    BodySpec spec = make_spec(true);
    change(*spec.fast);
    return make_body(spec).records;
  };
  EXPECT_TRUE(spoil([](FastRecord&) {}));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.ring_bytes = 3 << 20; }));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.ring_bytes = 64; }));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.cpu_ring_count = 0; }));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.data_offset = std::uint64_t{1} << 32; }));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.events_offset = 0xffffff80; }));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.fixed_bytes = 8; }));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.fixed_bytes = shared::kMaxPayload; }));
  EXPECT_FALSE(spoil([](FastRecord& f) { f.program = f.program.first(f.program.size() - 1); }));
}

// Programs with and without the flags, by itself and by the agent.
std::vector<Body> several() {
  static const std::vector<Insn> all_flags = {{Op::begin, 0, 0, 0, 0},
                                              {Op::load_register, static_cast<std::uint8_t>(Reg::flags), 0, 0, 0},
                                              {Op::store_value, 8, 0, 16, 0},
                                              {Op::end, 0, 0, 0, 0}};
  BodySpec with_flags = make_spec(true);
  with_flags.fast->program = all_flags;
  std::vector<Body> made;
  for (const BodySpec& spec : {make_spec(true), make_spec(false), with_flags}) {
    made.push_back(make_body(spec));
    EXPECT_EQ(made.back().records, spec.fast.has_value());
  }
  return made;
}

// By the offset of each instruction: how deep the stack is before it. The code after the last return is reached with the whole
// frame in place.
std::map<std::size_t, unsigned> depths_of(const Body& made) {
  std::map<std::size_t, unsigned> depths;
  unsigned depth = shared::kCalledDepth;
  for (const auto& [offset, text] : listing(made, make_spec(true).at)) {
    depths[offset] = depth;
    if (text.starts_with("push")) depth += 8;
    if (text.starts_with("pop ")) depth -= 8;
    if (text.starts_with("ret")) depth = shared::kFullDepth;
  }
  return depths;
}

template <std::size_t N>
unsigned depth_at(const shared::TrampolineDepth (&depths)[N], std::size_t distance) {
  unsigned depth = 0;
  for (const auto& from : depths)
    if (from.at <= distance) depth = from.depth;
  return depth;
}

// The fields that the agent uses (preload/trampolines.cpp), at every instruction.
TEST(TrampolineBytes, TheHeadSaysHowDeepTheStackIs) {
  for (const Body& made : several()) {
    const shared::BodyHead head = head_of(made);
    const auto depths = depths_of(made);
    for (const auto& [offset, text] : listing(made, make_spec(true).at)) {
      unsigned expected = shared::kFullDepth;
      if (offset < head.code + std::rbegin(shared::kSaveDepths)->at)
        expected = depth_at(shared::kSaveDepths, offset - head.code);
      else if (offset >= head.out && offset < head.slow)
        expected = depth_at(shared::kRestoreDepths, offset - head.out);
      else if (text == "pop %rax")
        expected += 8;
      EXPECT_EQ(depths.at(offset), expected) << offset << " " << text;
    }
  }
}

TEST(TrampolineBytes, TheHeadSaysWhereTheHitIsRecorded) {
  for (const Body& made : several()) {
    const shared::BodyHead head = head_of(made);
    // by offset: how the instruction there begins, how the one before it
    const std::map<std::size_t, std::pair<const char*, const char*>> known = {
        {head.code + shared::kRaxSaved, {"seto", "lahf"}},
        {head.recorded, {"", made.records ? "mov %rsi, (%rdi)" : "jmp"}},
        {head.out, {"pop %rax", ""}},
        {head.slow, {"mov", "ret"}},
        {head.whole_flags, {"mov", "mov %rax, (%rsp)"}},
        {head.called, {"mov (%rsp), %rax", "call"}},
        {head.short_flags, {"jmp", "mov %rax, (%rsp)"}}};
    std::string before;
    std::size_t seen = 0;
    for (const auto& [offset, text] : listing(made, make_spec(true).at)) {
      if (const auto found = known.find(offset); found != known.end()) {
        EXPECT_TRUE(text.starts_with(found->second.first)) << offset << " " << text;
        EXPECT_TRUE(before.starts_with(found->second.second)) << offset << " " << before;
        ++seen;
      }
      before = text;
    }
    EXPECT_EQ(seen, known.size());
  }
}

// The kernel goes on at the abort address and leaves the stack pointer as it is.
TEST(TrampolineBytes, NothingMovesTheStackInTheSection) {
  for (const Body& made : several()) {
    if (!made.records) continue;
    const Addr at = make_spec(true).at;
    const auto section = load<Section>(made.bytes, kDescriptor);
    const auto depths = depths_of(made);
    for (const auto& [offset, text] : listing(made, at))
      EXPECT_TRUE(at.value + offset - section.start >= section.length || depths.at(offset) == shared::kFullDepth)
          << text;
  }
}

}  // namespace
}  // namespace uprobe::arch
