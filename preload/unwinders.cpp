// An agent that was mapped by the tool is in no list of ld.so's. Who unwinds through a stub asks glibc for its unwind
// information (_dl_find_object, since 2.35; what comes with gcc since 12), and gets it from here.
#include "preload/unwinders.h"

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

}  // namespace

bool find_object(const ProcessBlock& block, SignalFrame& frame) {
  if (frame.di - block.agent_text >= block.agent_text_end - block.agent_text) return false;
  const FoundObject object{0, block.agent_text, block.agent_text_end, 0, eh_frame_header(), {}};
  u64 home = 0;
  if (!uprobe_peek8(frame.sp, &home) || !store(frame.si, object)) return false;
  frame.ax = 0;
  frame.ip = home;
  frame.sp += 8;
  return true;
}

}  // namespace uprobe::agent
