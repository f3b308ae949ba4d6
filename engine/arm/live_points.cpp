// SPDX-License-Identifier: MIT
#include "engine/arm/live_points.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "engine/arm/mapping_arming.h"
#include "engine/arm/process_arming.h"
#include "engine/patch/disarm.h"
#include "engine/patch/serialize.h"

namespace uprobe::control {
namespace {

// Armed jumps that have the address in the middle of their displaced code, and prefix windows there, which cannot have a
// consumer. Not those that lead to the point of the address.
std::vector<std::uint32_t> jumps_over(const Block& block, Addr address) {
  constexpr std::uint64_t kLongest = sizeof(shared::Undo::original);
  std::vector<std::uint32_t> found = block.points_in(address - kLongest, address + 1);
  const auto known = block.find(address);
  std::erase_if(found, [&](std::uint32_t i) {
    const shared::Point& point = block.points()[i];
    const std::uint64_t inside = address.value - point.address;
    if (!shared::is_armed_jump(point) || inside >= std::max(point.jump_bytes, point.code_bytes)) return true;
    return shared::is_prefix_window(point) ? known && block.after_prefix_window(i) == known : inside == 0;
  });
  return found;
}

// Keeps the cached mappings; IFUNCs in the `waiting` ones have still to choose.
void remember(BlockCache& known, std::uint64_t stamp, std::vector<KnownMapping> mappings,
              const std::vector<Addr>& waiting) {
  for (KnownMapping& m : mappings) m.waits = m.waits || std::count(waiting.begin(), waiting.end(), m.begin) != 0;
  known.keep_mappings(stamp, std::move(mappings));
}

// A breakpoint inside the text or the displaced code of a jump would never be hit, so the jump becomes a breakpoint too.
Status uncover(ProcessArming& process, const FilePoints& file, const target::Mapping& m) {
  for (const PlannedPoint& point : file.points) {
    if (point.site.offset < m.offset || point.site.offset - m.offset >= m.end - m.begin) continue;
    const auto jumps = jumps_over(process.block, m.begin + (point.site.offset - m.offset));
    if (jumps.empty()) continue;
    RETURN_IF_ERROR(process.change());
    RETURN_IF_ERROR(make_breakpoints(process.target, process.block, {m.begin, m.end}, jumps));
  }
  return ok();
}

// The newest definition first.
std::vector<shared::Consumer> entries_of(std::vector<std::uint16_t> events) {
  std::sort(events.begin(), events.end(), std::greater<>());
  std::vector<shared::Consumer> consumers;
  for (const std::uint16_t event : events) {
    shared::Consumer consumer{};
    consumer.kind = static_cast<std::uint8_t>(shared::ConsumerKind::entry);
    consumer.event = event;
    consumers.push_back(consumer);
  }
  return consumers;
}

Status put_watched(target::Target& target, Block& block, const WatchedPlace& place) {
  const auto known = block.find(place.address);
  NewPoint point;
  point.address = place.address;
  point.insn = place.code;
  const auto list = block.list_for(entries_of(place.events), known.has_value());
  if (!list) return list.error();
  point.consumers = *list;
  RETURN_IF_ERROR(known ? block.set_point(target, *known, point) : block.add(target, {point}));
  return block.set_state(target, *block.find(place.address), shared::PointState::watched);
}

// Those that are wanted now.
Status count_semaphores(ArmState& state, target::Target& target, Block& block) {
  RETURN_IF_ERROR(hear_all_hooks(state, target, block));
  const auto maps = target.maps();
  if (!maps) return maps.error();
  const Changed nothing{};
  return ProcessArming(state, target, block, *maps, nothing, ProcessArming::How::live).count_semaphores();
}

// The windows of everything that the session wants in a file, what is being added included; null: breakpoints only.
const plan::FileJumps* jumps_of(ArmState& state, const FilePoints& file) {
  const auto& files = state.probes.files();
  const auto planned = std::ranges::find_if(files, [&](const FilePoints& one) { return one.file == file.file; });
  return state.jumps && planned != files.end() && has_probes(*planned) ? &state.jumps->of(*planned) : nullptr;
}

// True: an IFUNC in the mapping has not chosen yet.
Result<bool> add_in(ProcessArming& process, const target::Mapping& m, const ProbeSet& more) {
  MappingArming arming(process, m, false);
  const auto version = mapped_version(process.target.pid(), m);
  for (const FilePoints& file : more.files()) {
    if (!version || file.file->identity() != version->identity) continue;
    if (has_changed(file, *version))
      return Error{.code = Code::refused, .text = "the file has changed since it was read", .where = m.path};
    RETURN_IF_ERROR(uncover(process, file, m));
    RETURN_IF_ERROR(arming.arm_file(file, jumps_of(process.state, file)));
  }
  return arming.waits();
}

}  // namespace

Status add_points(ArmState& state, target::Target& target, Addr at, const ProbeSet& more) {
  auto block = state.known.read(target, at);
  if (!block) return block.error();
  if (block->head().left != 0) return ok();
  RETURN_IF_ERROR(hear_all_hooks(state, target, *block));
  const auto maps = target.maps();
  if (!maps) return maps.error();
  const Changed nothing{};
  ProcessArming process(state, target, *block, *maps, nothing, ProcessArming::How::live);
  std::vector<KnownMapping> before;
  if (const auto* known = state.known.mappings(block->stamp())) before = *known;
  RETURN_IF_ERROR(process.note_objects());
  std::vector<Addr> waiting;
  for (const target::Mapping& m : *maps) {
    if (!process.is_armable(m)) continue;
    const auto waits = add_in(process, m, more);
    if (!waits) return waits.error();
    if (*waits) waiting.push_back(m.begin);
  }
  RETURN_IF_ERROR(process.count_semaphores());  // after the points
  RETURN_IF_ERROR(process.note_unbound(!waiting.empty() || block->head().unbound != 0));
  if (!process.refusal().empty()) return Error{.code = Code::refused, .text = process.refusal()};
  if (!process.is_changed()) return ok();
  if (!before.empty()) remember(state.known, block->stamp(), before, waiting);
  state.known.keep(block.take());
  return ok();
}

Status watch_point(ArmState& state, target::Target& target, Addr at, const WatchedPlace& place) {
  auto block = state.known.read(target, at);
  if (!block) return block.error();
  if (block->head().left != 0) return Error{.code = Code::refused, .text = "the process has left the session"};
  const auto known = block->find(place.address);
  if (known && block->points()[*known].state == static_cast<std::uint32_t>(shared::PointState::armed))
    return Error{.code = Code::refused, .text = "a breakpoint of the tool is there"};
  std::vector<KnownMapping> before;
  if (const auto* mappings = state.known.mappings(block->stamp())) before = *mappings;
  RETURN_IF_ERROR(block->renew(target));
  RETURN_IF_ERROR(put_watched(target, *block, place));
  if (!before.empty()) state.known.keep_mappings(block->stamp(), std::move(before));
  for (const std::uint16_t event : place.events) {
    state.report.armed_events.add(event);
    state.report.hardware.add(event);
  }
  state.known.keep(block.take());
  return ok();
}

Status count_semaphores(ArmState& state, target::Target& target, Addr at) {
  auto block = state.known.read(target, at);
  if (!block) return block.error();
  if (block->head().left != 0) return ok();
  RETURN_IF_ERROR(count_semaphores(state, target, *block));
  state.known.keep(block.take());
  return ok();
}

Status mend_semaphores(ArmState& state, target::Target& target, Addr at) {
  if (state.probes.semaphores().empty()) return ok();
  std::vector<shared::Semaphore> entries(shared::kSemaphores);
  const Addr table = at + offsetof(shared::ProcessBlock, semaphores);
  RETURN_IF_ERROR(target.read(table, entries.data(), entries.size() * sizeof entries[0]));
  const auto is_let_down = [](const shared::Semaphore& entry) { return entry.address != 0 && entry.is_up == 0; };
  const auto is_taken_down = [&](const shared::Semaphore& entry) {
    std::uint16_t value = 0;
    return entry.address != 0 && target.read(Addr{entry.address}, &value, sizeof value) && value == 0;
  };
  if (std::ranges::any_of(entries, is_let_down))
    state.report.notes.insert("the tool was stopped for more than a second: process " + std::to_string(target.pid()) +
                              " had its markers off until it went on");
  else if (std::ranges::none_of(entries, is_taken_down))
    return ok();
  return count_semaphores(state, target, at);
}

Status remove_points(ArmState& state, target::Target& target, Addr at,
                     const std::function<bool(std::uint16_t)>& is_live) {
  auto block = state.known.read(target, at);
  if (!block) return block.error();
  if (block->head().left != 0) return ok();
  RETURN_IF_ERROR(count_semaphores(state, target, *block));
  RETURN_IF_ERROR(
      strip(state, target, *block, [&](std::uint32_t, const shared::Consumer& c) { return is_live(c.event); }));
  state.known.keep(block.take());
  return ok();
}

Status strip(ArmState& state, target::Target& target, Block& block, const StaysFn& stays) {
  std::vector<KnownMapping> before;
  if (const auto* known = state.known.mappings(block.stamp())) before = *known;
  bool changed = false;
  std::vector<std::uint32_t> idle;
  for (std::uint32_t i = 0; i < block.points().size(); ++i) {
    const shared::Point& point = block.points()[i];
    std::vector<shared::Consumer> list = block.list_of(i);
    if (std::erase_if(list, [&](const shared::Consumer& c) { return !stays(i, c); }) == 0) continue;
    const bool is_armed = point.state == static_cast<std::uint32_t>(shared::PointState::armed);
    const bool is_probe = point.role == static_cast<std::uint32_t>(shared::PointRole::probe);
    if (list.empty() && is_probe && !is_armed) continue;
    if (!std::exchange(changed, true)) RETURN_IF_ERROR(block.renew(target));
    if (list.empty() && is_probe)
      idle.push_back(i);
    else  // without room for a new list the old one stays, and the switched-off events in it are not recorded
      static_cast<void>(block.keep_only(target, i, list));
  }
  ProcessSerializer serializer(target.pid());
  RETURN_IF_ERROR(take_out(target, block, serializer, idle));
  if (!changed) return ok();
  for (KnownMapping& m : before) m.sentinel = Addr{};  // its point may have been removed
  if (!before.empty()) state.known.keep_mappings(block.stamp(), std::move(before));
  return ok();
}

}  // namespace uprobe::control
