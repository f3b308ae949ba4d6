// SPDX-License-Identifier: MIT
// Restartable sequences: stretches of code that the kernel restarts when it interrupts them (include/uapi/linux/rseq.h, struct
// rseq_cs). The kernel knows them by their addresses, so a thread that leaves one for other code (a copy, a trampoline, a
// signal handler) loses that guarantee unnoticed: no probe may be armed there.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/elf/elf_file.h"

namespace uprobe::elf {

struct RseqSection {
  Range code;               // up to where its last instruction commits
  std::uint64_t abort = 0;  // where the kernel goes on; it checks a signature in the four bytes before
  bool is_exact = true;     // false: the file has no descriptor; `code` is the function that contains the section
  // Known by its shape alone: the data may mean something else, and `abort` may be no code.
  bool is_likeness = false;
  bool operator==(const RseqSection&) const = default;

  // Whether [begin, end) touches the code or the signature.
  bool touches(std::uint64_t begin, std::uint64_t end) const {
    return (begin < code.end && end > code.begin) || (begin < abort && end > abort - 4);
  }
};

// By address: the descriptors of the section __rseq_cs; descriptors anywhere in the file's data whose abort handler stands after
// the usual signature; and whatever has the shape of a descriptor, as a program that registers an area of its own chooses its
// signature. If the file has no descriptor for a handler with the usual one, the program makes it at run time: then the whole
// functions of the handler and of its jump targets.
std::vector<RseqSection> rseq_sections(const ElfFile& file);

}  // namespace uprobe::elf
