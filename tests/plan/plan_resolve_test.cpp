// SPDX-License-Identifier: MIT
// From a definition to a place in a file, or to the reason of a refusal.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "engine/flow/flow_cache.h"
#include "engine/plan/resolve.h"
#include "engine/spec/parse.h"

namespace uprobe::plan {
namespace {

Result<Site> resolve_text(const std::string& place, bool force = false) {
  auto spec = spec::parse_definition("p:e " + std::string(SUBJECT) + ":" + place);
  EXPECT_TRUE(spec) << spec.error().text;
  if (!spec) return spec.error();
  FileCache files;
  FlowCache flows;
  return resolve(*spec, files, flows, {.force = force});
}

Site must(const std::string& place) {
  auto site = resolve_text(place);
  EXPECT_TRUE(site) << place << ": " << site.error().text;
  return site ? site.take() : Site{};
}

Error refused(const std::string& place) {
  auto site = resolve_text(place);
  EXPECT_FALSE(site) << place;
  return site ? Error{} : site.error();
}

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

TEST(Resolve, SymbolsAndOffsetsMeanTheSame) {
  const Site symbol = must("hand_written");
  EXPECT_EQ(symbol.symbol, "hand_written");
  EXPECT_EQ(symbol.insn, (std::vector<std::uint8_t>{0xb8, 0x44, 0x33, 0x22, 0x11}));
  EXPECT_FALSE(symbol.is_ifunc);
  const Site offset = must(hex(symbol.offset));
  EXPECT_EQ(offset.offset, symbol.offset);
  EXPECT_EQ(offset.address, symbol.address);
  EXPECT_EQ(offset.insn, symbol.insn);
}

TEST(Resolve, DistancesFromASymbol) {
  const Site start = must("hand_written");
  const Site second = must("hand_written+5");
  EXPECT_EQ(second.offset, start.offset + 5);
  EXPECT_EQ(second.symbol, "hand_written+0x5");
  EXPECT_EQ(second.insn, (std::vector<std::uint8_t>{0x83, 0xc0, 0x01}));
  EXPECT_EQ(must("cannot_be_probed-1").offset, start.offset + 8);  // the ret right before
}

TEST(Resolve, InsideAnInstructionTheNearestOnesAreNamed) {
  const Site start = must("hand_written");
  const Error inside = refused("hand_written+2");
  EXPECT_EQ(inside.code, Code::refused);
  EXPECT_EQ(inside.text, hex(start.offset + 2) + " is byte 3 of the instruction at " + hex(start.offset) +
                             " (nearest: " + hex(start.offset) + ", " + hex(start.offset + 5) + ")");
  EXPECT_EQ(refused(hex(start.offset + 7)).text, hex(start.offset + 7) + " is byte 3 of the instruction at " +
                                                     hex(start.offset + 5) + " (nearest: " + hex(start.offset + 5) +
                                                     ", " + hex(start.offset + 8) + ")");
}

TEST(Resolve, ForceInsistsOnAnyDisplaceableBytes) {
  const Site start = must("hand_written");
  auto inside = resolve_text("hand_written+6", true);  // c0 01 c3: rol $0xc3, (%rcx)
  ASSERT_TRUE(inside) << inside.error().text;
  EXPECT_EQ(inside->offset, start.offset + 6);
}

TEST(Resolve, WhatCannotBeProbedIsRefusedWithItsInstruction) {
  const Error error = refused("cannot_be_probed");
  EXPECT_EQ(error.code, Code::refused);
  EXPECT_NE(error.text.find("int3"), std::string::npos) << error.text;
}

TEST(Resolve, AmbiguousNamesListTheirPlaces) {
  const Error error = refused("helper");
  EXPECT_EQ(error.code, Code::usage);
  EXPECT_NE(error.text.find("ambiguous"), std::string::npos);
  std::size_t places = 0;
  for (std::size_t at = 0; (at = error.help.find("helper at 0x", at)) != std::string::npos; ++at) ++places;
  EXPECT_EQ(places, 2U) << error.help;
}

TEST(Resolve, UnknownNamesGetNearMisses) {
  const Error error = refused("first_functoin");
  EXPECT_EQ(error.code, Code::not_found);
  EXPECT_NE(error.help.find("first_function"), std::string::npos) << error.help;
  EXPECT_EQ(error.where, "p:e " + std::string(SUBJECT) + ":first_functoin");
  EXPECT_EQ(error.column, static_cast<int>(std::string("p:e " SUBJECT ":").size()));
}

TEST(Resolve, IfuncsAreMarkedAndTakeNoDistance) {
  EXPECT_TRUE(must("chosen").is_ifunc);
  EXPECT_EQ(refused("chosen+4").code, Code::refused);
}

TEST(Resolve, DataIsNoFunction) {
  EXPECT_EQ(refused("counter").code, Code::not_found);
  EXPECT_EQ(refused("table").code, Code::not_found);
}

TEST(Resolve, PlacesThatAreNoCode) {
  EXPECT_EQ(refused("0x10").code, Code::refused) << "the ELF header";
  EXPECT_EQ(refused("0x7fffffff").code, Code::usage) << "after the end";
  EXPECT_FALSE(resolve_text("0x10", true)) << "not even with force";
  EXPECT_FALSE(resolve_text("hand_written+0x7fffffff"));
  EXPECT_FALSE(resolve_text("hand_written-0x7fffffff"));
}

TEST(Resolve, AFileThatIsNotThere) {
  spec::ProbeSpec spec;
  spec.definition = "p /nowhere:f";
  spec.place.path = "/nowhere", spec.place.symbol = "f", spec.place.path_column = 2;
  FileCache files;
  FlowCache flows;
  const auto site = resolve(spec, files, flows, {});
  ASSERT_FALSE(site);
  EXPECT_EQ(site.error().code, Code::not_found);
  EXPECT_EQ(site.error().column, 2);
}

TEST(FileCache, OneFileUnderTwoNamesIsOneObject) {
  const std::string link = testing::TempDir() + "plan-resolve-link";
  ::unlink(link.c_str());
  ASSERT_EQ(::symlink(SUBJECT, link.c_str()), 0);
  FileCache files;
  const auto one = files.open(SUBJECT), two = files.open(link), three = files.open(SUBJECT);
  ASSERT_TRUE(one && two && three);
  EXPECT_EQ(one->get(), two->get());
  EXPECT_EQ(one->get(), three->get());
  EXPECT_FALSE(files.open("/nowhere"));
  ::unlink(link.c_str());
}

TEST(SymbolNear, NamesTheFunctionOrNothing) {
  const auto file = elf::ElfFile::open(SUBJECT);
  ASSERT_TRUE(file);
  const auto function = file->find_functions("hand_written").at(0);
  EXPECT_EQ(symbol_near(*file, function.address), "hand_written");
  EXPECT_EQ(symbol_near(*file, function.address + 8), "hand_written+0x8");
  EXPECT_EQ(symbol_near(*file, 0), "");
}

}  // namespace
}  // namespace uprobe::plan
