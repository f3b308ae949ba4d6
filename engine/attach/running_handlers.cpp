// SPDX-License-Identifier: MIT
// A handler's frame is recognized by what the kernel writes there (arch/code/return_frame.h): the address of the restorer, and
// after it a plausible ucontext.
#include "engine/attach/running_handlers.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "arch/code/return_frame.h"
#include "arch/shared/signal_return.h"
#include "engine/attach/attached_threads.h"
#include "engine/process/processes.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {
namespace {

using target::StoppedProcess;

constexpr std::uint64_t kMostStack = 1 << 18;  // the part that is searched
constexpr std::size_t kMostFrames = 16;
using Frame = arch::HandlerStack;

class Handlers {
 public:
  Handlers(StoppedProcess& process, Addr visible, Block& block) : process_(process), block_(block), visible_(visible) {}

  Status lead_back(const std::vector<std::uint64_t>& stacks) {
    const auto maps = process_.maps();
    if (!maps) return maps.error();
    for (const std::uint64_t sp : stacks) RETURN_IF_ERROR(follow(*maps, sp));
    return ok();
  }

 private:
  // Goes from one frame to the code that it has interrupted, which may have another stack.
  Status follow(const std::vector<target::Mapping>& maps, std::uint64_t sp) {
    for (std::size_t frames = 0; frames < kMostFrames; ++frames) {
      const target::Mapping* stack = target::mapping_at(maps, Addr{sp});
      if (stack == nullptr || !stack->readable || !stack->writable) return ok();
      Frame frame{};
      const Addr at = find(Addr{sp / 8 * 8}, std::min(stack->end, Addr{sp} + kMostStack), frame);
      if (!at) return ok();
      RETURN_IF_ERROR(take(at, frame));
      const bool is_above = frame.context.sp > at.value && Addr{frame.context.sp} < stack->end;
      sp = is_above ? at.value + sizeof frame : frame.context.sp;
    }
    return ok();
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
    if (!arch::is_plausible(frame.context, at.value)) return false;
    std::uint8_t code[sizeof shared::kSignalReturn] = {};
    return frame.restorer == visible_.value || (process_.read(Addr{frame.restorer}, code, sizeof code) &&
                                                std::equal(code, std::end(code), shared::kSignalReturn));
  }

  Status take(Addr at, Frame frame) {
    const auto known = block_.find(Addr{frame.restorer + shared::kSignalReturnCall});
    const bool is_seen =
        frame.restorer == visible_.value ||
        (known && block_.points()[*known].state == static_cast<std::uint32_t>(shared::PointState::armed));
    if (is_seen) return ok();
    block_.head().flags |= shared::kBlockLedBack;
    const Addr flags = block_.address() + offsetof(shared::ProcessBlock, flags);
    RETURN_IF_ERROR(process_.write(flags, &block_.head().flags, sizeof block_.head().flags));
    arch::kept_restorer(frame) = frame.restorer;
    frame.restorer = visible_.value;
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
  std::vector<std::uint64_t> stacks;
  for (const StoppedProcess::Thread& thread : process.threads())
    if ((entry_of(process, block, arch::thread_pointer(thread.registers)).blocked & shared::kOurSignals) != 0)
      stacks.push_back(arch::stack_pointer(thread.registers));
  const auto found = stacks.empty() ? Result<FoundAgent>(Error{}) : find_agent(process.pid());
  if (!found) return ok();
  const Addr visible = found->agent.place(found->agent.header.visible_restorer);
  return Handlers(process, visible, block).lead_back(stacks);
}

}  // namespace uprobe::control
