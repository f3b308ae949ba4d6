// Which thread this is, without a system call: libc keeps the id in the thread control block.
//
// Known places, from fs:0: glibc >= 2.34 0x2d0, older x86-64 glibc the same; musl 1.2 0x30. A place is believed once it has
// been seen to hold the process id while the process had one thread only, which is so when the agent comes at exec.
// Before the control block exists, and in programs without libc, it is the process id.
#include "preload/agent.h"

namespace uprobe::agent {
namespace {

constexpr i32 kPlaces[] = {0x2d0, 0x30};

void learn_place(ProcessBlock& block) {
  for (const i32 place : kPlaces) {
    u64 value = 0;
    if (!uprobe_peek_fs4(place, &value)) return;  // no control block yet
    if (value == block.pid) {
      block.tid_offset = place;
      return;
    }
  }
}

}  // namespace

u32 thread_id(ProcessBlock& block) {
  if (block.tid_offset == 0) learn_place(block);
  u64 value = 0;
  if (block.tid_offset != 0 && uprobe_peek_fs4(block.tid_offset, &value) && value != 0) return static_cast<u32>(value);
  return block.pid;
}

}  // namespace uprobe::agent
