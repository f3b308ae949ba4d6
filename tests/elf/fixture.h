// SPDX-License-Identifier: MIT
// Shared by the tests of engine/elf: the fixtures, and files changed in memory.
#pragma once

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/elf/elf_file.h"

namespace uprobe::elf {

using Bytes = std::vector<std::uint8_t>;

inline std::string fixture(const std::string& name) { return std::string(UPROBE_ELF_FIXTURES) + "/" + name; }

inline ElfFile must_open(const std::string& path) {
  Result<ElfFile> file = ElfFile::open(path);
  if (!file) ADD_FAILURE() << path << ": " << file.error().text;
  return file.take();
}

inline Bytes bytes_of(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text) ADD_FAILURE() << text.error().text;
  return Bytes(text->begin(), text->end());
}

template <class T>
T get(const Bytes& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void put(Bytes& bytes, std::size_t at, const T& value) {
  if (bytes.size() < at + sizeof value) bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The file as if it never had section headers.
inline Bytes without_sections(Bytes bytes) {
  auto header = get<Elf64_Ehdr>(bytes, 0);
  header.e_shoff = 0;
  header.e_shnum = header.e_shstrndx = 0;
  put(bytes, 0, header);
  return bytes;
}

inline ElfFile must_parse(Bytes bytes) {
  Result<ElfFile> file = ElfFile::parse("made", std::move(bytes));
  if (!file) ADD_FAILURE() << file.error().text;
  return file.take();
}

// The one function of that name; a failure if there is none or more.
inline Symbol only_function(const ElfFile& file, const std::string& name) {
  const std::vector<Symbol> found = file.find_functions(name);
  EXPECT_EQ(found.size(), 1U) << name << " in " << file.path();
  return found.empty() ? Symbol{} : found.front();
}

}  // namespace uprobe::elf
