// SPDX-License-Identifier: MIT
#include "engine/patch/disarm.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/patch/batched_patch.h"
#include "engine/patch/patch.h"
#include "engine/patch/semaphores.h"
#include "engine/process/processes.h"
#include "engine/process/text_view.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {
namespace {

using shared::kBreakpoint;

// Whether the code that was probed is still there, by the bytes after its first or by the file that is mapped there.
bool is_there(TextView& text, const std::vector<target::Mapping>& maps, const shared::Point& point,
              const shared::Undo& undo) {
  std::uint8_t after[shared::kMostFollowing] = {};
  if (!text.read(Addr{point.address + 1}, after, point.following_bytes) || shared::is_as_before(point, undo, after))
    return true;
  const target::Mapping* m = target::mapping_at(maps, Addr{point.address});
  return m != nullptr && m->is_file() && m->begin.value - m->offset == point.file_bias;
}

// The state of the text at a point.
enum class Standing {
  ours,  // the whole armed text, or a breakpoint where a jump was to be
  // A breakpoint, and after it bytes of both: a tool was killed, or the parent forked, in the middle of a change. Or the
  // breakpoint is a debugger's, which will restore the jump's first byte later.
  halfway,
  spoilt,  // the jump, with a foreign breakpoint in its middle
  other,
};

Standing standing_of(const Patch& patch, const shared::ArmedText& armed) {
  bool all_armed = true, tail_original = true, tail_ours = true, spoilt = true;
  for (std::uint32_t i = 0; i < armed.length; ++i) {
    const std::uint8_t now = patch.before[i];
    const bool is_armed = now == armed.bytes[i], is_original = now == patch.after[i];
    all_armed = all_armed && is_armed;
    tail_original = tail_original && (i == 0 || is_original);
    tail_ours = tail_ours && (i == 0 || is_armed || is_original);
    spoilt = spoilt && (is_armed || now == kBreakpoint);
  }
  const bool breakpoint = patch.before[0] == kBreakpoint;
  if (all_armed || (breakpoint && tail_original)) return Standing::ours;
  if (breakpoint && tail_ours) return Standing::halfway;
  return spoilt ? Standing::spoilt : Standing::other;
}

// Frames that return by a stub may live as long as the program. Unwinding through them needs the internal points at
// _dl_find_object and dl_iterate_phdr, and these need the other internal points.
bool has_stubs(target::Target& target, const Block& block) {
  const auto is_asked = [](const shared::Point& point) {
    const auto role = static_cast<shared::PointRole>(point.role);
    return role == shared::PointRole::find_object || role == shared::PointRole::iterate_objects;
  };
  const Addr flags = block.address() + offsetof(shared::ProcessBlock, flags);
  std::uint32_t now = 0;
  return std::any_of(block.points().begin(), block.points().end(), is_asked) && target.read(flags, &now, sizeof now) &&
         (now & shared::kBlockHasStubs) != 0;
}

class Disarming {
 public:
  Disarming(target::Target& target, Block& block, const std::vector<target::Mapping>& maps)
      : target_(target), block_(block), maps_(maps), traced_(procfs::tracer_of(target.pid()) != 0) {}

  Status run(Serializer& serializer) {
    RETURN_IF_ERROR(count_semaphores(target_, block_, maps_, {}));
    TextView text(target_);
    for (std::uint32_t i = 0; i < block_.points().size(); ++i) consider(text, i);
    RETURN_IF_ERROR(block_.set_states(target_, gone_, shared::PointState::unmapped));
    RETURN_IF_ERROR(restore(probes_, serializer));
    if (keeps_own_) return Error{.code = Code::refused, .text = "the internal points had to stay"};
    if (has_stubs(target_, block_))
      return Error{.code = Code::refused, .text = "functions are to return by stubs, which have to stay"};
    RETURN_IF_ERROR(restore(own_, serializer));
    return restore(calls_, serializer);
  }
  // For a process whose threads run and cannot be stopped. Without the points at rt_sigprocmask a thread would block SIGTRAP,
  // and die at the next point that is still armed.
  void keep_own() { keeps_own_ = true; }

  Status run_for(std::span<const std::uint32_t> points, Serializer& serializer) {
    TextView text(target_);
    for (const std::uint32_t i : points) consider(text, block_.leads_to(i));
    RETURN_IF_ERROR(block_.set_states(target_, gone_, shared::PointState::unmapped));
    return restore(probes_, serializer);
  }

 private:
  struct Batch {
    std::vector<Patch> patches;
    std::vector<std::uint32_t> points;
  };

  Status restore(const Batch& batch, Serializer& serializer) {
    const std::vector<Patched> outcomes = put_back_deferred(batch) ? std::vector(batch.patches.size(), Patched::done)
                                                                   : patch_running(target_, batch.patches, serializer);
    std::vector<std::uint32_t> restored;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i] == Patched::done) add_restored(restored, batch.points[i]);
      if (stays(outcomes[i], batch.patches[i].at)) ++left_;
    }
    RETURN_IF_ERROR(block_.set_states(target_, restored, shared::PointState::disarmed));
    return left_ == 0 ? ok() : some_left();
  }
  void add_restored(std::vector<std::uint32_t>& restored, std::uint32_t index) const {
    restored.push_back(index);
    const bool leads_on = shared::is_prefix_window(block_.points()[index]);
    if (const auto place = leads_on ? block_.after_prefix_window(index) : std::nullopt) restored.push_back(*place);
  }
  // The texts that consider() has checked are unchanged, because no thread runs. False: the caller patches one by one, to see
  // which fails.
  bool put_back_deferred(const Batch& batch) {
    if (!target_.is_held()) return false;
    std::vector<TextPiece> pieces;
    for (const Patch& patch : batch.patches) pieces.push_back({patch.at, {patch.after.data(), patch.size}});
    return bool(write_in_runs(target_, std::move(pieces)));
  }
  // A failed restore does not count where the memory is gone.
  bool stays(Patched outcome, Addr at) {
    std::uint8_t now = 0;
    return outcome == Patched::breakpoint || (outcome == Patched::failed && target_.read(at, &now, 1));
  }
  Status some_left() const {
    return Error{.code = Code::refused, .text = std::to_string(left_) + " probes could not be removed"};
  }

  // Where a thread changes its mask by jump it never blocks SIGTRAP, so that any of the breakpoints may go before another one: these
  // jumps go last.
  Batch& batch_for(shared::PointRole role) {
    if (role == shared::PointRole::probe) return probes_;
    return role == shared::PointRole::quick_call ? calls_ : own_;
  }

  void consider(TextView& text, std::uint32_t index) {
    const shared::Point& point = block_.points()[index];
    const shared::Undo& undo = block_.undo()[index];
    if (undo.state != 1 || shared::is_long_jump(point)) return;
    const shared::ArmedText armed = shared::armed_text(point);
    Patch patch{.at = Addr{point.address}, .size = static_cast<std::uint8_t>(armed.length)};
    if (!text.read(patch.at, patch.before.data(), patch.size)) return;
    std::copy_n(undo.original, patch.size, patch.after.begin());
    const Standing standing = standing_of(patch, armed);
    if (standing == Standing::other) return;
    if (standing == Standing::spoilt || (standing == Standing::halfway && traced_)) {
      ++left_;
      return;
    }
    if (!is_there(text, maps_, point, undo)) {
      gone_.push_back(index);
      return;
    }
    Batch& batch = batch_for(static_cast<shared::PointRole>(point.role));
    batch.patches.push_back(patch);
    batch.points.push_back(index);
  }

  target::Target& target_;
  Block& block_;
  const std::vector<target::Mapping>& maps_;
  const bool traced_;
  bool keeps_own_ = false;
  Batch probes_, own_, calls_;
  std::vector<std::uint32_t> gone_;  // their code is gone, other code is there
  std::size_t left_ = 0;             // the tool's texts that had to stay
};

}  // namespace

Status take_out(target::Target& target, Block& block, Serializer& serializer) {
  const auto maps = target.maps();
  return maps ? Disarming(target, block, *maps).run(serializer) : Status(maps.error());
}

Status take_out(target::Target& target, Block& block, Serializer& serializer, std::span<const std::uint32_t> points) {
  const auto maps = target.maps();
  return maps ? Disarming(target, block, *maps).run_for(points, serializer) : Status(maps.error());
}

namespace {

Status disarm_in(target::Target& target, Addr block_address, bool keeps_own) {
  auto block = Block::read(target, block_address);
  if (!block) return block.error();
  const auto maps = target.maps();
  if (!maps) return maps.error();
  ProcessSerializer serializer(target.pid());
  const Addr changer = block_address + offsetof(shared::ProcessBlock, changer);
  const std::uint64_t us = static_cast<std::uint64_t>(::getpid()), none = 0;
  RETURN_IF_ERROR(target.write(changer, &us, sizeof us));
  Disarming disarming(target, *block, *maps);
  if (keeps_own) disarming.keep_own();
  Status disarmed = disarming.run(serializer);
  static_cast<void>(target.write(changer, &none, sizeof none));
  if (keeps_own) return disarmed;  // the agent goes on managing signal masks
  const std::uint32_t left = disarmed ? shared::kLeft : shared::kLeaving;
  const Status noted = target.write(block_address + offsetof(shared::ProcessBlock, left), &left, sizeof left);
  return disarmed ? noted : disarmed;
}

Status disarm_unstopped(pid_t pid, Addr block, bool keeps_own) {
  auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  target::RunningTarget target(files.take());
  return disarm_in(target, block, keeps_own);
}

}  // namespace

bool has_stubs(pid_t pid, Addr at) {
  auto files = target::ProcessFiles::open(pid);
  if (!files) return false;
  target::RunningTarget target(files.take());
  const auto block = Block::read(target, at);
  return block && has_stubs(target, *block);
}

Status disarm_waiting(pid_t pid, Addr block) { return disarm_unstopped(pid, block, false); }

// On a thread of its own: the kernel releases one that waits in it, and did not stop, only when its tracer's thread ends.
Status disarm_running(pid_t pid, Addr block, Stop stop) {
  constexpr std::chrono::milliseconds kMostWaited{200};
  if (stop == Stop::no) return disarm_unstopped(pid, block, true);
  Status done = ok();
  const auto work = [&] {
    auto process = target::StoppedProcess::hold(pid, kMostWaited);
    done = process ? disarm_in(**process, block, false) : disarm_unstopped(pid, block, true);
  };
  start_signal_masked_thread(work, {SIGCHLD}).join();
  return done;
}

}  // namespace uprobe::control
