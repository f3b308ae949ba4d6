// SPDX-License-Identifier: MIT
// An agent that the tool has mapped is in no list of ld.so's. An unwinder that reaches a stub asks libc for its unwind
// information, and gets it from here: by _dl_find_object (glibc since 2.35, gcc since 12), or by dl_iterate_phdr.
#include "preload/unwinders.h"

#include "preload/stubs.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

// glibc's struct dl_find_object (dlfcn.h).
struct FoundObject {
  u64 flags;
  u64 map_start, map_end;
  u64 link_map;
  u64 eh_frame;  // PT_GNU_EH_FRAME
  u64 reserved[7];
};

struct FileHeader {  // Elf64_Ehdr
  u8 ident[16];
  u16 type, machine;
  u32 version;
  u64 entry, program_headers, section_headers;
  u32 flags;
  u16 header_bytes, program_header_bytes, program_header_count;
};

struct ProgramHeader {  // Elf64_Phdr
  u32 type, flags;
  u64 offset, address, physical, file_bytes, memory_bytes, alignment;
};
static_assert(offsetof(FileHeader, program_header_count) == 56 && sizeof(ProgramHeader) == 56);

constexpr u32 kGnuEhFrame = 0x6474e550;

extern "C" {
extern const FileHeader __ehdr_start __attribute__((visibility("hidden")));  // the linker's
// stub.S of arch/entry
extern const u8 uprobe_iterate[] __attribute__((visibility("hidden")));
extern const u8 uprobe_iterate_end[] __attribute__((visibility("hidden")));
struct OwnObject {  // struct dl_phdr_info (link.h), up to what came with glibc 2.4
  u64 address;
  const char* name;
  u64 program_headers;
  u16 program_header_count;
};
extern OwnObject uprobe_own_object __attribute__((visibility("hidden")));
}

u64 eh_frame_header() {
  const u64 base = reinterpret_cast<u64>(&__ehdr_start);
  const auto* headers = reinterpret_cast<const ProgramHeader*>(base + __ehdr_start.program_headers);
  for (u32 i = 0; i < __ehdr_start.program_header_count; ++i)
    if (headers[i].type == kGnuEhFrame) return base + headers[i].address;
  return 0;
}

bool store(u64 to, const FoundObject& object) {
  const auto* words = reinterpret_cast<const u64*>(&object);
  for (u32 i = 0; i < sizeof object / sizeof *words; ++i)
    if (!uprobe_poke8(to + i * sizeof *words, words[i])) return false;
  return true;
}

// The callback's data holds the address that it looks for: in the first word for libgcc and nongnu libunwind, in the third for
// LLVM's.
bool looks_for_stub(u64 data) {
  constexpr u32 kWords = 4;
  for (u32 i = 0; i < kWords; ++i) {
    u64 word = 0;
    if (!uprobe_peek8(data + i * sizeof word, &word)) return false;
    if (is_in_stub(word)) return true;
  }
  return false;
}

}  // namespace

bool find_object(const ProcessBlock& block, SignalFrame& frame) {
  if (function_argument(frame, 0) - block.agent_text >= block.agent_text_end - block.agent_text) return false;
  const FoundObject object{0, block.agent_text, block.agent_text_end, 0, eh_frame_header(), {}};
  u64 home = 0;
  if (!uprobe_peek8(frame.sp, &home) || !store(function_argument(frame, 1), object)) return false;
  return_from_function(frame, home, 0);
  return true;
}

bool iterate_objects(const Point& point, SignalFrame& frame) {
  if (!looks_for_stub(function_argument(frame, 1))) return false;
  const u64 base = reinterpret_cast<u64>(&__ehdr_start);
  uprobe_own_object = {base, "libuprobe.so", base + __ehdr_start.program_headers, __ehdr_start.program_header_count};
  enter_iterate(frame, point.copy, as_word(uprobe_iterate));
  return true;
}

bool in_iterate(u64 address) { return is_in(address, uprobe_iterate, uprobe_iterate_end); }

}  // namespace uprobe::agent
