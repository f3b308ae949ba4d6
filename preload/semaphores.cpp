// SPDX-License-Identifier: MIT
// The semaphores of markers (shared::Semaphore). The tool counts them up and down; where it was killed, the kernel has marked that in
// the area, and the agent counts them down: each once, since a thread takes the entry first. A tool that is only late with an answer
// finds the entry and counts up again.
#include "preload/agent.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

// By instructions that may fault: the library may have been unloaded.
void count_down(ProcessBlock& block) {
  const u32 count = block.semaphore_count < shared::kSemaphores ? block.semaphore_count : shared::kSemaphores;
  for (u32 i = 0; i < count; ++i) {
    shared::Semaphore& entry = block.semaphores[i];
    u32 expected = 1;
    const u64 address = __atomic_load_n(&entry.address, __ATOMIC_RELAXED);
    if (__atomic_compare_exchange_n(&entry.is_up, &expected, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      uprobe_count_down(address);
  }
}

}  // namespace

[[gnu::noinline]] void watch_tool(const Hit& hit) {
  const AreaHeader* area = session_area(*hit.block, 0);
  if (area != nullptr && hit.may_fault && is_life_over(*area)) count_down(*hit.block);
}

// The call reads the mask; a process that may not make it does not come here (mail.cpp). With SIGSEGV or SIGBUS blocked a fault
// would end the program: the semaphores stay as they are.
void count_down_semaphores(ProcessBlock& block) {
  u64 blocked = ~u64{0};
  if (system_call(kSysRtSigprocmask, 0, 0, as_word(&blocked), sizeof blocked) != 0) return;
  if ((blocked & shared::kOurSignals) == 0) count_down(block);
}

}  // namespace uprobe::agent
