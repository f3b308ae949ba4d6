// A hit that came by a jump, as far as the trampoline has not recorded it itself.
#include "preload/jump_hit.h"

#include "preload/copies.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

extern "C" {
// arch/x86/entry/jump.S
extern const u8 uprobe_jump_entry[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_end[] __attribute__((visibility("hidden")));
}

bool in_island(const ProcessBlock& block, u64 address) {
  for (u32 i = 0; i < block.island_count && i < shared::kMaxIslands; ++i)
    if (address - block.islands[i].base < block.islands[i].bytes) return true;
  return false;
}

struct FrameLink {
  u64 next, return_address;
};

// The agent keeps frame pointers; the frame of rseq.S points to itself and has what it saved further up.
bool read_link(u64 at, FrameLink& link) {
  constexpr u64 kRseqSaved = 64;
  if (!uprobe_peek8(at, &link.next)) return false;
  if (link.next == at) at += kRseqSaved;
  return uprobe_peek8(at, &link.next) && uprobe_peek8(at + 8, &link.return_address);
}

}  // namespace

bool is_jump_hit(const ProcessBlock& block, const SignalFrame& frame) {
  constexpr u32 kMostFrames = 16;
  constexpr u64 kRedZone = 128;  // below rsp nothing is lost so far
  if (frame.ip - as_word(uprobe_jump_entry) < static_cast<u64>(uprobe_jump_end - uprobe_jump_entry)) return true;
  FrameLink link{frame.bp, 0};
  for (u32 i = 0; i < kMostFrames; ++i) {
    if (link.next + kRedZone < frame.sp || !read_link(link.next, link)) return false;
    if (in_island(block, link.return_address)) return true;
    if (!in_agent(block, link.return_address)) return false;
  }
  return false;
}

extern "C" __attribute__((visibility("hidden"), used, flatten)) void uprobe_on_jump(const Point* point,
                                                                                    Registers* registers, u32 faulted) {
  ProcessBlock& block = *uprobe_block;
  (*registers)[shared::Reg::ip] = point->address;
  const Hit hit{&block, point, registers, thread_id(block, true), true, true, faulted != 0};
  handle_hit(hit);
}

}  // namespace uprobe::agent
