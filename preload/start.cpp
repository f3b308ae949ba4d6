// SPDX-License-Identifier: MIT
// LD_PRELOAD: ld.so calls the agent before the program and its libraries. The agent starts the tool, waits until it has armed
// the probes, and lets the program begin. Any failure is one line on stderr and an unprobed program.
#include "preload/start.h"

#include "engine/shared/agent_header.h"
#include "preload/environment.h"
#include "preload/handler_entry.h"
#include "preload/helper.h"
#include "preload/system_call.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

// 2 seconds without a sign of life, 10 in all; a helper that dies is noticed within a slice.
constexpr i64 kSlice = 10'000'000;
constexpr u32 kSilentSlices = 200, kSlices = 1000;

bool is_set(const char* value) { return value != nullptr && *value != 0; }

// A set-id program gets here only by /etc/ld.so.preload; the agent ignores its variables.
bool is_disabled(char** environment) {
  const char* disable = variable(environment, "UPROBE_DISABLE=");
  return (is_set(disable) && !(disable[0] == '0' && disable[1] == 0)) || is_secure(environment);
}

bool has_probes(char** environment) {
  return is_set(variable(environment, "UPROBE_PROBES=")) || is_set(variable(environment, "UPROBE_PROBES_FILE="));
}

// Valgrind, which loads libraries of its own beside this one, would not pass breakpoints on.
bool is_translated(char** environment) {
  const char* libraries = variable(environment, "LD_PRELOAD=");
  for (; libraries != nullptr && *libraries != 0; ++libraries)
    if (starts_with(libraries, "/vgpreload_")) return true;
  return false;
}

// Whether the tool already traces the process: its session brought the agent in at execve, before the first instruction.
bool is_traced() {
  shared::KernelSigaction action{};
  return system_call(kSysRtSigaction, kSigTrap, 0, as_word(&action), 8) != 0 || action.handler > 1;
}

u64 set_mask(u64 mask) {
  u64 before = 0;
  system_call(kSysRtSigprocmask, kSetMask, as_word(&mask), as_word(&before), 8);
  return before;
}

// Without probes there is no helper that could report it.
void tell_unknown_variable(char** environment) {
  const char* const entry = unknown_variable(environment);
  if (entry == nullptr || is_filtered()) return;
  const u64 blocked = set_mask(~shared::kOurSignals);
  complain_of_variable(entry);
  set_mask(blocked);
}

void explain_silence(const Helper& helper, bool alive) {
  const u32 error = __atomic_load_n(&helper.page->start_error, __ATOMIC_RELAXED);
  if (error != 0) return complain("cannot start uprobe-run, looked for beside the library", error);
  complain(alive ? "uprobe-run did not answer in time" : "uprobe-run ended before the probes were in place", 0);
}

// Returns the signal mask for the program.
u64 begin_session(char** environment, u64 blocked) {
  Helper helper;
  if (!start_helper(helper, environment, blocked)) return blocked;
  shared::MailSlot& slot = helper.page->slot;
  const Line line{.heartbeat = &helper.page->heartbeat,
                  .wake = &helper.page->wake,
                  .bell = &helper.page->bell,
                  .slice_nanoseconds = kSlice,
                  .silent_slices = kSilentSlices,
                  .slices = kSlices,
                  .lifeline = helper.lifeline};
  const bool answered = converse(line, slot, shared::number_of(slot.asked.word));
  const bool armed = answered && slot.result == 0;
  if (!answered) explain_silence(helper, !is_cut(helper.lifeline));
  let_go(helper, armed);
  // If the helper failed in the middle, breakpoints may already stand: their signal must be deliverable.
  const bool may_trap = armed || (!answered && uprobe_block != nullptr);
  return may_trap ? blocked & ~shared::kOurSignals : blocked;
}

}  // namespace
}  // namespace uprobe::agent

extern "C" {

void uprobe_init(uprobe::agent::i64 argc, char** argv, char** envp) {
  using namespace uprobe::agent;
  char** environment = find_environment(argc, argv, envp);
  if (environment == nullptr || is_disabled(environment)) return;
  if (!has_probes(environment)) return tell_unknown_variable(environment);
  if (!is_safe_here()) return complain("a seccomp filter kills for what would have to be done", 0);
  if (is_traced()) return;
  if (is_translated(environment)) return complain("valgrind executes this program in translation", 0);
  if (is_debugged()) return complain("a debugger traces this program", 0);
  // Resolvers that the agent runs for the tool may hit probes: kOurSignals stay open.
  const u64 blocked = set_mask(~uprobe::shared::kOurSignals);
  set_mask(begin_session(environment, blocked));
}

void uprobe_fini() {
  using namespace uprobe::agent;
  if (uprobe_block == nullptr) return;
  flush_output(*uprobe_block);
  send_pending_again(*uprobe_block);  // no later hit would deliver them
}

}  // extern "C"
