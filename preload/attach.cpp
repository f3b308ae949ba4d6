// SPDX-License-Identifier: MIT
// Taking over a process that already runs, and giving it back. The tool has stopped all of its threads and sends them here one
// by one, on a stack of the tool's and with all signals blocked: system calls are safe, faults are not.
#include "engine/shared/agent_header.h"
#include "preload/agent.h"
#include "preload/copies.h"
#include "preload/deferred_signals.h"
#include "preload/stacks.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

using shared::AttachOrder;
using shared::AttachStep;

// The tool has waited for children that share this memory, and knows the place of the thread id.
void take_process(ProcessBlock& block) {
  forget_borrowers(block, nullptr);
  note_own_rseq(block);
  take_dispositions(block);
}

void take_thread(ProcessBlock& block, const AttachOrder& order) {
  if (order.has_control_block == 0) return;
  take_stack_over(block);
  take_mask(block, order.blocked & shared::kOurSignals);
}

void give_thread(ProcessBlock& block, AttachOrder& order) {
  order.blocked = 0;
  if (order.has_control_block == 0) return;
  give_stack_back(block, order.stack_pointer);
  order.blocked = give_mask(block);
  send_deferred(block, thread_pointer());
}

void give_process(ProcessBlock& block) {
  give_dispositions(block);
  send_deferred(block, 0);
  forget_deferred(block);
}

void carry_out(ProcessBlock& block, AttachOrder& order) {
  switch (static_cast<AttachStep>(order.step)) {
    case AttachStep::take_process:
      return take_process(block);
    case AttachStep::take_thread:
      return take_thread(block, order);
    case AttachStep::give_thread:
      return give_thread(block, order);
    case AttachStep::give_process:
      return give_process(block);
  }
}

// By ppoll: of the calls that can wait so long, it leaves alone the data that restart_syscall will need.
void wait_to_be_moved(AttachOrder& order) {
  struct {
    u64 seconds, nanoseconds;
  } left{shared::kOrderSeconds, 0};
  __atomic_store_n(&order.state, shared::kOrderDone, __ATOMIC_RELEASE);
  system_call(kSysPpoll, 0, 0, as_word(&left), 0, 8);
  __atomic_store_n(&order.state, shared::kOrderLeft, __ATOMIC_RELEASE);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"), used)) void uprobe_attach_entry(AttachOrder* order) {
  carry_out(*uprobe_block, *order);
  wait_to_be_moved(*order);
}

}  // namespace uprobe::agent
