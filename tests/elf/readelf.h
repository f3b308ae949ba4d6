// SPDX-License-Identifier: MIT
// The output of binutils' readelf about a file: a second opinion that shares no code with libelf.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace uprobe::elf {

using Words = std::vector<std::string>;

inline bool has_readelf() { return std::string(UPROBE_READELF) != ""; }

// The words of each line of `readelf -W OPTIONS PATH`.
inline std::vector<Words> readelf(const std::string& options, const std::string& path) {
  const std::string command = std::string("LC_ALL=C '") + UPROBE_READELF + "' -W " + options + " '" + path + "'";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t size = 0; (size = std::fread(part.data(), 1, part.size(), pipe)) != 0;)
    text.append(part.data(), size);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  std::vector<Words> lines;
  std::istringstream rest(text);
  for (std::string line; std::getline(rest, line);) {
    std::istringstream words(line);
    Words found;
    for (std::string word; words >> word;) found.push_back(word);
    lines.push_back(std::move(found));
  }
  return lines;
}

// A line of its symbol table: "12: 0000000000001139 15 FUNC GLOBAL DEFAULT 14 name@@VERSION".
struct ReadelfSymbol {
  std::string name, version, type, binding;
  bool default_version = true, defined = false;
  std::uint64_t address = 0, size = 0;
};

inline std::vector<ReadelfSymbol> readelf_symbols(const std::string& options, const std::string& path) {
  std::vector<ReadelfSymbol> found;
  for (const Words& words : readelf(options, path)) {
    if (words.size() < 8 || words[0].back() != ':' || words[0] == "Num:") continue;
    const std::string& name = words[7];
    const std::size_t at = name.find('@');
    ReadelfSymbol symbol{.name = name.substr(0, at), .type = words[3], .binding = words[4]};
    if (at != std::string::npos) {
      symbol.default_version = name.compare(at, 2, "@@") == 0;
      symbol.version = name.substr(at + (symbol.default_version ? 2 : 1));
    }
    symbol.defined = words[6] != "UND" && words[6] != "ABS";
    symbol.address = std::stoull(words[1], nullptr, 16);
    symbol.size = std::stoull(words[2], nullptr, 0);
    found.push_back(symbol);
  }
  return found;
}

}  // namespace uprobe::elf
