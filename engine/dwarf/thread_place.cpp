// SPDX-License-Identifier: MIT
// Where the variables of a thread are. A program's are at a fixed distance from the thread pointer. Where a library's are is decided as
// it is loaded: words of the library say it, which its own code reads as well.
#include <elf.h>

#include <algorithm>
#include <bit>

#include "engine/dwarf/variable.h"
#include "engine/elf/bytes_view.h"
#include "engine/elf/relocations.h"

namespace uprobe::dwarf {
namespace {

using elf::ThreadWord;
using spec::Step;
using spec::StepKind;

// The size of the file's thread-local data, up to the next multiple of its alignment. Nothing: it has none, or is unusual.
std::optional<std::uint64_t> thread_bytes(const elf::ElfFile& file) {
  constexpr std::uint64_t kMost = 1 << 30, kMostAlignment = 1 << 20;
  const elf::BytesView bytes(file.bytes());
  const auto head = bytes.read<Elf64_Ehdr>(0);
  if (!head || head->e_phentsize != sizeof(Elf64_Phdr)) return {};
  for (std::uint64_t i = 0; i < head->e_phnum; ++i) {
    const auto header = bytes.read<Elf64_Phdr>(head->e_phoff + i * sizeof(Elf64_Phdr));
    if (!header) return {};
    if (header->p_type != PT_TLS) continue;
    const std::uint64_t align = std::max<std::uint64_t>(header->p_align, 1);
    const bool is_usual = std::has_single_bit(align) && align <= kMostAlignment && header->p_vaddr % align == 0;
    if (!is_usual || header->p_memsz > kMost) return {};
    return (header->p_memsz + align - 1) & ~(align - 1);
  }
  return {};
}

Step word_at(std::uint64_t address) { return {.kind = StepKind::file_offset, .value = address}; }

// A variable's own word comes first: its code may use that of another object. One without a name leads to all data of the library.
const ThreadWord* best_word(const std::vector<ThreadWord>& words, std::uint64_t data) {
  const auto find = [&](bool is_distance, bool is_by_name) {
    const auto found = std::ranges::find_if(words, [&](const ThreadWord& word) {
      const bool is_there = !is_by_name || (word.data <= data && data - word.data < word.size);
      return word.is_distance == is_distance && word.is_by_name == is_by_name && is_there;
    });
    return found == words.end() ? nullptr : &*found;
  };
  for (const bool is_by_name : {true, false})
    for (const bool is_distance : {true, false})
      if (const ThreadWord* found = find(is_distance, is_by_name)) return found;
  return nullptr;
}

Location by_word(const ThreadWord& word, std::uint64_t data) {
  const Step load{.kind = StepKind::dereference}, find{.kind = StepKind::thread_data};
  if (word.is_distance)
    return {.steps = {word_at(word.place), load, {.kind = StepKind::add_thread_pointer}},
            .in_memory = true,
            .offset = data - word.data};
  if (!word.is_by_name) return {.steps = {word_at(word.place), load, find}, .in_memory = true, .offset = data};
  return {.steps = {word_at(word.place + sizeof(std::uint64_t)),
                    load,
                    {.kind = StepKind::keep},
                    word_at(word.place),
                    load,
                    find,
                    {.kind = StepKind::add_kept}},
          .in_memory = true,
          .offset = data - word.data};
}

}  // namespace

// Variant II of the ELF TLS ABI: a program's data ends at the thread pointer.
Result<Location> place_of_thread(const elf::ElfFile& file, std::uint64_t data) {
  const auto refused = [](std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; };
  const auto bytes = thread_bytes(file);
  if (!bytes || data >= *bytes) return refused("is a thread's own variable whose place is not understood");
  if (file.is_program())
    return Location{.steps = {{.kind = StepKind::thread_pointer}}, .in_memory = true, .offset = data - *bytes};
  const std::vector<ThreadWord> words = elf::thread_words_of(file);
  if (const ThreadWord* word = best_word(words, data)) return by_word(*word, data);
  return refused("is a thread's own variable of a library, and no word of the library that is understood leads to it");
}

}  // namespace uprobe::dwarf
