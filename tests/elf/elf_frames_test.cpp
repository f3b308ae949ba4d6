// SPDX-License-Identifier: MIT
// Function ranges: symbols, unwind tables in all their encodings, and agreement between the two.
#include <algorithm>
#include <map>

#include "tests/elf/fixture.h"
#include "tests/elf/made_elf.h"

namespace uprobe::elf {

inline void PrintTo(const Range& range, std::ostream* out) { *out << std::hex << range.begin << "-" << range.end; }

namespace {

constexpr std::uint64_t kHeader = 0x800, kTable = 0x900, kFunction = MadeElf::kBase + MadeElf::kCode;

// Bytes of .eh_frame under construction.
class Frames {
 public:
  template <class T>
  Frames& value(T number) {
    const std::size_t at = bytes_.size();
    put(bytes_, at, number);
    return *this;
  }
  Frames& text(const std::string& text) {
    bytes_.insert(bytes_.end(), text.c_str(), text.c_str() + text.size() + 1);
    return *this;
  }
  Frames& begin() {
    starts_.push_back(bytes_.size());
    return value<std::uint32_t>(0);
  }
  Frames& end() {
    const std::size_t at = starts_.back();
    put(bytes_, at, static_cast<std::uint32_t>(bytes_.size() - at - 4));
    return *this;
  }
  // A CIE with these letters and their data.
  Frames& cie(const std::string& letters, const Bytes& data, std::uint8_t version = 1) {
    begin().value<std::uint32_t>(0).value(version).text(letters);
    value<std::uint8_t>(1).value<std::uint8_t>(0x78).value<std::uint8_t>(16);
    if (!letters.empty()) value(static_cast<std::uint8_t>(data.size()));
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    return end();
  }
  // The head of an FDE of the first CIE.
  Frames& fde() {
    begin();
    return value(static_cast<std::uint32_t>(bytes_.size()));
  }
  std::uint64_t here() const { return MadeElf::kBase + kTable + bytes_.size(); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
  std::vector<std::size_t> starts_;
};

std::vector<Range> ranges_of(const ElfFile& file) {
  const auto ranges = file.function_ranges();
  return {ranges.begin(), ranges.end()};
}

// The ranges of a file that contains only this table, found through its header.
std::vector<Range> ranges_of(const Bytes& table) {
  MadeElf made;
  made.add_part(PT_GNU_EH_FRAME, kHeader, 12);
  made.put_bytes(kHeader, {1, 0x1b, 0x03, 0x3b});  // pcrel sdata4, udata4, datarel sdata4
  made.put(kHeader + 4, static_cast<std::int32_t>(kTable - (kHeader + 4)));
  made.put_bytes(kTable, table);
  return ranges_of(must_parse(made.bytes()));
}

const std::vector<Range> kOne{Range{kFunction, kFunction + 0x20}};

TEST(Encodings, AbsoluteWithoutAugmentation) {
  Frames frames;
  frames.cie("", {}).fde().value(kFunction).value<std::uint64_t>(0x20).end();
  EXPECT_EQ(ranges_of(frames.bytes()), kOne);
}

TEST(Encodings, RelativeFourBytes) {
  Frames frames;
  frames.cie("zR", {0x1b}).fde();
  frames.value(static_cast<std::int32_t>(kFunction - frames.here())).value<std::uint32_t>(0x20).end();
  EXPECT_EQ(ranges_of(frames.bytes()), kOne);
}

TEST(Encodings, RelativeEightBytesVersionThree) {
  Frames frames;
  frames.cie("zR", {0x1c}, 3).fde();
  frames.value(static_cast<std::int64_t>(kFunction - frames.here())).value<std::uint64_t>(0x20).end();
  EXPECT_EQ(ranges_of(frames.bytes()), kOne);
}

TEST(Encodings, UnsignedFourBytes) {
  Frames frames;
  frames.cie("zR", {0x03}).fde().value(static_cast<std::uint32_t>(kFunction)).value<std::uint32_t>(0x20).end();
  EXPECT_EQ(ranges_of(frames.bytes()), kOne);
}

TEST(Encodings, PersonalityAndLanguageDataAreSkipped) {
  Frames frames;
  frames.cie("zPLR", {0x9b, 1, 2, 3, 4, 0x1b, 0x03}).fde();
  frames.value(static_cast<std::uint32_t>(kFunction)).value<std::uint32_t>(0x20).value<std::uint8_t>(4).end();
  EXPECT_EQ(ranges_of(frames.bytes()), kOne);
}

TEST(Encodings, WhatIsNotUnderstoodIsLeftOut) {
  const auto with = [](const std::string& letters, const Bytes& data) {
    Frames frames;
    frames.cie(letters, data).fde().value(static_cast<std::uint32_t>(kFunction)).value<std::uint32_t>(0x20);
    frames.value<std::uint64_t>(0).end();
    return ranges_of(frames.bytes());
  };
  EXPECT_EQ(with("zR", {0x03}), kOne) << "the table itself is good";
  EXPECT_TRUE(with("zR", {0x83}).empty()) << "indirect";
  EXPECT_TRUE(with("zR", {0xff}).empty()) << "omitted";
  EXPECT_TRUE(with("zR", {0x33}).empty()) << "relative to data";
  EXPECT_TRUE(with("zR", {0x0f}).empty()) << "unknown format";
  EXPECT_TRUE(with("zXR", {0x03, 0x03}).empty()) << "unknown letter";
  EXPECT_TRUE(with("eh", {0x03}).empty()) << "ancient";
  EXPECT_TRUE(with("zRS", {0x03}).empty()) << "a signal frame starts before its function";
  EXPECT_TRUE(with("zzzzzzzzzzzzzzzzzzzzzzzzzzzzR", {0x03}).empty());
}

TEST(Table, EndsAtTheTerminator) {
  Frames frames;
  frames.cie("zR", {0x03}).fde().value(static_cast<std::uint32_t>(kFunction)).value<std::uint32_t>(0x20).end();
  frames.value<std::uint32_t>(0);
  frames.fde().value(static_cast<std::uint32_t>(kFunction + 0x80)).value<std::uint32_t>(0x20).end();
  EXPECT_EQ(ranges_of(frames.bytes()), kOne);
}

TEST(Table, ImpossibleEntries) {
  const auto entry = [](std::uint64_t begin, std::uint64_t size) {
    Frames frames;
    frames.cie("", {}).fde().value(begin).value(size).end();
    return ranges_of(frames.bytes());
  };
  EXPECT_TRUE(entry(0, 0x20).empty()) << "a discarded function";
  EXPECT_TRUE(entry(kFunction, 0).empty());
  EXPECT_TRUE(entry(UINT64_MAX, 0x20).empty());
  EXPECT_EQ(entry(kFunction, UINT64_MAX), (std::vector<Range>{{kFunction, MadeElf::kBase + MadeElf::kSize}}));
}

TEST(Table, DamagedLengthsEndIt) {
  Frames good;
  good.cie("", {}).fde().value(kFunction).value<std::uint64_t>(0x20).end();
  for (const std::uint32_t length : {0xfffffffeU, 0xffffffffU, 0x7fffffffU, 0x2000U}) {
    Bytes bytes = good.bytes();
    put(bytes, 0, length);
    EXPECT_TRUE(ranges_of(bytes).empty()) << length;
  }
  for (std::size_t i = 0; i < good.bytes().size(); ++i) {  // every byte wrong: at most the one entry, never a crash
    Bytes bytes = good.bytes();
    bytes[i] ^= 0xff;
    EXPECT_LE(ranges_of(bytes).size(), 1U);
  }
}

TEST(Table, HeaderThatLeadsNowhere) {
  for (const std::uint32_t encoding : {0x1bU, 0x03U, 0x9bU, 0xffU, 0x0eU, 0x04U}) {
    MadeElf made;
    made.add_part(PT_GNU_EH_FRAME, kHeader, 12);
    made.put(kHeader, 1 | encoding << 8);
    made.put(kHeader + 4, UINT64_MAX - 7);
    EXPECT_TRUE(must_parse(made.bytes()).function_ranges().empty()) << encoding;
  }
}

// A program's functions, whose unwind entries and symbols come from the compiler by different ways.
TEST(Agreement, OfSymbolsAndUnwindTable) {
  for (const std::string& path : {fixture("elf_pie"), fixture("elf_no_pie"), std::string("/proc/self/exe")}) {
    const ElfFile whole = must_open(path);
    const ElfFile bare = must_parse(without_sections(bytes_of(path)));
    std::map<std::uint64_t, std::uint64_t> frames;
    for (const Range& range : bare.function_ranges()) frames.emplace(range.begin, range.end);
    std::size_t compared = 0;
    for (const Symbol& symbol : whole.functions()) {
      const auto frame = frames.find(symbol.address);
      // An exported function has its symbol's range in the bare file too.
      if (symbol.size == 0 || symbol.is_label || symbol.dynamic || frame == frames.end()) continue;
      EXPECT_EQ(frame->second, symbol.address + symbol.size) << path << " " << symbol.name;
      ++compared;
    }
    EXPECT_GE(compared, 5U) << path;
  }
}

TEST(Agreement, StrippedProgramKnowsItsFunctions) {
  const ElfFile whole = must_open(fixture("elf_pie"));
  const ElfFile stripped = must_open(fixture("elf_stripped"));
  const std::vector<std::uint64_t> starts = stripped.known_starts();
  for (const char* name : {"alpha", "beta", "second", "main"}) {
    const Symbol symbol = only_function(whole, name);
    const Range body{symbol.address, symbol.address + symbol.size};
    EXPECT_EQ(stripped.range_at(symbol.address), body) << name;
    EXPECT_EQ(stripped.range_at(symbol.address + symbol.size - 1), body) << name;
    EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), symbol.address)) << name;
  }
}

TEST(Ranges, StaticProgramUsesItsSection) {
  const ElfFile file = must_open(fixture("elf_static"));
  const Symbol alpha = only_function(file, "alpha");
  EXPECT_EQ(file.range_at(alpha.address + 1), (Range{alpha.address, alpha.address + alpha.size}));
  EXPECT_GT(file.function_ranges().size(), 500U);
}

TEST(Ranges, ByHandWithoutUnwindTable) {
  const ElfFile file = must_open(fixture("elf_tiny"));
  const Symbol worker = only_function(file, "worker");
  EXPECT_EQ(file.function_ranges().size(), 2U);
  EXPECT_EQ(file.range_at(worker.address), (Range{worker.address, worker.address + 2}));
  EXPECT_EQ(file.range_at(worker.address + 2), std::nullopt);
  const ElfFile bare = must_parse(without_sections(bytes_of(fixture("elf_tiny"))));
  EXPECT_TRUE(bare.function_ranges().empty());
  EXPECT_EQ(bare.range_at(worker.address), std::nullopt);
  EXPECT_EQ(bare.known_starts(), std::vector<std::uint64_t>{bare.entry()});
}

TEST(Ranges, SortedAndDistinct) {
  for (const std::string& path : {fixture("elf_static"), std::string("/lib/x86_64-linux-gnu/libc.so.6")}) {
    const ElfFile file = must_open(path);
    const auto ranges = file.function_ranges();
    ASSERT_FALSE(ranges.empty());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_LT(ranges[i].begin, ranges[i].end);
      if (i != 0) {
        EXPECT_LT(ranges[i - 1].begin, ranges[i].begin);
      }
      EXPECT_EQ(file.range_at(ranges[i].begin), ranges[i]);
    }
  }
}

TEST(Ranges, NestedOnesGiveTheInnermost) {
  Frames frames;
  frames.cie("zR", {0x03});
  for (const auto& [begin, size] : {std::pair(0U, 0x100U), std::pair(0x40U, 0x20U)})
    frames.fde().value(static_cast<std::uint32_t>(kFunction + begin)).value(size).end();
  // Both entries point back to the first CIE, since the helper counts the distance from its own place.
  MadeElf made;
  made.add_part(PT_GNU_EH_FRAME, kHeader, 12);
  made.put_bytes(kHeader, {1, 0x1b, 0x03, 0x3b});
  made.put(kHeader + 4, static_cast<std::int32_t>(kTable - (kHeader + 4)));
  made.put_bytes(kTable, frames.bytes());
  const ElfFile file = must_parse(made.bytes());
  EXPECT_EQ(file.range_at(kFunction + 0x3f), (Range{kFunction, kFunction + 0x100}));
  EXPECT_EQ(file.range_at(kFunction + 0x40), (Range{kFunction + 0x40, kFunction + 0x60}));
  EXPECT_EQ(file.range_at(kFunction + 0x60), (Range{kFunction, kFunction + 0x100}));
  EXPECT_EQ(file.range_at(kFunction + 0x100), std::nullopt);
}

// glibc describes the code to which handlers return; it is no function, and only its two instructions belong to it.
TEST(SignalReturns, TheOneOfAStaticProgram) {
  const ElfFile file = must_open(fixture("elf_static"));
  const auto restorer = file.find_any("__restore_rt");
  ASSERT_TRUE(restorer);
  EXPECT_TRUE(file.is_signal_return(restorer->address));
  EXPECT_TRUE(file.is_signal_return(restorer->address + 7));
  EXPECT_FALSE(file.is_signal_return(restorer->address + 9));
  EXPECT_FALSE(file.is_signal_return(only_function(file, "alpha").address));
}

}  // namespace
}  // namespace uprobe::elf
