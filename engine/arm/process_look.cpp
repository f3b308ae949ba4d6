// SPDX-License-Identifier: MIT
#include "engine/arm/process_look.h"

#include <algorithm>

#include "engine/arm/mapping_arming.h"
#include "engine/patch/patch.h"

namespace uprobe::control {
namespace {

// Whether a mapping is unchanged since it was looked at. The sentinel shows changes that the process has not reported.
bool is_untouched(target::Target& target, const Block& block, const KnownMapping& known, const target::Mapping& m,
                  const Changed& changed) {
  const bool replaced = m.begin < changed.end && changed.begin < m.end;
  if (!is_same(known, m) || replaced) return false;
  const auto sentinel = known.sentinel ? block.find(known.sentinel) : std::nullopt;
  return !known.sentinel || (sentinel && has_armed_text(target, block, block.points()[*sentinel]));
}

const KnownMapping* known_at(const std::vector<KnownMapping>& known, Addr begin) {
  const auto found =
      std::lower_bound(known.begin(), known.end(), begin, [](const KnownMapping& k, Addr a) { return k.begin < a; });
  return found != known.end() && found->begin == begin ? &*found : nullptr;
}

// Whether a point that was not found again still has its code: it is being changed and may be written; or its file can no
// longer be looked at; or it is a copy that was moved to large pages.
bool has_its_code(target::Target& target, const Block& block, std::uint32_t index, const target::Mapping& m) {
  const shared::Point& point = block.points()[index];
  const shared::Undo& undo = block.undo()[index];
  std::uint8_t after[shared::kMostFollowing] = {};
  if (m.shared || !has_armed_text(target, block, point)) return false;
  return target.read(Addr{point.address + 1}, after, point.following_bytes) && shared::is_as_before(point, undo, after);
}

// Whether a mapping is part of one that was looked at before, with the same file at the same place.
bool was_there(const std::vector<KnownMapping>& before, const target::Mapping& m) {
  return std::any_of(before.begin(), before.end(), [&](const KnownMapping& known) {
    return m.is_file() && !m.shared && known.inode == m.inode && known.device == m.device &&
           known.begin.value - known.offset == m.begin.value - m.offset;
  });
}

bool has_place_in(const FilePoints& file, const target::Mapping& m) {
  return !file.ifuncs.empty() || std::ranges::any_of(file.points, [&](const PlannedPoint& point) {
    return point.site.offset >= m.offset && point.site.offset - m.offset < m.end - m.begin;
  });
}

bool is_named_file(const ProbeSet& probes, const elf::Identity& file) {
  const auto is_it = [&](const auto& named) { return named.file->identity() == file; };
  return std::ranges::any_of(probes.objects(), is_it) || std::ranges::any_of(probes.semaphores(), is_it);
}

}  // namespace

bool has_nothing_to_arm(ArmState& state, target::Target& target, const Block& block, const Changed& reported) {
  const bool was_looked_at = state.known.mappings(block.stamp()) != nullptr && block.head().unbound == 0;
  if (!was_looked_at || state.probes.wants_code_files() || !block.points_in(reported.begin, reported.end).empty())
    return false;
  const auto mapping = target.mapping_at(reported.begin);
  if (!mapping || !*mapping || (*mapping)->end < reported.end || !can_be_armed(**mapping)) return false;
  const auto version = mapped_version(target.pid(), **mapping);
  const FilePoints* own = version ? state.own.known_in(**mapping, *version) : nullptr;
  if (own == nullptr || has_place_in(*own, **mapping) || is_named_file(state.probes, version->identity)) return false;
  return std::ranges::none_of(state.probes.files(), [&](const FilePoints& file) {
    return file.file->identity() == version->identity && has_place_in(file, **mapping);
  });
}

ProcessLook::ProcessLook(ArmState& state, target::Target& target, Block& block,
                         const std::vector<target::Mapping>& maps, const Changed& reported)
    : state_(state), process_(state, target, block, maps, reported, ProcessArming::How::at_stop), block_(block) {}

Status ProcessLook::run() {
  RETURN_IF_ERROR(process_.note_objects());
  const auto* remembered = state_.known.mappings(block_.stamp());
  const bool is_first = remembered == nullptr;
  if (!is_first) before_ = *remembered;
  if (is_first && process_.target.is_new_program()) RETURN_IF_ERROR(process_.make_room());
  // Where points may have lost their code.
  std::vector<Changed> doubtful{is_first ? Changed{Addr{0}, Addr{~std::uint64_t{0}}} : process_.range};
  for (const target::Mapping& m : process_.maps) {
    if (!process_.is_armable(m)) continue;
    RETURN_IF_ERROR(look_at(m, known_at(before_, m.begin)));
  }
  RETURN_IF_ERROR(process_.write_texts());
  // After the points: of a tool that is killed in between, no semaphore is up that no hit would count down.
  RETURN_IF_ERROR(process_.count_semaphores());
  for (const KnownMapping& known : before_)
    if (known_at(untouched_, known.begin) == nullptr) doubtful.push_back({known.begin, known.end});
  for (const Changed& range : doubtful) RETURN_IF_ERROR(retire(range));
  if (is_first) RETURN_IF_ERROR(process_.keep_room());
  RETURN_IF_ERROR(process_.note_unbound(is_unbound_));
  RETURN_IF_ERROR(process_.note_quiet_hooks());
  state_.known.keep_mappings(block_.stamp(), all_known());
  return ok();
}

// One mapping; `known`: the facts of the last look, null: none.
Status ProcessLook::look_at(const target::Mapping& m, const KnownMapping* known) {
  const bool untouched = known != nullptr && is_untouched(process_.target, block_, *known, m, process_.range);
  MappingArming arming(process_, m, !untouched && process_.is_just_mapped(m));
  static_cast<void>(state_.own.has_put_off());
  if (!untouched) RETURN_IF_ERROR(arming.arm_mapping());
  if (untouched && known->waits) RETURN_IF_ERROR(arming.arm_choices());
  is_unbound_ = is_unbound_ || arming.waits();
  const Addr sentinel = untouched && !arming.sentinel() ? known->sentinel : arming.sentinel();
  const KnownMapping found{m.begin, m.end, m.offset, m.device, m.inode, sentinel, arming.waits()};
  if (untouched)
    untouched_.push_back(found);
  else if (!state_.own.has_put_off())  // else the next look looks at it again
    looked_at_[m.begin] = found;
  return ok();
}

// Retires points whose code is gone (dlclose): what is mapped there later is not theirs.
Status ProcessLook::retire(const Changed& range) {
  std::vector<std::uint32_t> gone;
  for (const std::uint32_t i : block_.points_in(range.begin, range.end)) {
    const shared::Point& point = block_.points()[i];
    const bool is_armed = point.state == static_cast<std::uint32_t>(shared::PointState::armed);
    if (!is_armed || process_.has_standing(Addr{point.address})) continue;
    const auto is_gone = has_gone(i);
    if (!is_gone) return is_gone.error();
    if (*is_gone) gone.push_back(i);
  }
  if (gone.empty()) return ok();
  RETURN_IF_ERROR(process_.change());
  std::ranges::sort(gone);  // neighbours are written at once
  return block_.set_states(process_.target, gone, shared::PointState::unmapped);
}

// False: its code is there after all.
Result<bool> ProcessLook::has_gone(std::uint32_t index) {
  const shared::Point& point = block_.points()[index];
  const target::Mapping* m = target::mapping_at(process_.maps, Addr{point.address});
  if (m == nullptr) return true;
  if (known_at(untouched_, m->begin) != nullptr) return false;
  if (was_there(before_, *m) && has_armed_text(process_.target, block_, point)) {
    RETURN_IF_ERROR(process_.look_at_following(index));
    looked_at_[m->begin] = {m->begin, m->end, m->offset, m->device, m->inode, {}, false};
    return false;
  }
  if (!has_its_code(process_.target, block_, index, *m)) return true;
  if (!can_be_armed(*m)) looked_at_[m->begin] = {.begin = m->begin, .end = m->end};
  return false;
}

std::vector<KnownMapping> ProcessLook::all_known() const {
  std::vector<KnownMapping> all = untouched_;
  for (const auto& [begin, known] : looked_at_) all.push_back(known);
  std::ranges::sort(all, {}, &KnownMapping::begin);
  return all;
}

}  // namespace uprobe::control
