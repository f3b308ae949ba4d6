// SPDX-License-Identifier: MIT
// Damaged packages of split debug information: what is taken out is an ELF file, and no larger than it may be.
#include <cstdlib>
#include <cstring>

#include "engine/dwarf/package.h"
#include "tests/fuzz/driver.h"

namespace {

using namespace uprobe;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 1 << 20, kMostUnits = 64;
  auto bytes = elf::FileBytes::copy_of({data, size}, "input");
  if (!bytes) return 0;
  const auto package = dwarf::Package::parse("input", bytes.take());
  if (!package) return 0;
  std::size_t asked = 0;
  for (const std::uint64_t id : package->units().signatures()) {
    if (++asked > kMostUnits) break;
    const auto unit = package->unit(id, kMost);
    if (!unit) continue;
    require(unit->size() <= kMost && std::memcmp(unit->data(), ELFMAG, SELFMAG) == 0);
    const std::vector<std::uint8_t> copy(unit->begin(), unit->end());
    Elf* elf = dwarf::open_image(copy);
    require(elf != nullptr);
    elf_end(elf);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"packaged_4.dwp", "packaged_5.dwp"}) {
    auto text = read_file(std::string(UPROBE_FUZZ_FIXTURES) + "/" + name);
    if (text) seeds.push_back(text.take());
  }
  return seeds;
}
