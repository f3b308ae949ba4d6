// SPDX-License-Identifier: MIT
#include "engine/process/ifunc.h"

#include <cstring>

#include "engine/elf/relocations.h"

namespace uprobe::control {
namespace {

// The file's word at a link-time address, before any relocation.
std::optional<std::uint64_t> word_in_file(const elf::ElfFile& file, std::uint64_t address) {
  const auto offset = file.offset_of_address(address);
  std::uint64_t word = 0;
  if (!offset || *offset + sizeof word > file.bytes().size()) return std::nullopt;
  std::memcpy(&word, file.bytes().data() + *offset, sizeof word);
  return word;
}

std::optional<std::uint64_t> word_in_memory(target::Target& target, std::uint64_t address) {
  std::uint64_t word = 0;
  if (!target.read(Addr{address}, &word, sizeof word)) return std::nullopt;
  return word;
}

// The word of an IRELATIVE relocation after its resolver has run: not 0, not the file's, and not the file's plus the base.
std::optional<std::uint64_t> choice_at(target::Target& target, const elf::ElfFile& file, std::uint64_t base,
                                       std::uint64_t place) {
  const auto word = word_in_memory(target, base + place);
  const auto before = word_in_file(file, place);
  if (!word || *word == 0 || word == before || *word == base + before.value_or(0)) return std::nullopt;
  return word;
}

// Whether the object is relocated. RELATIVE relocations (absent where a linker packed them, DT_RELR) come first, IRELATIVE ones
// last. A program may have changed some of these words since.
bool is_relocated(target::Target& target, const elf::ElfFile& file, const std::vector<elf::Relocation>& relocations,
                  std::uint64_t base) {
  constexpr int kSome = 32;
  int looked_at = 0;
  for (const elf::Relocation& r : relocations) {
    if (r.type == elf::kRelative ? word_in_memory(target, base + r.place) == base + r.addend
                                 : choice_at(target, file, base, r.place).has_value())
      return true;
    if (++looked_at == kSome) break;
  }
  return false;
}

}  // namespace

Result<std::optional<plan::Site>> chosen_implementation(target::Target& target,
                                                        std::shared_ptr<const elf::ElfFile> file,
                                                        const std::vector<elf::Relocation>& relocations,
                                                        const target::Mapping& m, const plan::Site& site) {
  const std::uint64_t base = m.begin.value + (site.offset - m.offset) - site.address;
  std::optional<std::uint64_t> choice;
  for (const elf::Relocation& r : relocations) {
    if (r.type != elf::kIrelative || r.addend != site.address) continue;
    if (const auto word = choice_at(target, *file, base, r.place)) choice = word;
  }
  if (!choice && is_relocated(target, *file, relocations, base)) {
    auto called = target.call(Addr{base + site.address});
    if (!called) return called.error();
    choice = *called;
  }
  if (!choice) return std::optional<plan::Site>();
  const auto offset = file->offset_of_address(*choice - base);
  if (!offset)
    return Error{.code = Code::refused, .text = "the IFUNC '" + site.symbol + "' chose a function of another object"};
  auto implementation = plan::site_at(file, *offset);
  if (!implementation) return implementation.error();
  return std::optional<plan::Site>(implementation.take());
}

}  // namespace uprobe::control
