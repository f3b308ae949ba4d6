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
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arch/abi/address_space.h"
#include "arch/abi/processor.h"
#include "engine/inject/memory_room.h"
#include "engine/inject/seccomp.h"
#include "engine/process/fd_transfer.h"
#include "engine/process/task_number.h"
#include "engine/shared/mailbox.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {
namespace {

using target::PtraceTarget;
using target::SystemCall;
using target::Target;

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// A kernel that does not know the advice does without it.
SystemCall advise_call(Addr at, std::uint64_t bytes, std::uint64_t advice) {
  return {.number = SYS_madvise, .arguments = {at.value, bytes, advice}};
}

FileParts parts_of(Addr base, std::span<const trace::MapStep> steps) {
  FileParts file{.fd = steps.front().fd, .path = {}, .sharing = MAP_SHARED, .parts = {}};
  file.parts.reserve(steps.size());
  for (const trace::MapStep& step : steps)
    file.parts.push_back({base + step.offset, step.length, step.writable ? kReadWrite : PROT_READ, step.file_offset});
  return file;
}

Status map_file(Target& target, Addr scratch, const FileParts& file) {
  auto fd = pass_file(target, scratch, file.fd);
  if (!fd) return fd.error();
  const Status done = map_parts(target, file, *fd, "the session area");
  close_in(target, *fd, file.fd);
  return done ? check_mapped(target, ranges_of(file), file.fd) : done;
}

// Core files of the target are without the rings, whose pages would be allocated for it.
SystemCall keep_from_core_files(const FileParts& live) {
  const Addr begin = live.parts.front().at;
  return advise_call(begin, live.parts.back().at + live.parts.back().bytes - begin, MADV_DONTDUMP);
}

Status map_live_part(Target& target, Addr scratch, const FileParts& live) {
  RETURN_IF_ERROR(map_file(target, scratch, live));
  SystemCall advice = keep_from_core_files(live);
  return target.system_calls({&advice, 1});
}

// Private, and empty in a child of fork. (A kernel before 4.14 copies it, into a child in which no thread waits for an answer.)
std::array<SystemCall, 2> mailbox_calls(Addr at) {
  return {target::map_call(at, shared::kMailboxBytes, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED),
          advise_call(at, shared::kMailboxBytes, MADV_WIPEONFORK)};
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
std::uint64_t area_bytes(const trace::Area& area) { return shared::kMailboxBytes + area.span_bytes(); }

MappedMemory::Wanted wanted_area(const trace::Area& area) {
  const std::uint64_t bytes = area_bytes(area);
  return {bytes, PROT_NONE, MAP_NORESERVE, "the session area", place_far_from_code(bytes)};
}

MappedMemory::Wanted wanted_block(const BlockNeeds& needs) {
  return {Block::bytes_for(needs), kReadWrite, MAP_NORESERVE, "the process block"};
}

// The files of an area whose mailbox is at `place`.
struct AreaFiles {
  AreaFiles(Addr place, const trace::Area& area, std::size_t part) : AreaFiles(place, area.map_steps(part)) {}

  FileParts plan, live;

 private:
  AreaFiles(Addr place, const std::vector<trace::MapStep>& steps)
      : plan(parts_of(place + shared::kMailboxBytes, std::span(steps).first(1))),
        live(parts_of(place + shared::kMailboxBytes, std::span(steps).subspan(1))) {}
};

// Maps it into its reservation.
Status map_area(Target& target, Addr place, Addr scratch, const trace::Area& area, std::size_t part) {
  std::array<SystemCall, 2> mailbox = mailbox_calls(place);
  RETURN_IF_ERROR(target.system_calls(mailbox));
  if (auto made = target::mapped_by(mailbox[0], "the mailbox"); !made) return made.error();
  const AreaFiles files(place, area, part);
  RETURN_IF_ERROR(map_file(target, scratch, files.plan));
  return map_live_part(target, scratch, files.live);
}

// The memory for one call of rt_sigaction.
struct Dispositions {
  shared::KernelSigaction now, before;
};
using AllDispositions = std::array<Dispositions, shared::kAppSignals>;

// The calls that set them; they lie at `at`.
std::vector<SystemCall> disposition_calls(Addr at) {
  std::vector<SystemCall> calls;
  calls.reserve(shared::kAppSignals);
  for (std::size_t i = 0; i < shared::kAppSignals; ++i) {
    const Addr now = at + i * sizeof(Dispositions), old = now + offsetof(Dispositions, before);
    calls.push_back({.number = SYS_rt_sigaction,
                     .arguments = {std::uint64_t{shared::kFaultSignalNumbers[i]}, now.value, old.value, 8}});
  }
  return calls;
}

// Sets all dispositions, and reads what they were.
Status set_dispositions(Target& target, Addr scratch, AllDispositions& all) {
  RETURN_IF_ERROR(target.write(scratch, all.data(), sizeof all));
  std::vector<SystemCall> calls = disposition_calls(scratch);
  RETURN_IF_ERROR(target.system_calls(calls));
  for (const SystemCall& call : calls)
    if (call.has_failed()) return target::failed_in_target("rt_sigaction", call.result);
  return target.read(scratch, all.data(), sizeof all);
}

AllDispositions agents_handlers(const MappedAgent& agent) {
  const Addr restorer = agent.place(agent.header.restorer);
  const Addr trap = agent.place(agent.header.trap_entry), fault = agent.place(agent.header.fault_entry);
  AllDispositions all{};
  for (std::uint32_t i = 0; i < shared::kAppSignals; ++i) {
    const Addr entry = shared::kFaultSignalNumbers[i] == SIGTRAP ? trap : fault;
    all[i].now = {entry.value, shared::kAgentSaFlags, restorer.value, 0};
  }
  return all;
}

void note_actions(const AllDispositions& all, Block& block) {
  for (std::uint32_t i = 0; i < shared::kAppSignals; ++i) {
    const shared::KernelSigaction& found = all[i].before;
    block.head().actions[i] = {found.handler, found.flags, found.restorer, found.mask};
  }
}

Status install_handlers(Target& target, const MappedAgent& agent, Addr scratch, Block& block) {
  AllDispositions all = agents_handlers(agent);
  RETURN_IF_ERROR(set_dispositions(target, scratch, all));
  note_actions(all, block);
  return ok();
}

// The agent's handlers in a program that has not begun, set by a list of calls that does other things as well. Unless they are kept,
// the program gets its own back.
class EarlyHandlers {
 public:
  // `memory`: for as long as this lives.
  EarlyHandlers(PtraceTarget& target, Addr memory) : target_(target), memory_(memory) {}
  EarlyHandlers(const EarlyHandlers&) = delete;
  EarlyHandlers& operator=(const EarlyHandlers&) = delete;
  ~EarlyHandlers() {
    if (are_asked_for_) static_cast<void>(read());
    if (!is_kept_ && are_set_) give_back();
  }

  static constexpr std::size_t kBytes = sizeof(AllDispositions);

  Result<std::vector<SystemCall>> calls(const MappedAgent& agent) {
    AllDispositions all = agents_handlers(agent);
    for (Dispositions& one : all) one.before.handler = kNotSet;
    RETURN_IF_ERROR(target_.write(memory_, all.data(), sizeof all));
    are_asked_for_ = true;
    return disposition_calls(memory_);
  }
  // After the calls. False: they have not been made.
  Result<bool> read() {
    if (!std::exchange(are_asked_for_, false)) return are_set_;
    RETURN_IF_ERROR(target_.read(memory_, all_.data(), sizeof all_));
    are_set_ = std::ranges::none_of(all_, [](const Dispositions& one) { return one.before.handler == kNotSet; });
    return are_set_;
  }
  const AllDispositions& found() const { return all_; }
  void keep() { is_kept_ = true; }

 private:
  static constexpr std::uint64_t kNotSet = ~std::uint64_t{0};  // no address of a handler
  void give_back() {
    for (Dispositions& one : all_) one.now = one.before;
    static_cast<void>(set_dispositions(target_, memory_, all_));
  }

  PtraceTarget& target_;
  Addr memory_;
  AllDispositions all_{};
  bool are_asked_for_ = false, are_set_ = false, is_kept_ = false;
};

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

Status make_room(Target& target, const trace::Area& area, std::size_t part) {
  RETURN_IF_ERROR(check_room(target.pid(), area));
  return keep_memory_free(target.pid(), area.live(part));
}

struct Places {
  Addr area, block;  // the area begins with the mailbox
};

// Makes the block at its place, when agent and area are mapped, and tells the agent.
Result<Block> fill_block(Target& target, const Places& places, const MappedAgent& agent, const BlockNeeds& needs,
                         std::uint64_t blocked) {
  auto block = Block::create(target, places.block, needs);
  if (!block) return block;
  block->head().agent_base = agent.base.value;
  block->head().agent_text = agent.place(agent.header.text).value;
  block->head().agent_text_end = agent.place(agent.header.text_end).value;
  block->head().jump_entry = agent.place(agent.header.jump_entry).value;
  block->head().sessions[0].area = (places.area + shared::kMailboxBytes).value;
  block->head().session_count = 1;
  const auto maps = target.maps();
  if (!maps) return maps.error();
  block->head().stack_end = end_of_stack(*maps);
  if (arch::has_thread_pointer_instruction()) block->head().flags |= shared::kBlockReadsThreadPointer;
  if (is_data(*maps, agent.place(agent.header.visible_restorer))) block->head().flags |= shared::kBlockLeadsBack;
  block->head().flags |= may_be_killed_for_calls(target) ? shared::kBlockFiltered : shared::kBlockFiltersKnown;
  name_process(block->head(), target.pid(), target.status());
  block->head().start_blocked = blocked & shared::kOurSignals;
  RETURN_IF_ERROR(block->write_head(target));
  const Addr slot = agent.place(agent.header.block_slot);
  RETURN_IF_ERROR(target.write(slot, &places.block.value, sizeof places.block.value));
  return block;
}

Result<Block> place_block_by(Target& target, Addr scratch, const MappedAgent& agent, const trace::Area& area,
                             const BlockNeeds& needs, std::uint64_t blocked, std::size_t part) {
  RETURN_IF_ERROR(make_room(target, area, part));
  MappedMemory mapped(target);
  const auto places = mapped.map_all(std::array{wanted_area(area), wanted_block(needs)});
  if (!places) return places.error();
  RETURN_IF_ERROR(map_area(target, places->at(0), scratch, area, part));
  auto block = fill_block(target, {places->at(0), places->at(1)}, agent, needs, blocked);
  if (block) mapped.keep();
  return block;
}

// The agent's fields up to its tables, which are empty, as the block's memory is: what is not written takes no page.
Status write_agent_fields(Target& target, Block& block) {
  constexpr std::size_t kFirst = shared::kToolOwnedBytes, kEnd = offsetof(shared::ProcessBlock, file_ranges);
  return target.write(block.address() + kFirst, reinterpret_cast<const char*>(&block.head()) + kFirst, kEnd - kFirst);
}

Status begin_work(Target& target, const MappedAgent& agent, Addr scratch, Block& block) {
  RETURN_IF_ERROR(install_handlers(target, agent, scratch, block));
  return write_agent_fields(target, block);
}

// The same where the handlers may be installed.
Status begin_work(PtraceTarget& target, const MappedAgent& agent, Addr scratch, Block& block, EarlyHandlers& handlers) {
  const auto are_set = handlers.read();
  if (!are_set) return are_set.error();
  if (!*are_set) return begin_work(target, agent, scratch, block);
  note_actions(handlers.found(), block);
  RETURN_IF_ERROR(write_agent_fields(target, block));
  handlers.keep();
  return ok();
}

Result<Block> install_agent_by(Target& target, Addr scratch, const MappedAgent& agent, const trace::Area& area,
                               const BlockNeeds& needs, std::uint64_t blocked, std::size_t part) {
  auto block = place_block_by(target, scratch, agent, area, needs, blocked, part);
  if (block) RETURN_IF_ERROR(begin_work(target, agent, scratch, *block));
  return block;
}

// Where a new program is to have the tool's memory, and what it may use for that.
struct NewPlaces {
  Addr agent, area, block, scratch;
  std::size_t scratch_bytes;
};

void unmap(Target& target, Addr begin, std::uint64_t bytes) {
  static_cast<void>(target.system_call(SYS_munmap, {begin.value, bytes}));
}

bool is_free(const std::vector<target::Mapping>& maps, Addr begin, std::uint64_t bytes) {
  return std::ranges::none_of(maps, [&](const target::Mapping& m) { return m.begin < begin + bytes && begin < m.end; });
}

// Whether the ranges lie one after the other from `begin` to `end`: what they replace would leave nothing of a reservation.
bool fill(std::vector<MappedRange> ranges, Addr begin, Addr end) {
  std::ranges::sort(ranges, {}, &MappedRange::begin);
  for (const MappedRange& range : ranges) {
    if (range.begin != begin) return false;
    begin = begin + range.bytes;
  }
  return begin == end;
}

// [ the area | agent | block ], a page apart, in address space of a new program that nothing is in: no other thread can map anything
// there. Nothing: there is none, or agent and area need a reservation round them.
std::optional<NewPlaces> free_places(PtraceTarget& target, const AgentImage& agent, const trace::Area& area,
                                     std::size_t part, const BlockNeeds& needs) {
  constexpr std::uint64_t kApart = 4096;
  const std::uint64_t of_area = area_bytes(area), of_agent = agent.span();
  const std::uint64_t all = of_area + kApart + of_agent + kApart + Block::bytes_for(needs);
  const auto maps = target.maps();
  const Addr begin = place_far_from_code(all + kApart);
  if (!maps || !is_free(*maps, begin, all + kApart)) return std::nullopt;
  const NewPlaces at{
      .agent = begin + of_area + kApart, .area = begin, .block = begin + of_area + kApart + of_agent + kApart};
  std::vector<MappedRange> agents = ranges_of(agent.parts_at(at.agent, -1)), areas{{begin, shared::kMailboxBytes}};
  for (const SystemCall& call : agent.data_calls(at.agent))
    agents.push_back({Addr{call.arguments[0]}, call.arguments[1]});
  for (const trace::MapStep& step : area.map_steps(part))
    areas.push_back({begin + shared::kMailboxBytes + step.offset, step.length});
  const bool is_whole = fill(agents, at.agent, at.agent + of_agent) && fill(areas, begin, begin + of_area);
  return is_whole ? std::optional(at) : std::nullopt;
}

// Agent, area and handlers, each into its reservation, in one list of calls.
Status map_all_at_once(Target& target, const NewPlaces& at, const AgentImage& agent, const trace::Area& area,
                       std::size_t part, EarlyHandlers& handlers, std::span<const SystemCall> more = {}) {
  const auto file = agent.same_file();
  if (!file) return file.error();
  const AreaFiles of_area(at.area, area, part);
  const std::array files{agent.parts_at(at.agent, file->get()), of_area.plan, of_area.live};
  std::vector<SystemCall> others = agent.data_calls(at.agent);
  for (const SystemCall& call : mailbox_calls(at.area)) others.push_back(call);
  others.push_back(keep_from_core_files(of_area.live));
  const auto installing = handlers.calls(agent.mapped_at(at.agent));
  if (!installing) return installing.error();
  others.insert(others.end(), installing->begin(), installing->end());
  others.insert(others.end(), more.begin(), more.end());
  RETURN_IF_ERROR(map_at_once(target, at.scratch, at.scratch_bytes, files, others));
  return agent.write_zeros(target, at.agent);
}

// The same with the block, at places that need no reservation. False: there are none, and nothing is mapped.
bool map_freely(PtraceTarget& target, NewPlaces& at, const AgentImage& agent, const trace::Area& area, std::size_t part,
                const BlockNeeds& needs, EarlyHandlers& handlers) {
  const auto found = free_places(target, agent, area, part, needs);
  if (!found) return false;
  const std::uint64_t of_block = Block::bytes_for(needs);
  const SystemCall block =
      target::map_call(found->block, of_block, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE);
  at.agent = found->agent, at.area = found->area, at.block = found->block;
  if (map_all_at_once(target, at, agent, area, part, handlers, {&block, 1})) return true;
  const std::uint64_t all = at.block + of_block - at.area;
  if (const auto maps = target.maps(); !maps || !is_free(*maps, at.area, all)) unmap(target, at.area, all);
  return false;
}

// One after the other, where it cannot be done at once.
Status map_all(PtraceTarget& target, const NewPlaces& at, const AgentImage& agent, const trace::Area& area,
               std::size_t part, std::optional<EarlyHandlers>& handlers) {
  Status done = map_all_at_once(target, at, agent, area, part, *handlers);
  if (done || done.error().code == Code::killed) return done;
  handlers.emplace(target, at.scratch + at.scratch_bytes);  // gives back what the first have set
  RETURN_IF_ERROR(agent.map_at(target, at.scratch, at.scratch_bytes, at.agent));
  return map_area(target, at.area, at.scratch, area, part);
}

Status map_with_reservations(PtraceTarget& target, NewPlaces& at, const AgentImage& agent, const trace::Area& area,
                             std::size_t part, const BlockNeeds& needs, MappedMemory& mapped,
                             std::optional<EarlyHandlers>& handlers) {
  handlers.emplace(target, at.scratch + at.scratch_bytes);
  const MappedMemory::Wanted wanted_agent{agent.span(), PROT_NONE, 0, "address space for the agent"};
  const auto places = mapped.map_all(std::array{wanted_agent, wanted_area(area), wanted_block(needs)});
  if (!places) return places.error();
  at.agent = places->at(0), at.area = places->at(1), at.block = places->at(2);
  return map_all(target, at, agent, area, part, handlers);
}

// What map_freely has mapped; unmapped again unless it is kept.
class FreeMemory {
 public:
  explicit FreeMemory(PtraceTarget& target) : target_(target) {}
  FreeMemory(const FreeMemory&) = delete;
  FreeMemory& operator=(const FreeMemory&) = delete;
  ~FreeMemory() {
    if (bytes_ != 0) unmap(target_, begin_, bytes_);
  }
  void has(Addr begin, std::uint64_t bytes) { begin_ = begin, bytes_ = bytes; }
  void keep() { bytes_ = 0; }

 private:
  PtraceTarget& target_;
  Addr begin_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

bool is_data(Target& target, Addr at) {
  const auto maps = target.maps();
  return maps && is_data(*maps, at);
}

Result<Addr> place_area(Target& target, const trace::Area& area, std::size_t part) {
  MappedMemory scratch_memory(target), mapped(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch;
  RETURN_IF_ERROR(make_room(target, area, part));
  const auto place = mapped.map_all(std::array{wanted_area(area)});
  if (!place) return place.error();
  RETURN_IF_ERROR(map_area(target, place->front(), *scratch, area, part));
  mapped.keep();
  return place->front() + shared::kMailboxBytes;
}

Status replace_part(Target& target, Addr base, const trace::Area& area, std::size_t part) {
  RETURN_IF_ERROR(keep_memory_free(target.pid(), area.live(part)));
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  return map_live_part(target, *scratch, AreaFiles(base - shared::kMailboxBytes, area, part).live);
}

Status cover_part(Target& target, Addr base, const trace::Area& area) {
  const std::uint64_t begin = area.map_steps().at(1).offset;
  auto made = target::map_memory(target, base + begin, area.span_bytes() - begin, kReadWrite,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0,
                                 "memory in place of its records");
  return made ? ok() : Status(made.error());
}

Result<Block> place_block(Target& target, const MappedAgent& agent, const trace::Area& area, const BlockNeeds& needs,
                          std::uint64_t blocked, std::size_t part) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  return place_block_by(target, *scratch, agent, area, needs, blocked, part);
}

Result<Block> install_agent(Target& target, const MappedAgent& agent, const trace::Area& area, const BlockNeeds& needs,
                            std::uint64_t blocked, std::size_t part) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  return install_agent_by(target, *scratch, agent, area, needs, blocked, part);
}

Status uninstall_handlers(Target& target, Block& block) {
  MappedMemory scratch_memory(target);
  auto scratch = scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  AllDispositions all{};
  for (std::uint32_t i = 0; i < shared::kAppSignals; ++i) {
    const shared::AppAction& before = block.head().actions[i];
    all[i].now = {before.handler, before.flags, before.restorer, before.mask};
  }
  return set_dispositions(target, *scratch, all);
}

Result<Block> load_agent(PtraceTarget& target, const AgentImage& agent, const trace::Area& area,
                         const BlockNeeds& needs, std::size_t part) {
  MappedMemory scratch_memory(target), mapped(target);
  const auto room = target.scratch();
  auto scratch = room ? Result<Addr>(*room) : scratch_memory.map_scratch();
  if (!scratch) return scratch.error();
  RETURN_IF_ERROR(make_room(target, area, part));
  NewPlaces at{.scratch = *scratch, .scratch_bytes = PtraceTarget::kScratchBytes - EarlyHandlers::kBytes};
  FreeMemory free(target);
  std::optional<EarlyHandlers> handlers(std::in_place, target, at.scratch + at.scratch_bytes);
  if (map_freely(target, at, agent, area, part, needs, *handlers))
    free.has(at.area, at.block + Block::bytes_for(needs) - at.area);
  else
    RETURN_IF_ERROR(map_with_reservations(target, at, agent, area, part, needs, mapped, handlers));
  const std::uint64_t blocked = target.signal_mask();
  const MappedAgent there = agent.mapped_at(at.agent);
  auto block = fill_block(target, {at.area, at.block}, there, needs, blocked);
  if (!block) return block;
  RETURN_IF_ERROR(begin_work(target, there, *scratch, *block, *handlers));
  mapped.keep(), free.keep();
  // A breakpoint under a blocked SIGTRAP kills the process. The virtual mask keeps what the program's parent had blocked.
  RETURN_IF_ERROR(target.set_signal_mask(blocked & ~shared::kOurSignals));
  return block;
}

}  // namespace uprobe::control
