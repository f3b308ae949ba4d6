// SPDX-License-Identifier: MIT
// Stacks from the bytes after a record: by tables, by frame pointers, by both, and from bytes that make no sense.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "engine/symbolize/stack_unwinder.h"

namespace uprobe {
namespace {

using shared::Reg;
using Addresses = std::vector<std::uint64_t>;

constexpr std::uint64_t kStack = 0x7fff0000, kCode = 0x500000;

// A stack as the agent would have recorded it.
class Recorded {
 public:
  explicit Recorded(std::size_t words) : words_(words) { head_.copy_begin = kStack; }
  Recorded& set(Reg reg, std::uint64_t value) {
    head_.registers[static_cast<std::size_t>(reg)] = value;
    return *this;
  }
  Recorded& word(std::size_t index, std::uint64_t value) {
    words_.at(index) = value;
    return *this;
  }
  Recorded& frame(std::uint64_t address, std::uint64_t place) {
    addresses_.push_back(address), places_.push_back(place);
    return *this;
  }
  std::vector<std::uint8_t> bytes() const {
    shared::StackHead head = head_;
    head.frames = static_cast<std::uint32_t>(addresses_.size()),
    head.copy_bytes = static_cast<std::uint32_t>(8 * words_.size());
    std::vector<std::uint8_t> bytes(sizeof head);
    std::memcpy(bytes.data(), &head, sizeof head);
    for (const Addresses* part : {&addresses_, &places_, &words_}) {
      const auto* begin = reinterpret_cast<const std::uint8_t*>(part->data());
      bytes.insert(bytes.end(), begin, begin + 8 * part->size());
    }
    return bytes;
  }

 private:
  shared::StackHead head_{};
  Addresses addresses_, places_, words_;
};

constexpr std::uint64_t at(std::size_t word) { return kStack + 8 * word; }

// Code of no file, and so without tables, from kCode on.
CodeAt generated(std::uint64_t address) { return {.is_code = kCode <= address && address < kCode + 0x1000}; }

Addresses walk(const Recorded& recorded, const std::function<CodeAt(std::uint64_t)>& find = generated) {
  const std::vector<std::uint8_t> bytes = recorded.bytes();
  const auto stack = trace::parse_stack(bytes);
  if (!stack) return {};
  Addresses found;
  for (const format::StackFrame& frame : unwind(*stack, find)) found.push_back(frame.address);
  return found;
}

TEST(Unwinder, FollowsLinksWhereThereAreNoTables) {
  Recorded recorded(8);
  recorded.set(Reg::ip, kCode + 1).set(Reg::sp, at(0)).set(Reg::bp, at(2)).frame(kCode + 1, 0);
  recorded.word(2, at(5)).word(3, kCode + 2).word(5, at(90)).word(6, kCode + 3);
  EXPECT_EQ(walk(recorded), (Addresses{kCode + 1, kCode + 2, kCode + 3}));
}

TEST(Unwinder, ALinkThatLeadsToNoCodeIsTheEnd) {
  Recorded recorded(8);
  recorded.set(Reg::ip, kCode + 1).set(Reg::sp, at(0)).set(Reg::bp, at(2)).frame(kCode + 1, 0);
  recorded.word(2, at(5)).word(3, kCode + 2).word(5, at(7)).word(6, 0x123);
  EXPECT_EQ(walk(recorded), (Addresses{kCode + 1, kCode + 2}));
}

TEST(Unwinder, OfAFunctionThatWasJustEntered) {
  Recorded recorded(0);
  recorded.set(Reg::ip, kCode + 1).set(Reg::sp, at(0)).set(Reg::bp, at(2)).frame(kCode + 1, 0);
  recorded.frame(kCode + 7, at(0)).frame(kCode + 8, at(3)).frame(kCode + 9, at(30));
  EXPECT_EQ(walk(recorded), (Addresses{kCode + 1, kCode + 7, kCode + 8, kCode + 9}))
      << "beyond the copy the agent's chain goes on";
}

TEST(Unwinder, ALinkBelowTheStackPointerIsNone) {
  Recorded recorded(8);
  recorded.set(Reg::ip, kCode + 1).set(Reg::sp, at(4)).set(Reg::bp, at(2)).frame(kCode + 1, 0);
  recorded.word(2, at(5)).word(3, kCode + 2);
  EXPECT_EQ(walk(recorded), Addresses{kCode + 1});
}

TEST(Unwinder, StacksThatLieAreShort) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 5000; ++round) {
    const std::size_t words = random() % 40;
    Recorded recorded(words);
    for (unsigned i = 0; i < shared::kWalkRegisters; ++i)
      recorded.set(static_cast<Reg>(i), random() % 2 == 0 ? at(random() % 50) : random());
    for (std::size_t i = 0; i < words; ++i) recorded.word(i, i % 2 == 0 ? at(random() % 50) : kCode + random() % 9);
    for (std::size_t i = random() % 70; i != 0; --i) recorded.frame(kCode + random() % 9, at(random() % 60));
    EXPECT_LE(walk(recorded).size(), kMostStackFrames);
  }
}

TEST(Unwinder, LinksInACircleEnd) {
  Recorded recorded(8);
  recorded.set(Reg::ip, kCode + 1).set(Reg::sp, at(0)).set(Reg::bp, at(2)).frame(kCode + 1, 0);
  recorded.word(2, at(2)).word(3, kCode + 2);
  EXPECT_EQ(walk(recorded), (Addresses{kCode + 1, kCode + 2}));
}

TEST(StackCopy, WhatIsNoStackIsNone) {
  const std::vector<std::uint8_t> good = Recorded(4).frame(1, 0).frame(2, at(1)).bytes();
  EXPECT_TRUE(trace::parse_stack(good));
  EXPECT_FALSE(trace::parse_stack({}));
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(trace::parse_stack(std::span(good).first(size))) << size;
  for (const std::uint32_t frames : {0U, 1U, 3U, 65U, ~0U}) {
    std::vector<std::uint8_t> bad = good;
    std::memcpy(bad.data(), &frames, sizeof frames);
    EXPECT_FALSE(trace::parse_stack(bad)) << frames;
  }
}

TEST(StackCopy, WordsAreOfTheCopyOrOfTheChain) {
  const std::vector<std::uint8_t> bytes =
      Recorded(2).word(1, 5).set(Reg::sp, at(0)).frame(1, 0).frame(7, at(0)).frame(8, at(40)).frame(9, at(50)).bytes();
  const auto stack = trace::parse_stack(bytes);
  ASSERT_TRUE(stack);
  EXPECT_EQ(stack->word_at(at(1)), 5U);
  EXPECT_EQ(stack->word_at(at(2)), std::nullopt);
  EXPECT_EQ(stack->word_at(at(2) - 1), std::nullopt);
  EXPECT_EQ(stack->word_at(at(40)), 8U);
  EXPECT_EQ(stack->word_at(at(39)), at(49)) << "a link";
  EXPECT_EQ(stack->word_at(at(49)), std::nullopt) << "the last one is not known";
  EXPECT_EQ(stack->word_at(kStack - 8), std::nullopt) << "a function that was just entered has none";
  EXPECT_EQ(stack->word_at(~std::uint64_t{0}), std::nullopt);
}

TEST(Calls, AreKnownByTheirBytes) {
  const std::vector<std::vector<std::uint8_t>> calls{{0xe8, 1, 2, 3, 4},
                                                     {0xff, 0xd1},
                                                     {0x41, 0xff, 0xd3},
                                                     {0xff, 0x15, 1, 2, 3, 4},
                                                     {0xff, 0x50, 8},
                                                     {0xff, 0x14, 0xc5, 1, 2, 3, 4},
                                                     {0xff, 0x94, 0xc8, 1, 2, 3, 4},
                                                     {0xff, 0x54, 0x24, 8},
                                                     {0xff, 0x10}};
  const std::vector<std::vector<std::uint8_t>> others{{0xe9, 1, 2, 3, 4},
                                                      {0xff, 0xe1},
                                                      {0x90, 0x90},
                                                      {0xff, 0x25, 1, 2, 3, 4},
                                                      {0xff, 0xd1, 0x90},
                                                      {0xe8, 1, 2, 3},
                                                      {}};
  const auto is_call = [](std::vector<std::uint8_t> bytes) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB,
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC, header.e_machine = EM_X86_64, header.e_version = EV_CURRENT;
    header.e_phoff = sizeof header, header.e_ehsize = sizeof header, header.e_phentsize = sizeof(Elf64_Phdr),
    header.e_phnum = 1;
    std::vector<std::uint8_t> file(0x100);
    file.insert(file.end(), bytes.begin(), bytes.end());
    const std::uint64_t end = 0x400000 + file.size();
    file.resize(file.size() + 16);
    const Elf64_Phdr segment{.p_type = PT_LOAD,
                             .p_flags = PF_R | PF_X,
                             .p_offset = 0,
                             .p_vaddr = 0x400000,
                             .p_paddr = 0x400000,
                             .p_filesz = file.size(),
                             .p_memsz = file.size(),
                             .p_align = 0x1000};
    std::memcpy(file.data(), &header, sizeof header);
    std::memcpy(file.data() + sizeof header, &segment, sizeof segment);
    const auto made = elf::ElfFile::parse("made", file);
    EXPECT_TRUE(made);
    return made && is_after_call(*made, end);
  };
  for (const auto& bytes : calls) EXPECT_TRUE(is_call(bytes)) << std::hex << int{bytes[0]} << " " << int{bytes[1]};
  for (const auto& bytes : others) EXPECT_FALSE(is_call(bytes));
}

}  // namespace
}  // namespace uprobe
