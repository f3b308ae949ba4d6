// SPDX-License-Identifier: MIT
// Three steps, each for all patches before the next, so that the processors are serialized three times in all, for any number
// of patches. The kernel changes its own text in the same way (smp_text_poke_batch_finish).
//
// One byte is written at once or not at all, and a processor that is about to execute the old instruction executes either it or
// the breakpoint. The four bytes after it may be written in pieces (the kernel copies them, and they may span two cache lines
// or pages): once every processor has seen the breakpoint, no thread decodes them, and a thread in the agent that reads them
// compares byte by byte. Two bytes that differ, with no breakpoint among them, are never exchanged at once, not even if they
// are all there is: no manual promises that another processor sees either the old or the new instruction then.
//
// Each patch checks its place right before each of its writes, so that later changes by others (another library is mapped
// there, a debugger's breakpoint) are not overwritten.
#include "engine/patch/patch.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "engine/process/text_view.h"
#include "engine/shared/future_jump.h"

namespace uprobe::control {
namespace {

using shared::kBreakpoint;
using Bytes = std::array<std::uint8_t, kMostPatched>;

Bytes with_first(Bytes bytes, std::uint8_t first) {
  bytes[0] = first;
  return bytes;
}

// Whether the patch only sets or only removes a breakpoint.
bool is_one_write(const Patch& p) {
  const bool same_tail = std::equal(p.before.begin() + 1, p.before.begin() + p.size, p.after.begin() + 1);
  return same_tail && (p.before[0] == kBreakpoint || p.after[0] == kBreakpoint);
}

class Work {
 public:
  Work(target::Target& target, std::span<const Patch> patches, Serializer& serializer)
      : target_(target), patches_(patches), serializer_(serializer), steps_(patches.size()), order_(patches.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(),
              [&](std::size_t a, std::size_t b) { return patches[a].at < patches[b].at; });
  }

  std::vector<Patched> run() {
    each(Step::first, &Work::write_first);
    if (!serialize(Step::tail)) return outcomes();
    each(Step::tail, &Work::write_tail);
    if (!serialize(Step::last)) return outcomes();
    each(Step::last, &Work::write_last);
    each(Step::undo, &Work::undo);
    // After this no processor executes the breakpoint any more. If it fails there is no harm: a late trap is handled like any
    // other.
    if (was_written_) static_cast<void>(serializer_.serialize());
    return outcomes();
  }

 private:
  // The next step of a patch.
  enum class Step : std::uint8_t { first, tail, last, undo, done, refused, failed, breakpoint };

  static Patched outcome(Step step) {
    if (step == Step::done) return Patched::done;
    if (step == Step::refused) return Patched::refused;
    return step == Step::breakpoint ? Patched::breakpoint : Patched::failed;
  }

  void each(Step step, Step (Work::*action)(TextView&, const Patch&)) {
    TextView view(target_);
    for (const std::size_t i : order_)
      if (steps_[i] == step) steps_[i] = (this->*action)(view, patches_[i]);
  }

  // Without patches that go on there is nothing to wait for.
  bool serialize(Step next) {
    const auto goes_on = [next](Step s) { return s == next || s == Step::undo; };
    if (std::none_of(steps_.begin(), steps_.end(), goes_on)) return false;
    if (serializer_.serialize()) return true;
    for (Step& s : steps_)
      if (goes_on(s)) s = Step::breakpoint;
    return false;
  }

  // Compares the text with `expected`.
  Step look(TextView& view, const Patch& p, const Bytes& expected, Step if_equal) {
    Bytes now{};
    if (!view.read(p.at, now.data(), p.size)) return Step::failed;
    if (std::equal(now.begin(), now.begin() + p.size, expected.begin())) return if_equal;
    return now[0] == kBreakpoint && expected != p.before ? Step::breakpoint : Step::refused;
  }
  bool put(const Patch& p, std::uint8_t first) { return bool(target_.write(p.at, &first, 1)); }
  bool put_tail(const Patch& p, const Bytes& bytes) {
    return p.size == 1 || target_.write(p.at + 1, bytes.data() + 1, p.size - 1U);
  }

  Step write_first(TextView& view, const Patch& p) {
    const Step seen = look(view, p, p.before, Step::first);
    if (seen != Step::first) return seen;
    if (is_one_write(p)) return put(p, p.after[0]) ? Step::done : Step::failed;
    return p.before[0] == kBreakpoint || put(p, kBreakpoint) ? Step::tail : Step::failed;
  }

  Step write_tail(TextView& view, const Patch& p) {
    const Step seen = look(view, p, with_first(p.before, kBreakpoint), Step::tail);
    if (seen != Step::tail) return seen;
    if (put_tail(p, p.after)) return Step::last;
    // Some bytes may have been written.
    return put_tail(p, p.before) ? Step::undo : Step::breakpoint;
  }

  Step write_last(TextView& view, const Patch& p) {
    const Step seen = look(view, p, with_first(p.after, kBreakpoint), Step::last);
    if (seen != Step::last) return seen;
    was_written_ = true;
    return p.after[0] == kBreakpoint || put(p, p.after[0]) ? Step::done : Step::breakpoint;
  }

  Step undo(TextView& view, const Patch& p) {
    if (look(view, p, with_first(p.before, kBreakpoint), Step::undo) == Step::undo) put(p, p.before[0]);
    return Step::failed;
  }

  std::vector<Patched> outcomes() const {
    std::vector<Patched> all;
    all.reserve(steps_.size());
    std::transform(steps_.begin(), steps_.end(), std::back_inserter(all), outcome);
    return all;
  }

  target::Target& target_;
  std::span<const Patch> patches_;
  Serializer& serializer_;
  std::vector<Step> steps_;
  std::vector<std::size_t> order_;  // by address
  bool was_written_ = false;
};

}  // namespace

Patch patch_back(const shared::Point& point, const shared::Undo& undo) {
  const shared::ArmedText armed = shared::armed_text(point);
  Patch patch{.at = Addr{point.address}, .size = static_cast<std::uint8_t>(armed.length)};
  std::copy_n(armed.bytes, armed.length, patch.before.begin());
  std::copy_n(undo.original, armed.length, patch.after.begin());
  return patch;
}

Patch patch_back_now(target::Target& target, const shared::Point& point, const shared::Undo& undo) {
  Patch patch = patch_back(point, undo);
  Bytes now{};
  const bool is_future =
      target.read(patch.at, now.data(), patch.size) && shared::is_future_jump(point, undo, now.data());
  if (is_future) patch.before = now;
  return patch;
}

std::vector<Patched> patch_running(target::Target& target, std::span<const Patch> patches, Serializer& serializer) {
  return Work(target, patches, serializer).run();
}

}  // namespace uprobe::control
