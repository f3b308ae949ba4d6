// SPDX-License-Identifier: MIT
// A handler's frame is recognized by what the kernel writes there (arch/code/return_frame.h): the address of the restorer, and
// after it a plausible ucontext.
#include "engine/attach/running_handlers.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "arch/code/return_frame.h"
#include "arch/shared/signal_return.h"
#include "engine/attach/attached_threads.h"
#include "engine/process/processes.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {
namespace {

using target::StoppedProcess;
using Thread = StoppedProcess::Thread;

constexpr std::uint64_t kMostStack = 1 << 18;  // the part that is searched
constexpr std::size_t kMostFrames = 16;
using Frame = arch::HandlerStack;

class Handlers {
 public:
  Handlers(StoppedProcess& process, Addr visible, Block& block) : process_(process), block_(block), visible_(visible) {}

  Status lead_back(const std::vector<Thread>& threads) {
    const auto maps = process_.maps();
    if (!maps) return maps.error();
    for (const Thread& thread : threads) {
      arch::ThreadRegisters registers = thread.registers;
      const Place place{arch::instruction_pointer(registers), arch::stack_pointer(registers)};
      RETURN_IF_ERROR(follow(*maps, place));
      const std::uint64_t goes_on = led(place.ip);
      if (goes_on == place.ip) continue;
      arch::set_instruction_pointer(registers, goes_on);
      RETURN_IF_ERROR(process_.set_registers(thread.tid, registers));
    }
    return ok();
  }

 private:
  // What a thread executes, or what a handler has interrupted.
  struct Place {
    std::uint64_t ip, sp;
  };

  // Goes from one frame to the code that it has interrupted, which may have another stack.
  Status follow(const std::vector<target::Mapping>& maps, Place place) {
    for (std::size_t frames = 0; frames < kMostFrames; ++frames) {
      const target::Mapping* stack = target::mapping_at(maps, Addr{place.sp});
      if (stack == nullptr || !stack->readable || !stack->writable) return ok();
      Frame frame{};
      const Addr at = find(begin_of_frames(place), std::min(stack->end, Addr{place.sp} + kMostStack), frame);
      if (!at) return ok();
      const Place interrupted{frame.context.ip, frame.context.sp};
      RETURN_IF_ERROR(take(at, frame));
      const bool is_above = interrupted.sp > at.value && Addr{interrupted.sp} < stack->end;
      const std::uint64_t end = at.value + sizeof frame;
      place = is_above && !restorer_at(interrupted.ip) ? Place{0, end} : interrupted;
    }
    return ok();
  }

  // A handler that has returned has left the first word of its frame, which led to the restorer.
  Addr begin_of_frames(const Place& place) {
    return Addr{place.sp / 8 * 8 - (restorer_at(place.ip) ? sizeof Frame::restorer : 0)};
  }

  Addr find(Addr begin, Addr end, Frame& frame) {
    std::vector<std::uint8_t> bytes(end - begin);
    if (bytes.size() < sizeof frame || !process_.read(begin, bytes.data(), bytes.size())) return {};
    for (std::size_t i = 0; i + sizeof frame <= bytes.size(); i += 8) {
      std::memcpy(&frame, &bytes[i], sizeof frame);
      if (is_frame(begin + i, frame)) return begin + i;
    }
    return {};
  }

  bool is_frame(Addr at, const Frame& frame) {
    return arch::is_plausible(frame.context, at.value) &&
           (frame.restorer == visible_.value || is_restorer(frame.restorer));
  }

  bool is_restorer(std::uint64_t at) {
    std::uint8_t code[sizeof shared::kSignalReturn] = {};
    return process_.read(Addr{at}, code, sizeof code) && std::equal(code, std::end(code), shared::kSignalReturn);
  }

  // The restorer that an instruction belongs to.
  std::optional<std::uint64_t> restorer_at(std::uint64_t ip) {
    for (const std::uint64_t begin : {ip, ip - shared::kSignalReturnCall})
      if (begin == visible_.value || is_restorer(begin)) return begin;
    return std::nullopt;
  }

  bool is_seen(std::uint64_t restorer) const {
    if (restorer == visible_.value) return true;
    const auto known = block_.find(Addr{restorer + shared::kSignalReturnCall});
    return known && block_.points()[*known].state == static_cast<std::uint32_t>(shared::PointState::armed);
  }

  // The same instruction of the visible restorer, for one of a restorer whose call the agent does not see.
  std::uint64_t led(std::uint64_t ip) {
    const auto restorer = restorer_at(ip);
    return restorer && !is_seen(*restorer) ? visible_.value + (ip - *restorer) : ip;
  }

  Status take(Addr at, Frame frame) {
    const bool is_seen_frame = is_seen(frame.restorer);
    const std::uint64_t goes_on = led(frame.context.ip);
    if (is_seen_frame && goes_on == frame.context.ip) return ok();
    block_.head().flags |= shared::kBlockLedBack;
    const Addr flags = block_.address() + offsetof(shared::ProcessBlock, flags);
    RETURN_IF_ERROR(process_.write(flags, &block_.head().flags, sizeof block_.head().flags));
    if (!is_seen_frame) {
      arch::kept_restorer(frame) = frame.restorer;
      frame.restorer = visible_.value;
    }
    frame.context.ip = goes_on;
    return process_.write(at, &frame, sizeof frame);
  }

  StoppedProcess& process_;
  Block& block_;
  const Addr visible_;
};

}  // namespace

// A handler blocks at least its own signal, unless it was installed with SA_NODEFER: then the agent relies on nothing that may
// be out of date.
Status lead_handlers_back(StoppedProcess& process, Block& block) {
  if ((block.head().flags & shared::kBlockLeadsBack) == 0 || block.head().tid_offset == 0) return ok();
  const std::vector<shared::ThreadEntry> entries = thread_entries(process, block.address(), block.head());
  std::vector<Thread> threads;
  for (const Thread& thread : process.threads())
    if ((entry_in(entries, arch::thread_pointer(thread.registers)).blocked & shared::kOurSignals) != 0)
      threads.push_back(thread);
  const auto found = threads.empty() ? Result<FoundAgent>(Error{}) : find_agent(process.pid());
  if (!found) return ok();
  const Addr visible = found->agent.place(found->agent.header.visible_restorer);
  return Handlers(process, visible, block).lead_back(threads);
}

}  // namespace uprobe::control
