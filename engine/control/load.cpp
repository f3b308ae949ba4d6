#include "engine/control/load.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace uprobe::control {
namespace {

using target::PtraceTarget;
using target::Target;

constexpr std::uint64_t kScratchBytes = 8192;

// One system call whose negative result is an error called `what`.
Result<std::uint64_t> checked_call(Target& target, const std::string& what, long number,
                                   const std::array<std::uint64_t, 6>& arguments) {
  auto result = target.system_call(number, arguments);
  if (!result) return result.error();
  if (*result < 0 && *result > -4096) return system_error(what + " in the target", static_cast<int>(-*result));
  return static_cast<std::uint64_t>(*result);
}

// Maps the session's memfd, which the target opens through our /proc entry.
Result<Addr> map_area(Target& target, Addr scratch, const trace::Area& area) {
  const std::string link = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(area.fd());
  if (Status s = target.write(scratch, link.c_str(), link.size() + 1); !s) return s.error();
  constexpr auto kHere = static_cast<std::uint64_t>(static_cast<std::int64_t>(AT_FDCWD));
  auto fd =
      checked_call(target, "open of the session area", SYS_openat, {kHere, scratch.value, O_RDWR | O_CLOEXEC, 0, 0, 0});
  if (!fd) return fd.error();
  auto place = target::map_memory(target, Addr{0}, area.span_bytes(), PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, "the session area");
  if (!place) return place.error();
  for (const trace::MapStep& step : area.map_steps()) {
    auto made = target::map_memory(target, *place + step.offset, step.length, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_FIXED, static_cast<int>(*fd), step.file_offset, "the session area");
    if (!made) return made.error();
  }
  if (auto closed = checked_call(target, "close", SYS_close, {*fd, 0, 0, 0, 0, 0}); !closed) return closed.error();
  return *place;
}

Status install_handler(Target& target, Addr scratch, int signal, Addr entry, Addr restorer, shared::AppAction& before) {
  const shared::KernelSigaction action{entry.value, shared::kAgentSaFlags, restorer.value, 0};
  const Addr old = scratch + sizeof action;
  if (Status s = target.write(scratch, &action, sizeof action); !s) return s;
  auto done = checked_call(target, "rt_sigaction", SYS_rt_sigaction,
                           {static_cast<std::uint64_t>(signal), scratch.value, old.value, 8, 0, 0});
  if (!done) return done.error();
  shared::KernelSigaction found{};
  if (Status s = target.read(old, &found, sizeof found); !s) return s;
  before = {found.handler, found.flags, found.restorer, found.mask};
  return ok();
}

Status install_handlers(Target& target, const MappedAgent& agent, Addr scratch, Block& block) {
  const Addr restorer = agent.place(agent.header.restorer);
  const Addr trap = agent.place(agent.header.trap_entry), fault = agent.place(agent.header.fault_entry);
  struct {
    int signal;
    Addr entry;
  } const handlers[shared::kAppSignals] = {
      {SIGTRAP, trap}, {SIGSEGV, fault}, {SIGBUS, fault}, {SIGFPE, fault}, {SIGILL, fault}};
  for (std::uint32_t i = 0; i < shared::kAppSignals; ++i)
    if (Status s =
            install_handler(target, scratch, handlers[i].signal, handlers[i].entry, restorer, block.head().actions[i]);
        !s)
      return s;
  return ok();
}

bool is_filtered(pid_t pid) {
  const auto status = read_file("/proc/" + std::to_string(pid) + "/status");
  return !status || status->find("\nSeccomp:\t0") == std::string::npos;
}

}  // namespace

Result<Block> install_agent(Target& target, const MappedAgent& agent, const trace::Area& area, std::size_t points,
                            std::uint64_t blocked) {
  constexpr int kReadWrite = PROT_READ | PROT_WRITE, kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  auto scratch = target::map_memory(target, Addr{0}, kScratchBytes, kReadWrite, kAnonymous, -1, 0, "scratch memory");
  if (!scratch) return scratch.error();
  auto area_base = map_area(target, *scratch, area);
  if (!area_base) return area_base.error();

  auto place = target::map_memory(target, Addr{0}, Block::bytes_for(points), kReadWrite, kAnonymous | MAP_NORESERVE, -1,
                                  0, "the process block");
  if (!place) return place.error();
  auto block = Block::create(target, *place, points);
  if (!block) return block.error();
  block->head().agent_base = agent.base.value;
  block->head().agent_text = agent.place(agent.header.text).value;
  block->head().agent_text_end = agent.place(agent.header.text_end).value;
  block->head().sessions[0].area = area_base->value;
  block->head().session_count = 1;
  constexpr unsigned long kFsgsbase = 2;  // HWCAP2_FSGSBASE (uapi/asm/hwcap2.h)
  if ((::getauxval(AT_HWCAP2) & kFsgsbase) != 0) block->head().flags |= shared::kBlockFsgsbase;
  if (is_filtered(target.pid())) block->head().flags |= shared::kBlockFiltered;
  block->head().start_blocked = blocked & shared::kOurSignals;
  const Addr slot = agent.place(agent.header.block_slot);
  if (Status s = target.write(slot, &place->value, sizeof place->value); !s) return s.error();
  if (Status s = block->write_head(target); !s) return s.error();

  if (Status s = install_handlers(target, agent, *scratch, *block); !s) return s.error();
  if (Status s = block->write_agent_part(target); !s) return s.error();
  auto gone = checked_call(target, "munmap", SYS_munmap, {scratch->value, kScratchBytes, 0, 0, 0, 0});
  if (!gone) return gone.error();
  return block;
}

Result<Block> load_agent(PtraceTarget& target, const AgentImage& agent, const trace::Area& area, std::size_t points) {
  constexpr int kReadWrite = PROT_READ | PROT_WRITE, kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  auto scratch = target::map_memory(target, Addr{0}, kScratchBytes, kReadWrite, kAnonymous, -1, 0, "scratch memory");
  if (!scratch) return scratch.error();
  auto base = agent.map_into(target, *scratch, kScratchBytes);
  if (!base) return base.error();
  auto gone = checked_call(target, "munmap", SYS_munmap, {scratch->value, kScratchBytes, 0, 0, 0, 0});
  if (!gone) return gone.error();
  const std::uint64_t blocked = target.signal_mask();
  auto block = install_agent(target, agent.mapped_at(*base), area, points, blocked);
  // A breakpoint under a blocked SIGTRAP kills. The program goes on to believe blocked what its parent had blocked.
  if (!block) return block.error();
  if (Status open = target.set_signal_mask(blocked & ~shared::kOurSignals); !open) return open.error();
  return block;
}

}  // namespace uprobe::control
