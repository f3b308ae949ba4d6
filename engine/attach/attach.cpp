// SPDX-License-Identifier: MIT
#include "engine/attach/attach.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/attach/attached_threads.h"
#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/roles.h"
#include "engine/inject/descriptor_room.h"
#include "engine/inject/load.h"
#include "engine/process/task_number.h"
#include "engine/target/attachable.h"

namespace uprobe::control {
namespace {

using shared::AttachOrder;
using shared::AttachStep;
using target::StoppedProcess;

// Later sessions of the process need room for their probes as well.
constexpr std::size_t kLeastPoints = 4096;

// ---- another session

// The area of the agent's session in a process; 0: there is none.
Addr area_of(const target::ProcessFiles& files, const FoundAgent& found) {
  std::uint64_t area = 0;
  constexpr std::uint64_t kAreaAt = offsetof(shared::ProcessBlock, sessions) + offsetof(shared::SessionLink, area);
  return files.read(found.block + kAreaAt, &area, sizeof area) ? Addr{area} : Addr{};
}

// The inode of the session.
ino_t session_of(pid_t pid, const FoundAgent& found) {
  auto files = target::ProcessFiles::open(pid);
  const auto maps = files ? files->maps() : Result<std::vector<target::Mapping>>(Error{});
  const std::uint64_t area = maps ? area_of(*files, found).value : 0;
  if (area == 0) return 0;
  const auto mapped =
      std::find_if(maps->begin(), maps->end(), [area](const target::Mapping& m) { return m.begin.value == area; });
  return mapped == maps->end() ? 0 : mapped->inode;
}

// Whether the agent's code is mapped, at work or not yet: a tool may have been killed before it was.
bool has_agent_code(pid_t pid) {
  const auto files = target::ProcessFiles::open(pid);
  const auto maps = files ? files->maps() : Result<std::vector<target::Mapping>>(Error{});
  return maps && std::any_of(maps->begin(), maps->end(), [](const target::Mapping& m) {
           return m.executable && m.path.find("libuprobe.so") != std::string::npos;
         });
}

// The tool that has a session: it maps the area and has no agent, unless it is traced itself. (A process that calls itself a proxy
// to hide is no tool.) This user's processes come first, because another user's target may look like a tool.
pid_t tool_of(ino_t session) {
  pid_t others = 0;
  for (const pid_t pid : processes_mapping(session)) {
    if (is_proxy(pid) || (has_agent_code(pid) && !is_tool_of(pid, session))) continue;
    struct stat owner {};
    if (::stat(procfs::path(pid).c_str(), &owner) == 0 && owner.st_uid == ::geteuid()) return pid;
    if (others == 0) others = pid;
  }
  return others;
}

// Whether an invisible tool lives: another user's, or one in another PID namespace.
bool has_unseen_tool(pid_t pid, const FoundAgent& found) {
  constexpr useconds_t kLook = 25'000;
  auto files = target::ProcessFiles::open(pid);
  const Addr area = files ? area_of(*files, found) : Addr{};
  const auto heartbeat = [&](std::uint32_t& to) {
    return area && files->read(area + offsetof(shared::AreaHeader, tool_heartbeat), &to, sizeof to);
  };
  std::uint32_t first = 0, now = 0;
  if (!heartbeat(first)) return false;
  for (int looks = 0; looks < 40; ++looks) {
    ::usleep(kLook);
    if (!heartbeat(now)) return false;
    if (now != first) return true;
  }
  return false;
}

Error occupied(const std::string& whose, Retry retry) {
  return Error{.code = Code::refused, .text = "is traced by another uprobe-run, " + whose, .retry = retry};
}

// Removes what a tool that was killed together with its launcher has left. The process first, because its children may be gone
// by then.
Status take_away(pid_t pid, ino_t session) {
  Status given = give_back(pid);
  for (const pid_t other : processes_mapping(session))
    if (!target::borrows_memory(other)) static_cast<void>(give_back(other));
  return given;
}

// ---- facts that the agent would have seen

// The agent's signals that a signalfd of the program names.
std::uint32_t by_descriptor(pid_t pid) {
  std::uint64_t named = 0;
  constexpr std::size_t kMostText = 65536;  // enough for a signalfd; the text of an epoll descriptor may be endless
  const std::string folder = procfs::path(pid, "fdinfo");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const auto text =
        entry->d_name[0] == '.' ? Result<std::string>(Error{}) : read_file(folder + "/" + entry->d_name, kMostText);
    const std::size_t at = text ? text->find("sigmask:\t") : std::string::npos;
    if (at != std::string::npos) named |= std::strtoull(text->c_str() + at + 9, nullptr, 16);
  }
  return static_cast<std::uint32_t>(named & shared::kOurSignals);
}

// The same as learn_layout in preload/thread.cpp.
std::int32_t tid_offset_of(StoppedProcess& process) {
  for (const StoppedProcess::Thread& thread : process.threads()) {
    for (const shared::ControlBlockLayout& layout : shared::kControlBlocks) {
      const std::uint64_t at = arch::thread_pointer(thread.registers) + static_cast<std::uint64_t>(layout.list);
      std::uint64_t list = 0;
      if (arch::thread_pointer(thread.registers) != 0 && process.read(Addr{at}, &list, sizeof list) && list == at)
        return layout.tid;
    }
  }
  return 0;
}

Status check_threads(StoppedProcess& process, std::int32_t tid_offset) {
  for (const StoppedProcess::Thread& thread : process.threads())
    if ((thread.mask & shared::kOurSignals) != 0 && !has_control_block(process, thread, tid_offset))
      return Error{.code = Code::refused,
                   .text = "thread " + std::to_string(thread.tid) +
                           " blocks SIGTRAP, SIGSEGV or SIGBUS and cannot be identified by the agent"};
  return ok();
}

// ---- the agent

Result<MappedAgent> map_agent(StoppedProcess& process, const AgentImage& image) {
  MappedMemory memory(process);
  auto scratch = memory.map_scratch();
  if (!scratch) return scratch.error();
  auto base = image.map_into(process, *scratch, kScratchBytes);
  if (!base) return base.error();
  return image.mapped_at(*base);
}

// Makes the visible restorer fault again (see give_back).
Status protect_restorer(StoppedProcess& process, const MappedAgent& agent, int protection) {
  const std::uint64_t page = agent.place(agent.header.visible_restorer).value & ~std::uint64_t{4095};
  auto done = process.system_call(SYS_mprotect, {page, 4096, static_cast<std::uint64_t>(protection), 0, 0, 0});
  if (!done) return done.error();
  return *done == 0 ? ok() : Status(target::failed_in_target("mprotect", *done));
}

// A tool may have been killed after it mapped its area and before the agent knew of it.
Status unmap_forgotten_areas(StoppedProcess& process) {
  const auto maps = process.maps();
  if (!maps) return maps.error();
  for (const target::Mapping& m : *maps) {
    if (!is_session_area(m) || is_tool_of(process.pid(), m.inode)) continue;
    const AreaRange range = area_range(*maps, m.begin);
    auto done = process.system_call(SYS_munmap, {range.begin.value, range.end - range.begin, 0, 0, 0, 0});
    if (!done) return done.error();
  }
  return ok();
}

// A block that was given back: no thread is in the agent, so all of it may be written again.
Result<Block> reuse_block(StoppedProcess& process, const FoundAgent& found, const trace::Area& area, std::size_t part) {
  auto block = Block::read(process, found.block);
  if (!block) return block;
  shared::ProcessBlock& head = block->head();
  if ((head.flags & shared::kBlockLedBack) != 0) RETURN_IF_ERROR(protect_restorer(process, found.agent, PROT_READ));
  auto place = place_area(process, area, part);
  if (!place) return place.error();
  head.sessions[0].area = place->value;
  head.session_count = 1;
  name_process(head, process.pid());
  head.left = head.unbound = head.quiet_hooks = 0;
  head.start_blocked = 0;
  head.repeat_count = head.deferred_count = 0;
  std::fill(std::begin(head.pending), std::end(head.pending), shared::PendingSignal{});
  std::fill(std::begin(head.held), std::end(head.held), shared::DeferredSignal{});
  std::fill(std::begin(head.repeats), std::end(head.repeats), shared::Repeat{});
  head.tool_gone = 0;
  RETURN_IF_ERROR(block->renew(process));
  RETURN_IF_ERROR(block->begin_anew(process));
  return block;
}

Result<Block> make_block(StoppedProcess& process, const MappedAgent& agent, const trace::Area& area,
                         const BlockNeeds& needs, std::size_t part) {
  return place_block(process, agent, area, {std::max(needs.points, kLeastPoints), needs.unwinds}, 0, part);
}

Status tell_agent(StoppedProcess& process, Block& block, std::int32_t tid_offset, const FilterVerdict& filters) {
  constexpr std::uint32_t kQuiet = shared::kBlockFiltered | shared::kBlockFilteredLater;
  std::uint32_t& flags = block.head().flags;
  flags = (flags & ~kQuiet) | (filters.forbidden.empty() ? 0 : kQuiet);
  flags |= shared::kBlockAttached | shared::kBlockFiltersKnown;
  block.head().tid_offset = tid_offset;
  block.head().by_descriptor = by_descriptor(process.pid());
  return block.write_agent_part(process);
}

// What the agent is to believe that the program has blocked. Without a known libc (Go) it does not see handlers return, which
// changes the mask: of a thread that is in a handler it would believe for ever that a fault under that mask kills.
std::uint64_t believed_mask(const StoppedProcess::Thread& thread, std::int32_t tid_offset) {
  return tid_offset != 0 ? thread.mask & shared::kOurSignals : 0;
}

// A thread's mask is opened after the agent knows the thread: a breakpoint under a blocked SIGTRAP kills the process.
Status take_threads(StoppedProcess& process, AgentCalls& calls, std::int32_t tid_offset) {
  const std::vector<StoppedProcess::Thread> threads = process.threads();
  for (const StoppedProcess::Thread& thread : threads) {
    AttachOrder order{.step = static_cast<std::uint32_t>(AttachStep::take_thread),
                      .has_control_block = has_control_block(process, thread, tid_offset) ? 1U : 0U,
                      .blocked = believed_mask(thread, tid_offset),
                      .stack_pointer = 0,
                      .state = shared::kOrderGiven,
                      .reserved = 0};
    if (order.has_control_block == 0) continue;
    RETURN_IF_ERROR(calls.ask_thread(thread, order));
    RETURN_IF_ERROR(process.bring_home());
    RETURN_IF_ERROR(process.set_mask(thread.tid, thread.mask & ~shared::kOurSignals));
  }
  return ok();
}

bool is_attached_session_of(pid_t launcher, pid_t pid, Addr area) {
  const auto files = target::ProcessFiles::open(pid);
  shared::AreaHeader header{};
  return files && files->read(area, &header, sizeof header) && (header.mode & shared::kModeAttached) != 0 &&
         header.known_as == static_cast<std::uint32_t>(launcher);
}

Status forget_areas(pid_t pid) {
  auto process = StoppedProcess::hold(pid);
  return process ? unmap_forgotten_areas(**process) : Status(process.error());
}

}  // namespace

bool is_in_session(pid_t pid, const Result<FoundAgent>& found) { return found && session_of(pid, *found) != 0; }

pid_t owner_of(pid_t pid) {
  const auto found = find_agent(pid);
  const ino_t session = found ? session_of(pid, *found) : 0;
  return session == 0 ? 0 : tool_of(session);
}

pid_t known_as(pid_t tool) {
  const pid_t launcher = launcher_of(tool);
  return launcher != 0 ? launcher : tool;
}

Status make_free(pid_t pid, ino_t ours) {
  const auto found = find_agent(pid);
  if (!found) return found.error().code == Code::not_found ? ok() : Status(found.error());
  const ino_t session = session_of(pid, *found);
  if (session == 0) return ok();
  if (session == ours)
    return Error{.code = Code::refused, .text = "is already in this session", .retry = Retry::needless};
  const pid_t tool = tool_of(session);
  if (tool != 0) return occupied("process " + std::to_string(known_as(tool)), Retry::join);
  if (!has_unseen_tool(pid, *found)) return take_away(pid, session);
  Error unseen = occupied("of another user or in another namespace", Retry::never);
  unseen.help = "join or end that one as its user and in its namespace";
  return unseen;
}

// If a tool was killed before the agent knew of its session, the process has the area alone.
Status free_all_of(pid_t launcher) {
  Status all = ok();
  for (const auto& [pid, session, area] : processes_in_sessions()) {
    if (target::borrows_memory(pid) || !is_attached_session_of(launcher, pid, area) || tool_of(session) != 0) continue;
    const auto found = find_agent(pid);
    const bool is_known = found && session_of(pid, *found) != 0;
    const Status taken = is_known ? take_away(pid, session) : forget_areas(pid);
    if (all && !taken && has_session(pid)) all = taken;
  }
  return all;
}

Result<Block> attach_agent(StoppedProcess& process, const Result<FoundAgent>& found, const FilterVerdict& filters,
                           const AgentImage& image, const trace::Area& area, const BlockNeeds& needs,
                           std::size_t part) {
  const std::int32_t tid_offset = tid_offset_of(process);
  RETURN_IF_ERROR(check_threads(process, tid_offset));
  if (!found && found.error().code != Code::not_found) return found.error();
  RETURN_IF_ERROR(unmap_forgotten_areas(process));
  const DescriptorRoom room(process.pid());
  const auto agent = found ? Result<MappedAgent>(found->agent) : map_agent(process, image);
  if (!agent) return agent.error();
  auto block = found ? reuse_block(process, *found, area, part) : make_block(process, *agent, area, needs, part);
  if (!block) return block;
  RETURN_IF_ERROR(tell_agent(process, *block, tid_offset, filters));
  AgentCalls calls(process, *agent);
  RETURN_IF_ERROR(calls.ask_process(AttachStep::take_process));
  RETURN_IF_ERROR(take_threads(process, calls, tid_offset));
  return block;
}

}  // namespace uprobe::control
