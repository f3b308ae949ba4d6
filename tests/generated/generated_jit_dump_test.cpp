// SPDX-License-Identifier: MIT
// Dumps of generated code as bytes: whole, cut off, and false.
#include <gtest/gtest.h>

#include <string>

#include "engine/generated/jit_dump.h"

namespace uprobe::test {
namespace {

using control::parse_jit_header;
using control::parse_jit_record;

template <class... Numbers>
std::string bytes_of(Numbers... numbers) {
  std::string text;
  (text.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
  return text;
}

std::string record(std::uint32_t kind, const std::string& data) {
  return bytes_of(kind, static_cast<std::uint32_t>(16 + data.size()), std::uint64_t{0}) + data;
}

std::string made(std::uint64_t address, std::uint64_t bytes, const std::string& name) {
  return record(0, bytes_of(1u, 1u, address, address, bytes, std::uint64_t{7}) + name);
}

std::string moved(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
  return record(1, bytes_of(1u, 1u, to, from, to, bytes, std::uint64_t{7}));
}

TEST(JitHeader, OfThisVersion) {
  const auto header = [](std::uint32_t magic, std::uint32_t version, std::uint32_t bytes) {
    return bytes_of(magic, version, bytes) + std::string(28, '\0');
  };
  EXPECT_EQ(parse_jit_header(header(0x4a695444, 1, 40)), 40u);
  EXPECT_EQ(parse_jit_header(header(0x4a695444, 1, 64)), 64u);
  for (const std::string& text : {header(0x4454694a, 1, 40), header(0x4a695444, 2, 40), header(0x4a695444, 1, 39),
                                  header(0x4a695444, 1, 4097), std::string(), header(0x4a695444, 1, 40).substr(1)})
    EXPECT_FALSE(parse_jit_header(text));
}

TEST(JitRecord, OfCodeThatWasMade) {
  const std::string name("JS:*work /a.js:1\0code", 21);
  const std::string text = made(0x7f0000001000, 0x20, name);
  const auto found = parse_jit_record(text + "further");
  ASSERT_TRUE(found && found->made);
  EXPECT_EQ(found->bytes, text.size());
  EXPECT_EQ(found->made->address, 0x7f0000001000u);
  EXPECT_EQ(found->made->bytes, 0x20u);
  EXPECT_EQ(found->made->name, "JS:*work /a.js:1");
}

TEST(JitRecord, OfCodeThatWasMoved) {
  const auto found = parse_jit_record(moved(0x1000, 0x2000, 16));
  ASSERT_TRUE(found && found->moved);
  EXPECT_EQ(found->moved->from, 0x1000u);
  EXPECT_EQ(found->moved->to, 0x2000u);
  EXPECT_EQ(found->moved->bytes, 16u);
}

TEST(JitRecord, SaysNothingOfWhatNoProgramHas) {
  const std::string zero(1, '\0');
  for (const std::string& text :
       {made(0, 16, "f" + zero), made(0x1000, 0, "f" + zero), made(1ull << 47, 16, "f" + zero),
        made(~0ull, 16, "f" + zero), made(0x1000, ~0ull, "f" + zero), made(0x1000, 16, "f"), made(0x1000, 16, zero),
        made(0x1000, 16, std::string(4097, 'n') + zero), made(0x1000, 16, ""), moved(0, 0x1000, 16),
        moved(0x1000, 0, 16), moved(0x1000, 1ull << 47, 16), moved(0x1000, 0x2000, 0), record(0, ""), record(1, "x"),
        record(2, "x"), record(99, "")}) {
    const auto found = parse_jit_record(text);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->bytes, text.size());
    EXPECT_FALSE(found->made);
    EXPECT_FALSE(found->moved);
  }
}

TEST(JitRecord, WhatIsNone) {
  EXPECT_FALSE(parse_jit_record(""));
  EXPECT_FALSE(parse_jit_record(record(0, "").substr(0, 15)));
  EXPECT_FALSE(parse_jit_record(bytes_of(0u, 15u, std::uint64_t{0}) + std::string(64, '\0')));
}

TEST(JitRecord, IsSeenInPart) {
  const std::string text = made(0x1000, 16, std::string("name\0", 5) + std::string(100, 'c'));
  const auto found = parse_jit_record(std::string_view(text).substr(0, 70));
  ASSERT_TRUE(found && found->made);
  EXPECT_EQ(found->bytes, text.size());
  EXPECT_EQ(found->made->name, "name");
}

}  // namespace
}  // namespace uprobe::test
