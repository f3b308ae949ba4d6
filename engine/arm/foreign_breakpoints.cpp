// SPDX-License-Identifier: MIT
#include "engine/arm/foreign_breakpoints.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/procfs.h"
#include "engine/base/text.h"
#include "engine/patch/patch.h"
#include "engine/process/processes.h"
#include "engine/process/text_view.h"
#include "engine/shared/future_jump.h"
#include "engine/target/process_list.h"

namespace uprobe::control {
namespace {

using namespace std::chrono_literals;
using shared::kBreakpoint;

// The patch that repairs a point; size 0: none is needed.
Patch mended(TextView& text, const shared::Point& point, const shared::Undo& undo) {
  if (point.state != static_cast<std::uint32_t>(shared::PointState::armed) || undo.state != 1) return {.size = 0};
  if (shared::is_long_jump(point)) return {.size = 0};
  Patch patch = patch_back(point, undo);
  const auto armed = patch.before, original = patch.after;
  if (!text.read(patch.at, patch.before.data(), patch.size) || patch.before == armed) return {.size = 0};
  patch.after[0] = kBreakpoint;
  const bool tail_armed = std::equal(armed.begin() + 1, armed.end(), patch.before.begin() + 1);
  const bool on_jump = patch.size > 1 && patch.before[0] == kBreakpoint && tail_armed;
  return on_jump || patch.before == original ? patch : Patch{.size = 0};
}

bool is_future(TextView& text, const shared::Point& point, const shared::Undo& undo) {
  std::uint8_t now[shared::kJumpBytes] = {};
  return shared::is_armed_jump(point) && text.read(Addr{point.address}, now, sizeof now) &&
         shared::is_future_jump(point, undo, now);
}

std::string note_of(const target::Mapping& m, Addr at) {
  return m.path + ": " + hex(m.offset + (at - m.begin)) +
         ": a foreign breakpoint stood there for a while; hits during that time are not counted";
}

}  // namespace

// Most looks find nothing, using the cached block. If there is something, the block is read again, since the agent may have
// given code back, and so is the text: a breakpoint is a debugger's, unless it is found both before and after a check that the
// process is not traced.
Status Armer::mend(target::Target& target, Addr at) {
  RETURN_IF_ERROR(mend_semaphores(state_, target, at));
  auto block = state_.known.take(target, at);
  if (!block) return block.error();
  std::vector<std::uint32_t> suspects, future;
  TextView text(target);
  for (std::uint32_t i = 0; i < block->points().size(); ++i) {
    if (mended(text, block->points()[i], block->undo()[i]).size != 0) suspects.push_back(i);
    if (!state_.awaited.has(target.pid(), Addr{block->points()[i].address})) continue;
    if (is_future(text, block->points()[i], block->undo()[i])) future.push_back(i);
  }
  state_.known.keep(block.take());
  if (suspects.empty()) return future_.step(target, at, future);
  future_.forget(target.pid());
  state_.awaited.forget(target.pid());
  if (procfs::tracer_of(target.pid()) != 0) return ok();
  const auto maps = target.maps();
  auto now = state_.known.read(target, at);
  if (!maps || !now || now->head().left != 0 || is_being_changed(now->head())) return ok();
  std::vector<Patch> patches;
  TextView again(target);
  for (const std::uint32_t i : suspects) {
    const shared::Point& point = now->points()[i];
    const Patch patch = mended(again, point, now->undo()[i]);
    const target::Mapping* m = target::mapping_at(*maps, patch.at);
    shared::Point last{};
    if (patch.size == 0 || m == nullptr || !can_be_armed(*m) || m->begin.value - m->offset != point.file_bias) continue;
    if (!target.read(now->point_at(i), &last, sizeof last) || last.state != point.state) continue;
    patches.push_back(patch);
    state_.report.notes.insert(note_of(*m, patch.at));
  }
  if (patches.empty()) return ok();
  ProcessSerializer serializer(target.pid());
  static_cast<void>(patch_running(target, patches, serializer));
  return ok();
}

void ForeignBreakpoints::step() {
  const auto begin = std::chrono::steady_clock::now();
  if (begin < next_) return;
  find_children();
  std::erase_if(known_, [this](pid_t pid) { return !look(pid); });
  const auto end = std::chrono::steady_clock::now();
  next_ = end + std::max<std::chrono::steady_clock::duration>(50ms, 50 * (end - begin - armer_.take_look_time()));
}

void ForeignBreakpoints::find_children() {
  std::vector<pid_t> open(known_.begin(), known_.end());
  while (!open.empty()) {
    const pid_t pid = open.back();
    open.pop_back();
    for (const pid_t child : target::children_of(pid))
      if (known_.insert(child).second) open.push_back(child);
  }
}

// False where there will never be anything to see.
bool ForeignBreakpoints::look(pid_t pid) {
  auto files = target::ProcessFiles::open(pid);
  if (!files) return false;
  target::RunningTarget target(files.take());
  return std::any_of(blocks_.begin(), blocks_.end(), [&](Addr block) { return bool(armer_.mend(target, block)); });
}

}  // namespace uprobe::control
