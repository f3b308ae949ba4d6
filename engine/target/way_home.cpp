// SPDX-License-Identifier: MIT
#include "engine/target/way_home.h"

#include <sys/ptrace.h>

#include "engine/target/interrupted_syscall.h"
#include "engine/target/thread_change.h"

namespace uprobe::target {
namespace {

// What the kernel would do.
arch::Restart restart_of(const arch::ThreadRegisters& r) {
  if (arch::call_number(r) < 0) return arch::Restart::none;
  switch (arch::result(r)) {
    case kRestart:
    case kRestartNoIntr:
    case kRestartNoHandler:
      return arch::Restart::again;
    case kRestartBlock:
      return arch::Restart::rest;
    default:
      return arch::Restart::none;
  }
}

}  // namespace

// The sequence is not struck out of the thread's rseq area: the kernel does that once the thread is outside, and before then a tool that
// is killed must leave it as it was.
void leave_sequence(Target& target, pid_t tid, arch::ThreadRegisters& registers) {
  constexpr std::uint64_t kDescriptorAt = 8;  // struct rseq::rseq_cs
  struct Configuration {
    std::uint64_t area;
    std::uint32_t bytes, signature, flags, pad;
  } configuration{};
  struct Section {
    std::uint32_t version, flags;
    std::uint64_t begin, bytes, abort;
  } section{};
  std::uint64_t descriptor = 0;
  constexpr auto kGetRseqConfiguration = static_cast<__ptrace_request>(0x420f);
  if (::ptrace(kGetRseqConfiguration, tid, as_data(sizeof configuration), &configuration) <= 0) return;
  if (configuration.area == 0) return;
  const Addr at{configuration.area + kDescriptorAt};
  if (!target.read(at, &descriptor, sizeof descriptor) || descriptor == 0) return;
  if (!target.read(Addr{descriptor}, &section, sizeof section)) return;
  if (arch::instruction_pointer(registers) - section.begin >= section.bytes) return;
  arch::set_instruction_pointer(registers, section.abort);
}

arch::RemoteCallReturn way_home(const arch::ThreadRegisters& registers, std::uint64_t mask) {
  return arch::return_to(registers, mask, restart_of(registers));
}

}  // namespace uprobe::target
