// SPDX-License-Identifier: MIT
#include "engine/inject/load.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "arch/abi/address_space.h"
#include "arch/abi/processor.h"
#include "engine/inject/memory_room.h"
#include "engine/inject/seccomp.h"
#include "engine/process/fd_transfer.h"
#include "engine/process/task_number.h"
#include "engine/shared/mailbox.h"

namespace uprobe::control {
namespace {

using target::PtraceTarget;
using target::Target;

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// One system call, whose negative result is an error about `what`.
Result<std::uint64_t> checked_call(Target& target, const std::string& what, long number,
                                   const std::array<std::uint64_t, 6>& arguments) {
  auto result = target.system_call(number, arguments);
  if (!result) return result.error();
  if (*result < 0 && *result > -4096) return system_error(what + " in the target", static_cast<int>(-*result));
  return static_cast<std::uint64_t>(*result);
}

// A kernel that does not know the advice does without it.
Status advise(Target& target, Addr at, std::uint64_t bytes, std::uint64_t advice) {
  auto advised = target.system_call(SYS_madvise, {at.value, bytes, advice, 0, 0, 0});
  return advised ? ok() : Status(advised.error());
}

// The mappings of one file.
Status map_file(Target& target, Addr scratch, Addr base, std::span<const trace::MapStep> steps) {
  auto fd = pass_file(target, scratch, steps.front().fd);
  if (!fd) return fd.error();
  std::vector<MappedRange> ranges;
  Status done = ok();
  for (const trace::MapStep& step : steps) {
    auto made = target::map_memory(target, base + step.offset, step.length, step.writable ? kReadWrite : PROT_READ,
                                   MAP_SHARED | MAP_FIXED, *fd, step.file_offset, "the session area");
    if (done && !made) done = made.error();
    ranges.push_back({base + step.offset, step.length});
  }
  close_in(target, *fd, steps.front().fd);
  return done ? check_mapped(target, ranges, steps.front().fd) : done;
}

// Core files of the target are without the rings, whose pages would be allocated for it.
Status map_live_part(Target& target, Addr scratch, Addr base, std::span<const trace::MapStep> steps) {
  RETURN_IF_ERROR(map_file(target, scratch, base, steps));
  const Addr begin = base + steps.front().offset, end = base + steps.back().offset + steps.back().length;
  return advise(target, begin, end - begin, MADV_DONTDUMP);
}

// Private, and empty in a child of fork. (A kernel before 4.14 copies it, into a child in which no thread waits for an answer.)
Status map_mailbox(Target& target, Addr at) {
  auto made = target::map_memory(target, at, shared::kMailboxBytes, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                                 -1, 0, "the mailbox");
  if (!made) return made.error();
  return advise(target, at, shared::kMailboxBytes, MADV_WIPEONFORK);
}

// The rings' pages are the target's own memory once it touches them first. Where that could bring it near a limit, the tool
// allocates them.
Status keep_memory_free(pid_t pid, trace::LiveArea& live) {
  return live.is_allocated() || has_memory_for(pid, live.ring_bytes()) ? ok() : live.allocate();
}

// Far from all code: rings may be gigabytes, and displaced copies need the room within 2 GiB of code. A random address, which
// nothing outside the process can know.
Addr place_far_from_code(std::uint64_t bytes) {
  constexpr std::uint64_t kLowest = arch::kFarLowest, kHighest = arch::kFarHighest, kPage = 4096;
  std::uint64_t random = 0;
  const bool is_random = ::getrandom(&random, sizeof random, 0) == sizeof random;
  const std::uint64_t pages = bytes < kHighest - kLowest ? (kHighest - kLowest - bytes) / kPage : 0;
  return Addr{kLowest + (is_random && pages != 0 ? random % pages * kPage : 0)};
}

// [ the mailbox | plan and live part ]
Result<Addr> map_area(Target& target, MappedMemory& mapped, Addr scratch, const trace::Area& area, std::size_t part) {
  const std::uint64_t bytes = shared::kMailboxBytes + area.span_bytes();
  auto place = mapped.map(bytes, PROT_NONE, MAP_NORESERVE, "the session area", place_far_from_code(bytes));
  if (!place) return place.error();
  RETURN_IF_ERROR(map_mailbox(target, *place));
  const Addr base = *place + shared::kMailboxBytes;
  const std::vector<trace::MapStep> steps = area.map_steps(part);
  const std::span all(steps);
  RETURN_IF_ERROR(map_file(target, scratch, base, all.first(1)));
  RETURN_IF_ERROR(map_live_part(target, scratch, base, all.subspan(1)));
  return base;
}

Status install_handler(Target& target, Addr scratch, int signal, Addr entry, Addr restorer, shared::AppAction& before) {
  const shared::KernelSigaction action{entry.value, shared::kAgentSaFlags, restorer.value, 0};
  const Addr old = scratch + sizeof action;
  RETURN_IF_ERROR(target.write(scratch, &action, sizeof action));
  auto done = checked_call(target, "rt_sigaction", SYS_rt_sigaction,
                           {static_cast<std::uint64_t>(signal), scratch.value, old.value, 8, 0, 0});
  if (!done) return done.error();
  shared::KernelSigaction found{};
  RETURN_IF_ERROR(target.read(old, &found, sizeof found));
  before = {found.handler, found.flags, found.restorer, found.mask};
  return ok();
}

Status install_handlers(Target& target, const MappedAgent& agent, Addr scratch, Block& block) {
  const Addr restorer = agent.place(agent.header.restorer);
  const Addr trap = agent.place(agent.header.trap_entry), fault = agent.place(agent.header.fault_entry);
  for (std::uint32_t i = 0; i < shared::kAppSignals; ++i) {
    const int signal = static_cast<int>(shared::kFaultSignalNumbers[i]);
    const Addr entry = signal == SIGTRAP ? trap : fault;
    RETURN_IF_ERROR(install_handler(target, scratch, signal, entry, restorer, block.head().actions[i]));
  }
  return ok();
}

// The tool must not take address space that a limited program needs.
Status check_room(pid_t pid, const trace::Area& area) {
  rlimit limit{};
  if (::prlimit(pid, RLIMIT_AS, nullptr, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ok();
  if (area.span_bytes() <= limit.rlim_cur / kAddressShare) return ok();
  const auto in_megabytes = [](std::uint64_t bytes) { return std::to_string((bytes >> 20) + 1) + " MB"; };
  return Error{.code = Code::limit,
               .text = "the program's address space is limited to " + in_megabytes(limit.rlim_cur) +
                       ", and the session's buffers would take " + in_megabytes(area.span_bytes()),
               .help = "choose smaller buffers"};
}

std::uint64_t end_of_stack(const std::vector<target::Mapping>& maps) {
  const auto found = std::ranges::find(maps, "[stack]", &target::Mapping::path);
  return found == maps.end() ? 0 : found->end.value;
}

bool is_data(const std::vector<target::Mapping>& maps, Addr at) {
  const target::Mapping* m = target::mapping_at(maps, at);
  return m != nullptr && m->readable && !m->executable;
}

Result<Addr> place_area_by(Target& target, Addr scratch, const trace::Area& area, std::size_t part) {
  RETURN_IF_ERROR(check_room(target.pid(), area));
  RETURN_IF_ERROR(keep_memory_free(target.pid(), area.live(part)));
  MappedMemory mapped(target);
  auto base = map_area(target, mapped, scratch, area, part);
  if (base) mapped.keep();
  return base;
}

Result<Block> place_block_by(Target& target, Addr scratch, const MappedAgent& agent, const trace::Area& area,
                             std::size_t points, std::uint64_t blocked, std::size_t part) {
  auto area_base = place_area_by(target, scratch, area, part);
  if (!area_base) return area_base.error();
  MappedMemory mapped(target);
  auto place = mapped.map(Block::bytes_for(points), kReadWrite, MAP_NORESERVE, "the process block");
  auto block = place ? Block::create(target, *place, points) : Result<Block>(place.error());
  if (!block) {
    const std::uint64_t first = area_base->value - shared::kMailboxBytes;
    static_cast<void>(target.system_call(SYS_munmap, {first, shared::kMailboxBytes + area.span_bytes(), 0, 0, 0, 0}));
    return block.error();
  }
  mapped.keep();
  block->head().agent_base = agent.base.value;
  block->head().agent_text = agent.place(agent.header.text).value;
  block->head().agent_text_end = agent.place(agent.header.text_end).value;
  block->head().jump_entry = agent.place(agent.header.jump_entry).value;
  block->head().sessions[0].area = area_base->value;
  block->head().session_count = 1;
  const auto maps = target.maps();
  if (!maps) return maps.error();
  block->head().stack_end = end_of_stack(*maps);
  if (arch::has_thread_pointer_instruction()) block->head().flags |= shared::kBlockReadsThreadPointer;
  if (is_data(*maps, agent.place(agent.header.visible_restorer))) block->head().flags |= shared::kBlockLeadsBack;
  block->head().flags |= may_be_killed_for_calls(target.pid()) ? shared::kBlockFiltered : shared::kBlockFiltersKnown;
  name_process(block->head(), target.pid());
  block->head().start_blocked = blocked & shared::kOurSignals;
  RETURN_IF_ERROR(block->write_head(target));
  const Addr slot = agent.place(agent.header.block_slot);
  RETURN_IF_ERROR(target.write(slot, &place->value, sizeof place->value));
  return block;
}

Result<Block> install_agent_by(Target& target, Addr scratch, const MappedAgent& agent, const trace::Area& area,
                               std::size_t points, std::uint64_t blocked, std::size_t part) {
  auto block = place_block_by(target, scratch, agent, area, points, blocked, part);
  if (!block) return block;
  RETURN_IF_ERROR(install_handlers(target, agent, scratch, *block));
  RETURN_IF_ERROR(block->write_agent_part(target));
  return block;
}

}  // namespace

bool is_data(Target& target, Addr at) {
  const auto maps = target.maps();
  return maps && is_data(*maps, at);
}

Result<Addr> place_area(Target& target, const trace::Area& area, std::size_t part) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  return scratch ? place_area_by(target, *scratch, area, part) : scratch;
}

Status replace_part(Target& target, Addr base, const trace::Area& area, std::size_t part) {
  RETURN_IF_ERROR(keep_memory_free(target.pid(), area.live(part)));
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  const std::vector<trace::MapStep> steps = area.map_steps(part);
  return map_live_part(target, *scratch, base, std::span(steps).subspan(1));
}

Status cover_part(Target& target, Addr base, const trace::Area& area) {
  const std::uint64_t begin = area.map_steps().at(1).offset;
  auto made = target::map_memory(target, base + begin, area.span_bytes() - begin, kReadWrite,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0,
                                 "memory in place of its records");
  return made ? ok() : Status(made.error());
}

Result<Block> place_block(Target& target, const MappedAgent& agent, const trace::Area& area, std::size_t points,
                          std::uint64_t blocked, std::size_t part) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  return place_block_by(target, *scratch, agent, area, points, blocked, part);
}

Result<Block> install_agent(Target& target, const MappedAgent& agent, const trace::Area& area, std::size_t points,
                            std::uint64_t blocked, std::size_t part) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  return install_agent_by(target, *scratch, agent, area, points, blocked, part);
}

Status uninstall_handlers(Target& target, Block& block) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  for (std::uint32_t i = 0; i < shared::kAppSignals; ++i) {
    const shared::AppAction& before = block.head().actions[i];
    const shared::KernelSigaction action{before.handler, before.flags, before.restorer, before.mask};
    RETURN_IF_ERROR(target.write(*scratch, &action, sizeof action));
    auto done = checked_call(target, "rt_sigaction", SYS_rt_sigaction,
                             {std::uint64_t{shared::kFaultSignalNumbers[i]}, scratch->value, 0, 8, 0, 0});
    if (!done) return done.error();
  }
  return ok();
}

Result<Block> load_agent(PtraceTarget& target, const AgentImage& agent, const trace::Area& area, std::size_t points,
                         std::size_t part) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  auto base = agent.map_into(target, *scratch, kScratchBytes);
  if (!base) return base.error();
  const std::uint64_t blocked = target.signal_mask();
  auto block = install_agent_by(target, *scratch, agent.mapped_at(*base), area, points, blocked, part);
  if (!block) {
    agent.unmap_from(target, *base);
    return block.error();
  }
  // A breakpoint under a blocked SIGTRAP kills the process. The virtual mask keeps what the program's parent had blocked.
  RETURN_IF_ERROR(target.set_signal_mask(blocked & ~shared::kOurSignals));
  return block;
}

}  // namespace uprobe::control
