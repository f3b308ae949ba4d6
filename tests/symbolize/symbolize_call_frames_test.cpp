// SPDX-License-Identifier: MIT
// Rows of unwind tables against readelf's, steps by them, and false tables.
#include <map>
#include <random>

#include "engine/symbolize/call_frames.h"
#include "engine/symbolize/frame_walk.h"
#include "tests/elf/fixture.h"
#include "tests/elf/made_elf.h"
#include "tests/elf/readelf.h"

namespace uprobe::elf {
namespace {

using Kind = FrameRule::Kind;

constexpr std::uint64_t kHeader = 0x800, kTable = 0x900, kFunction = MadeElf::kBase + MadeElf::kCode;

using Loads = std::map<std::uint64_t, std::uint64_t>;

class FakeMemory final : public FrameMemory {
 public:
  explicit FakeMemory(Loads words = {}) : words_(std::move(words)) {}
  std::optional<std::uint64_t> load(std::uint64_t address) const override {
    const auto at = words_.find(address);
    return at == words_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  Loads words_;
};

std::optional<std::uint64_t> value_of(const Bytes& expression, const FakeMemory& memory = FakeMemory(),
                                      std::optional<std::uint64_t> first = {}) {
  FrameState state;
  state[kFrameSp] = 0x7000, state[kFrameIp] = 0x401008;
  return evaluate(BytesView(expression), first, memory, state);
}

// The rules of one function of 0x40 bytes, after `def_cfa rsp+8; offset ip -8`.
Bytes file_with(const Bytes& rules, const std::string& letters = "zR") {
  MadeElf made;
  made.add_part(PT_GNU_EH_FRAME, kHeader, 12);
  made.put_bytes(kHeader, {1, 0x1b, 0x03, 0x3b});
  made.put(kHeader + 4, static_cast<std::int32_t>(kTable - (kHeader + 4)));
  Bytes form{0, 0, 0, 0, 1};
  form.insert(form.end(), letters.c_str(), letters.c_str() + letters.size() + 1);
  for (const int byte : {1, 0x78, 16, 1, 0x03, 0x0c, 7, 8, 0x90, 1}) form.push_back(static_cast<std::uint8_t>(byte));
  Bytes table;
  put(table, 0, static_cast<std::uint32_t>(form.size()));
  table.insert(table.end(), form.begin(), form.end());
  const std::size_t at = table.size();
  put(table, at, static_cast<std::uint32_t>(13 + rules.size()));
  put(table, at + 4, static_cast<std::uint32_t>(at + 4));
  put(table, at + 8, static_cast<std::uint32_t>(kFunction));
  put(table, at + 12, std::uint32_t{0x40});
  table.push_back(0);
  table.insert(table.end(), rules.begin(), rules.end());
  put(table, table.size(), std::uint32_t{0});
  made.put_bytes(kTable, table);
  return made.bytes();
}

std::string text_of(const FrameRule& rule, bool is_top) {
  static const char* const kNames[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
                                       "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip"};
  const auto number = [&](const char* prefix) {
    return prefix + std::string(rule.offset < 0 ? "" : "+") + std::to_string(rule.offset);
  };
  switch (rule.kind) {
    case Kind::unsaid:
    case Kind::undefined:
      return "u";
    case Kind::same:
      return "s";
    case Kind::at_offset:
      return number("c");
    case Kind::is_offset:
      return number("v");
    case Kind::in_register:
      return is_top ? number(kNames[rule.reg]) : kNames[rule.reg];
    case Kind::at_expression:
      return "exp";
    case Kind::is_expression:
      return is_top ? "exp" : "vexp";
  }
  return "";
}

// The rows of all functions, as readelf shows them: the address, then the columns.
void compare_with_readelf(const std::string& path, std::size_t least) {
  static const std::map<std::string, std::size_t> kColumns{
      {"rbx", 3},  {"rbp", 6}, {"r12", 12}, {"r13", 13}, {"r14", 14}, {"r15", 15}, {"ra", 16},  {"r8", 8}, {"r9", 9},
      {"r10", 10}, {"rdi", 5}, {"rsi", 4},  {"rax", 0},  {"rcx", 2},  {"rdx", 1},  {"r11", 11}, {"rsp", 7}};
  const ElfFile file = must_open(path);
  CallFrames frames(file.bytes());
  Words columns;
  bool of_function = false;
  std::size_t rows = 0;
  std::uint64_t end = 0;
  for (const Words& line : readelf("--debug-dump=frames-interp", path)) {
    if (line.size() > 3 && (line[3] == "CIE" || line[3] == "FDE")) of_function = line[3] == "FDE";
    if (line.size() > 5 && line[3] == "FDE") end = std::stoull(line[5].substr(line[5].find("..") + 2), nullptr, 16);
    if (!line.empty() && line[0] == "LOC") columns = line;
    if (!of_function || line.size() != columns.size() || line.size() < 2 || line[0].size() != 16) continue;
    const std::uint64_t address = std::stoull(line[0], nullptr, 16);
    if (address >= end) continue;  // of an empty procedure linkage table
    const FrameRow* row = frames.row_at(address);
    ASSERT_NE(row, nullptr) << line[0];
    EXPECT_EQ(text_of(row->cfa, true), line[1]) << line[0];
    for (std::size_t i = 2; i < line.size(); ++i) {
      const auto column = kColumns.find(columns[i]);
      if (column == kColumns.end()) continue;
      EXPECT_EQ(text_of(row->registers[column->second], false), line[i]) << line[0] << " " << columns[i];
    }
    ++rows;
  }
  EXPECT_GE(rows, least);
}

TEST(CallFrames, AreWhatReadelfShows) {
  if (!has_readelf()) GTEST_SKIP() << "no readelf";
  compare_with_readelf(fixture("elf_pie"), 10);
  compare_with_readelf(fixture("elf_static"), 2000);
  compare_with_readelf(fixture("elf_debug_frames"), 10);
}

TEST(CallFrames, EndWithTheirFunction) {
  const Bytes file = file_with({0x41, 0x0e, 16});
  CallFrames frames{std::span(file)};
  EXPECT_EQ(frames.row_at(kFunction - 1), nullptr);
  EXPECT_EQ(frames.row_at(kFunction + 0x40), nullptr);
  ASSERT_NE(frames.row_at(kFunction), nullptr);
  EXPECT_EQ(frames.row_at(kFunction)->cfa.offset, 8);
  EXPECT_EQ(frames.row_at(kFunction + 0x3f)->cfa.offset, 16);
  EXPECT_FALSE(frames.row_at(kFunction)->is_signal);
}

TEST(CallFrames, SayWhereHandlersReturn) {
  const Bytes file = file_with({}, "zRS");
  CallFrames frames{std::span(file)};
  ASSERT_NE(frames.row_at(kFunction), nullptr);
  EXPECT_TRUE(frames.row_at(kFunction)->is_signal);
}

TEST(CallFrames, WhatIsNotUnderstoodIsNotKnown) {
  const std::vector<Bytes> rules{
      {0x3c},                             // no such rule
      {0x01, 0, 0, 0, 0, 0, 0, 0, 0},     // set_loc
      {0x0b},                             // restore_state without its other half
      {0x0c, 7},                          // cut off
      {0x0f, 0xff, 0xff, 0x03, 0x77, 8},  // an expression that is longer than the table
      {0x0f, 1, 0x30, 0x0e, 8},           // an offset to no register
      Bytes(100, 0x0a),                   // a hundred states remembered
      {0x05, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}};  // a register without end
  for (const Bytes& program : rules) {
    const Bytes file = file_with(program);
    CallFrames frames{std::span(file)};
    EXPECT_EQ(frames.row_at(kFunction), nullptr) << int{program[0]};
  }
}

TEST(CallFrames, UnknownRegistersChangeNothing) {
  const Bytes file = file_with({0x05, 0xff, 0xff, 0xff, 0x3f, 1, 0x06, 0x80, 0x80, 0x01, 0x07, 0x50});
  CallFrames frames{std::span(file)};
  ASSERT_NE(frames.row_at(kFunction), nullptr);
  EXPECT_EQ(frames.row_at(kFunction)->cfa.offset, 8);
}

TEST(CallFrames, AnyBytesHaveAnAnswer) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    Bytes rules(random() % 60);
    for (auto& byte : rules) byte = static_cast<std::uint8_t>(random() % 4 == 0 ? random() : random() % 0x30);
    const Bytes file = file_with(rules);
    CallFrames frames{std::span(file)};
    for (std::uint64_t at = 0; at < 0x40; at += 7) {
      const FrameRow* row = frames.row_at(kFunction + at);
      FrameState state;
      for (auto& reg : state) reg = random();
      if (row != nullptr) step_up(*row, FakeMemory(Loads{{*state[kFrameSp], 5}}), state);
    }
  }
}

TEST(Expressions, Values) {
  EXPECT_EQ(value_of({0x77, 8}), 0x7008U);                                     // breg7 8
  EXPECT_EQ(value_of({0x92, 7, 0x78}), 0x6ff8U);                               // bregx 7 -8
  EXPECT_EQ(value_of({0x77, 8, 0x06}, FakeMemory(Loads{{0x7008, 99}})), 99U);  // deref
  EXPECT_EQ(value_of({0x77, 8, 0x06}), std::nullopt);
  EXPECT_EQ(value_of({0x70, 0}), std::nullopt) << "rax is not known";
  EXPECT_EQ(value_of({0x23, 0x90, 0x01}, FakeMemory(), 0x10), 0xa0U);      // plus_uconst
  EXPECT_EQ(value_of({0x09, 0xff, 0x0a, 2, 0, 0x1e}), ~std::uint64_t{1});  // const1s -1, const2u 2, mul
  EXPECT_EQ(value_of({0x33, 0x31, 0x1c}), 2U);                             // 3 - 1
  EXPECT_EQ(value_of({0x31, 0x33, 0x24}), 8U);                             // 1 << 3
  EXPECT_EQ(value_of({0x31, 0x08, 64, 0x24}), 0U);
  EXPECT_EQ(value_of({0x31, 0x32, 0x16, 0x1c}), 1U);               // swap, minus
  EXPECT_EQ(value_of({0x31, 0x28, 1, 0, 0x35, 0x36}), 6U);         // a branch over one literal
  EXPECT_EQ(value_of({0x30, 0x28, 1, 0, 0x35, 0x36, 0x22}), 11U);  // not taken
  EXPECT_EQ(value_of({0x31, 0x32, 0x33, 0x15, 2}), 1U);            // pick
  EXPECT_EQ(value_of({0x31, 0x1f, 0x20}), 0U);                     // not(-1)
}

// The way to the caller of a PLT entry, whose address shows how much has been pushed.
TEST(Expressions, LinkageTables) {
  const Bytes expression{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
  EXPECT_EQ(value_of(expression), 0x7008U);
  FrameState state;
  state[kFrameSp] = 0x7000, state[kFrameIp] = 0x40100b;
  EXPECT_EQ(evaluate(BytesView(expression), {}, FakeMemory(), state), 0x7010U);
}

TEST(Expressions, AreBounded) {
  EXPECT_EQ(value_of({0x31, 0x2f, 0xfc, 0xff}), std::nullopt) << "a loop that grows";
  EXPECT_EQ(value_of({0x2f, 0xfd, 0xff}), std::nullopt) << "a loop";
  EXPECT_EQ(value_of({0x2f, 0x00, 0x80}), std::nullopt) << "to before its start";
  EXPECT_EQ(value_of({0x22}), std::nullopt) << "nothing to add";
  EXPECT_EQ(value_of({0x13}), std::nullopt);
  EXPECT_EQ(value_of({}), std::nullopt);
  EXPECT_EQ(value_of({0x31, 0x30, 0x1b}), std::nullopt) << "a division";
  EXPECT_EQ(value_of({0x0e, 1, 2}), std::nullopt) << "cut off";
  EXPECT_EQ(value_of(Bytes(70, 0x31)), std::nullopt) << "too deep";
}

FrameRow plain_row() {
  FrameRow row;
  row.cfa = {.kind = Kind::in_register, .reg = kFrameSp, .offset = 16};
  row.registers[kFrameIp] = {.kind = Kind::at_offset, .offset = -8};
  return row;
}

TEST(Steps, KeepWhatFunctionsKeep) {
  FrameRow row = plain_row();
  row.registers[arch::kFrameBx] = {.kind = Kind::at_offset, .offset = -16};
  FrameState state;
  for (auto& reg : state) reg = 77;
  state[kFrameSp] = 0x7000;
  ASSERT_EQ(step_up(row, FakeMemory(Loads{{0x7008, 0x401234}, {0x7000, 5}}), state), Step::up);
  EXPECT_EQ(state[kFrameIp], 0x401234U);
  EXPECT_EQ(state[kFrameSp], 0x7010U);
  EXPECT_EQ(state[arch::kFrameBx], 5U);
  EXPECT_EQ(state[arch::kFrameBp], 77U);
  EXPECT_EQ(state[12], 77U);
  EXPECT_EQ(state[0], std::nullopt) << "a call may change it";
}

TEST(Steps, EndOrAreNotKnown) {
  FrameState state;
  state[kFrameSp] = 0x7000;
  const FrameState before = state;
  FrameRow row = plain_row();
  EXPECT_EQ(step_up(row, FakeMemory(), state), Step::unknown);
  EXPECT_EQ(state, before);
  EXPECT_EQ(step_up(row, FakeMemory(Loads{{0x7008, 0}}), state), Step::end);
  row.cfa.offset = 0;
  EXPECT_EQ(step_up(row, FakeMemory(Loads{{0x6ff8, 0x401234}}), state), Step::unknown)
      << "no frame is its own caller's";
  row.is_signal = true;
  EXPECT_EQ(step_up(row, FakeMemory(Loads{{0x6ff8, 0x401234}}), state), Step::up) << "from another stack";
  row = plain_row();
  row.cfa.reg = arch::kFrameBp;
  EXPECT_EQ(step_up(row, FakeMemory(), state), Step::unknown);
  row.registers[kFrameIp] = {.kind = Kind::undefined};
  EXPECT_EQ(step_up(row, FakeMemory(), state), Step::end);
}

}  // namespace
}  // namespace uprobe::elf
