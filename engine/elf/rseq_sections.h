// SPDX-License-Identifier: MIT
// Restartable sequences: stretches of code that the kernel makes begin anew when it interrupts them (include/uapi/linux/rseq.h,
// struct rseq_cs). It knows them by their addresses, so a thread that leaves one for anywhere else (a copy, a trampoline,
// a signal handler) loses that promise without noticing: nothing may be probed there.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/elf/elf_file.h"

namespace uprobe::elf {

struct RseqSection {
  Range code;               // up to where its last instruction commits
  std::uint64_t abort = 0;  // where the kernel goes on; the four bytes before it are a signature that it reads
  bool is_exact = true;  // false: no descriptor is in the file, `code` is the function that has the section somewhere
  bool operator==(const RseqSection&) const = default;

  // Whether [begin, end) touches the code or the signature.
  bool touches(std::uint64_t begin, std::uint64_t end) const {
    return (begin < code.end && end > code.begin) || (begin < abort && end > abort - 4);
  }
};

// By address: the descriptors of the section __rseq_cs, and those anywhere in the file's data whose abort handler stands after
// the usual signature of x86 (glibc registers no other). Where such a handler has no descriptor in the file, the program makes
// it at run time: then the whole functions of the handler and of what it jumps to.
std::vector<RseqSection> rseq_sections(const ElfFile& file);

}  // namespace uprobe::elf
