// SPDX-License-Identifier: MIT
// Arrivals compared with the compiler's labels: it keeps those of all branch targets, in programs of every kind, and without
// symbols the planner must find each of them.
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <regex>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/flow/flow.h"
#include "engine/plan/window.h"

namespace uprobe::plan {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text) ADD_FAILURE() << text.error().text;
  return text ? Bytes(text->begin(), text->end()) : Bytes();
}

// As `strip` leaves it, but in place: without a section of symbols.
Bytes without_symbols(Bytes bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const std::size_t at = header.e_shoff + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_type);
    std::uint32_t type = 0;
    std::memcpy(&type, bytes.data() + at, sizeof type);
    if (type == SHT_SYMTAB) std::memset(bytes.data() + at, 0, sizeof type);
  }
  return bytes;
}

// Branch targets as gcc (.L12) and clang (.LBB3_4) name them.
std::vector<std::uint64_t> labels_of(const elf::ElfFile& file) {
  const std::regex label(R"(\.L[0-9]+|\.LBB[0-9]+_[0-9]+)");
  std::vector<std::uint64_t> labels;
  for (const elf::Symbol& symbol : file.functions())
    if (symbol.is_label && std::regex_match(symbol.name, label)) labels.push_back(symbol.address);
  return labels;
}

class Labels : public testing::TestWithParam<std::string> {};

TEST_P(Labels, AreAllArrivals) {
  const Bytes bytes = bytes_of(GetParam());
  auto with = elf::ElfFile::parse(GetParam(), bytes);
  auto without = elf::ElfFile::parse(GetParam(), without_symbols(bytes));
  ASSERT_TRUE(with && without);
  ASSERT_FALSE(without->has_names());
  const FileFlow flow(*without);
  const auto labels = labels_of(*with);
  EXPECT_GT(labels.size(), 100U);
  for (const std::uint64_t label : labels) {
    const auto function = flow.function_at(label);
    ASSERT_TRUE(function) << std::hex << label;
    EXPECT_TRUE(!function->is_known() || flow.is_arrival(label)) << GetParam() << " " << std::hex << label;
  }
}

// The planner does not simply give up: it reads all tables of switches, however the function keeps their addresses.
TEST_P(Labels, OfSwitchesAreAllKnown) {
  const Bytes bytes = bytes_of(GetParam());
  auto with = elf::ElfFile::parse(GetParam(), bytes);
  auto without = elf::ElfFile::parse(GetParam(), without_symbols(bytes));
  ASSERT_TRUE(with && without);
  const FileFlow flow(*without);
  for (const char* name :
       {"one_switch", "no_default", "in_a_loop", "catches", "cold_cases", "tail", "jumps_back", "loops"}) {
    const auto found = with->find_functions(name);
    ASSERT_EQ(found.size(), 1U) << name;
    const auto function = flow.function_at(found[0].address);
    ASSERT_TRUE(function);
    EXPECT_TRUE(function->is_known()) << GetParam() << ": " << name << ": " << text_of(function->trouble);
  }
}

// A window at every instruction, and no label inside any of them.
TEST_P(Labels, AreInNoWindow) {
  const Bytes bytes = bytes_of(GetParam());
  auto with = elf::ElfFile::parse(GetParam(), bytes);
  auto without = elf::ElfFile::parse(GetParam(), without_symbols(bytes));
  ASSERT_TRUE(with && without);
  const FileFlow flow(*without);
  const auto labels = labels_of(*with);
  const WindowClaims none;
  std::size_t windows = 0;
  for (const SweptFunction& function : flow.functions())
    for (std::uint64_t at = function.range.begin; at < function.range.end; ++at) {
      if (!flow.is_start(at)) continue;
      const Window window = plan_window(flow, at, none);
      if (!window.is_jump()) continue;
      ++windows;
      const auto inside = std::upper_bound(labels.begin(), labels.end(), at);
      EXPECT_FALSE(inside != labels.end() && *inside < at + window.length) << GetParam() << " " << std::hex << at;
      if (window.kind != WindowKind::short_jump) continue;
      const auto used = std::lower_bound(labels.begin(), labels.end(), window.padding);
      EXPECT_FALSE(used != labels.end() && *used < window.padding + kJumpBytes) << std::hex << at;
    }
  EXPECT_GT(windows, 300U);
}

std::vector<std::string> subjects() {
  std::vector<std::string> found;
  std::string all = FLOW_SUBJECTS;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find(':', at), all.size());
    found.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return found;
}

std::string name_of(const testing::TestParamInfo<std::string>& subject) {
  std::string name = subject.param.substr(subject.param.find_last_of('/') + 1);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(AllKinds, Labels, testing::ValuesIn(subjects()), name_of);

}  // namespace
}  // namespace uprobe::plan
