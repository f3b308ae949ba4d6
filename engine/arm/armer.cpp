// SPDX-License-Identifier: MIT
// Decides which mappings to look at, and what to do with points whose code is gone. arming.cpp arms the points of one mapping.
#include "engine/arm/armer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "arch/abi/elf.h"
#include "engine/arm/armer_work.h"
#include "engine/arm/islands.h"
#include "engine/inject/code_files.h"
#include "engine/process/mapped_file.h"

namespace uprobe::control {

std::optional<FileVersion> mapped_version(pid_t pid, const target::Mapping& m) {
  const auto identity = mapped_identity(pid, m);
  const auto name = identity ? mapped_name(pid, m, *identity) : Result<std::string>(Error{});
  return name ? version_of(*name) : std::nullopt;
}

bool has_changed(const FilePoints& file, const FileVersion& now) { return file.version && *file.version != now; }

bool can_be_armed(const target::Mapping& m) { return m.executable && !m.shared && !m.writable && m.is_file(); }

// An armed point in the mapping shows that its code was there before.
bool Armer::Work::is_just_mapped(const target::Mapping& m) const {
  const auto points = block.points_in(m.begin, m.end);
  const auto stands = [&](std::uint32_t i) {
    const shared::Point& point = block.points()[i];
    return point.state == static_cast<std::uint32_t>(shared::PointState::armed) && has_armed_text(target, block, point);
  };
  return range.begin <= m.begin && m.end <= range.end && std::none_of(points.begin(), points.end(), stands);
}

Armer::Armer(const ProbeSet& probes, const ArmOptions& options)
    : probes_(probes),
      options_(options),
      own_(probes, {options.ends_too, options.is_preloaded, options.insists_on_stubs}, report_.notes) {
  if (options.tier != plan::Tier::breakpoint && options.flows != nullptr) jumps_.emplace(*options.flows, own_);
}

// Whether the program's signal handlers return through an internal point: in a libc that is mapped, or in the glibc that its
// loader will bring.
bool Armer::follows_returns(Work& work) {
  const auto brings_them = [&](const target::Mapping& m) {
    if (!work.is_armable(m)) return false;
    if (m.path.find(arch::kLoaderName) != std::string::npos) return true;
    const auto version = mapped_version(work.target.pid(), m);
    return version && own_.in(work.target, m, *version).has_signal_return;
  };
  if (!work.follows_returns) work.follows_returns = std::any_of(work.maps.begin(), work.maps.end(), brings_them);
  return *work.follows_returns;
}

// Whether unwinders can get through a stub: because ld.so knows the agent, or because there are points where unwinders look for
// objects.
bool Armer::finds_stubs(Work& work) {
  const auto has_point = [&](const target::Mapping& m) {
    const auto version = work.is_armable(m) ? mapped_version(work.target.pid(), m) : std::nullopt;
    return version && own_.in(work.target, m, *version).finds_objects;
  };
  if (!work.finds_stubs)
    work.finds_stubs = options_.is_preloaded || std::any_of(work.maps.begin(), work.maps.end(), has_point);
  return *work.finds_stubs;
}

// The agent replaces a return address in this code by a stub only if unwinders get through the stub.
Status Armer::note_code(Work& work, const target::Mapping& m) {
  shared::ProcessBlock& head = work.block.head();
  const bool is_new = options_.insists_on_stubs && std::exchange(head.any_caller, 1) == 0;
  const shared::CodeFile file = code_file_of(work.target, work.maps, m);
  if (work.block.knows_code(file) && !is_new) return ok();
  RETURN_IF_ERROR(work.change());
  return work.block.note_code(work.target, file);
}

// For good, because code that was bound to the library goes on using it.
Status Armer::forbid_stubs(Work& work, const target::Mapping& m) {
  shared::ProcessBlock& head = work.block.head();
  if (head.no_stubs != 0) return ok();
  head.no_stubs = 1;
  report_.notes.insert(m.path +
                       ": exceptions that it throws cannot pass return stubs: returns in this process are not followed"
                       " (--return=exits)");
  return work.target.write(work.block.address() + offsetof(shared::ProcessBlock, no_stubs), &head.no_stubs,
                           sizeof head.no_stubs);
}

void Armer::look_ahead(target::Target& target) {
  const auto maps = target.maps();
  if (!maps) return;
  for (const target::Mapping& m : *maps) {
    const auto version = can_be_armed(m) ? mapped_version(target.pid(), m) : std::nullopt;
    if (!version) continue;
    static_cast<void>(own_.in(target, m, *version));
    for (const FilePoints& file : probes_.files())
      if (jumps_ && file.file->identity() == version->identity && !has_changed(file, *version))
        static_cast<void>(jumps_->of(file));
  }
}

// Internal points first, because a probe's breakpoint needs signals in order.
Status Armer::arm_mapping(Work& work, const target::Mapping& m) {
  const auto version = mapped_version(work.target.pid(), m);
  if (!version) return ok();
  const FilePoints& own = own_.in(work.target, m, *version);
  const auto probed = std::find_if(probes_.files().begin(), probes_.files().end(), [&](const FilePoints& file) {
    return file.file->identity() == version->identity && !has_changed(file, *version);
  });
  const plan::FileJumps* jumps = jumps_ && probed != probes_.files().end() ? &jumps_->of(*probed) : nullptr;
  if (probes_.wants_stubs()) RETURN_IF_ERROR(note_code(work, m));
  if (own.fears_stubs) RETURN_IF_ERROR(forbid_stubs(work, m));
  if (!own.points.empty()) RETURN_IF_ERROR(arm_file(work, own, m, jumps));
  for (const FilePoints& file : probes_.files()) {
    if (file.file->identity() != version->identity) continue;
    if (has_changed(file, *version)) {
      for (const auto* points : {&file.points, &file.ifuncs})
        for (const PlannedPoint& point : *points) refuse(work, point, "the file has changed since it was read");
      continue;
    }
    RETURN_IF_ERROR(arm_file(work, file, m, jumps));
  }
  return ok();
}

// Arms the functions that IFUNCs have chosen since the mapping was looked at.
Status Armer::arm_choices(Work& work, const target::Mapping& m) {
  const auto version = mapped_version(work.target.pid(), m);
  for (const FilePoints& file : probes_.files()) {
    if (!version || file.file->identity() != version->identity || has_changed(file, *version)) continue;
    work.begin_file();
    RETURN_IF_ERROR(arm_ifuncs(work, file, m));
  }
  return ok();
}

Status Armer::arm(target::Target& target, Addr at, const Changed& changed) {
  std::uint32_t left = 0;
  if (target.read(at + offsetof(shared::ProcessBlock, left), &left, sizeof left) && left != 0) return ok();
  auto block = known_.take(target, at);
  if (!block) return block.error();
  Status armed = arm(target, *block, changed);
  if (armed) known_.keep(block.take());
  return armed;
}

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

}  // namespace

// Comes before the arming of points that read the objects.
Status Armer::note_objects(Work& work) {
  std::vector<shared::MappedObject> places;
  for (const NamedObject& object : probes_.objects()) {
    std::string why;
    places.push_back(objects_.find(work.target, work.maps, object, why));
    if (!why.empty()) report_.notes.insert(object.file->path() + ": " + why);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const shared::MappedObject& known = work.block.head().objects[i];
    if (known.sentinel_at == places[i].sentinel_at && known.bias == places[i].bias) continue;
    RETURN_IF_ERROR(work.change());
    RETURN_IF_ERROR(work.block.set_object(work.target, i, places[i]));
  }
  return ok();
}

// Makes the agent ask again when a library has been relocated.
Status Armer::note_unbound(Work& work) {
  if ((work.block.head().unbound != 0) == work.unbound) return ok();
  RETURN_IF_ERROR(work.change());
  work.block.head().unbound = work.unbound ? 1 : 0;
  return work.block.write_head(work.target);
}

// Makes room for probes that are added later, before the program can forbid executable memory. Later mappings are mostly near
// those of the beginning. Where no room can be made such probes will be refused.
Status Armer::keep_room(Work& work) {
  bool made = false;
  for (const target::Mapping& m : work.maps) {
    if (!can_be_armed(m) || has_spare_room(work.block, m.begin, m.end)) continue;
    RETURN_IF_ERROR(work.change());
    made = bool(spare_room(work.target, work.block, m.begin, m.end)) || made;
  }
  return made ? work.block.write_head(work.target) : ok();
}

// One mapping; `known`: the facts of the last look, null: none.
Status Armer::look_at(Work& work, const target::Mapping& m, const KnownMapping* known) {
  const bool untouched = known != nullptr && is_untouched(work.target, work.block, *known, m, work.range);
  work.sentinel = untouched ? known->sentinel : Addr{};
  work.waits = false;
  work.is_new = !untouched && work.is_just_mapped(m);
  if (!untouched) RETURN_IF_ERROR(arm_mapping(work, m));
  if (untouched && known->waits) RETURN_IF_ERROR(arm_choices(work, m));
  work.unbound = work.unbound || work.waits;
  const KnownMapping found{m.begin, m.end, m.offset, m.device, m.inode, work.sentinel, work.waits};
  if (untouched)
    work.untouched.push_back(found);
  else
    work.looked_at[m.begin] = found;
  return ok();
}

Status Armer::arm(target::Target& target, Block& block, const Changed& changed) {
  auto maps = target.maps();
  if (!maps) return maps.error();
  own_.trim();
  choices_.clear();  // those of the previous process
  Work work(target, block, *maps, changed);
  RETURN_IF_ERROR(note_objects(work));
  const auto* remembered = known_.mappings(block.stamp());
  if (remembered != nullptr) work.before = *remembered;
  // Where points may have lost their code.
  std::vector<Changed> doubtful{remembered != nullptr ? changed : Changed{Addr{0}, Addr{~std::uint64_t{0}}}};
  for (const target::Mapping& m : *maps) {
    if (!work.is_armable(m)) continue;
    RETURN_IF_ERROR(look_at(work, m, known_at(work.before, m.begin)));
  }
  RETURN_IF_ERROR(write_texts(work));
  for (const KnownMapping& known : work.before)
    if (known_at(work.untouched, known.begin) == nullptr) doubtful.push_back({known.begin, known.end});
  for (const Changed& range : doubtful) RETURN_IF_ERROR(retire(work, range));
  if (remembered == nullptr) RETURN_IF_ERROR(keep_room(work));
  RETURN_IF_ERROR(note_unbound(work));
  known_.keep_mappings(block.stamp(), work.all_known());
  return ok();
}

namespace {

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

}  // namespace

// Retires points whose code is gone (dlclose): what is mapped there later is not theirs.
Status Armer::retire(Work& work, const Changed& range) {
  for (const std::uint32_t i : work.block.points_in(range.begin, range.end)) {
    const shared::Point& point = work.block.points()[i];
    if (point.state != static_cast<std::uint32_t>(shared::PointState::armed)) continue;
    if (work.standing.count(point.address) != 0) continue;
    const target::Mapping* m = target::mapping_at(work.maps, Addr{point.address});
    if (m != nullptr && known_at(work.untouched, m->begin) != nullptr) continue;
    if (m != nullptr && was_there(work.before, *m) && has_armed_text(work.target, work.block, point)) {
      RETURN_IF_ERROR(look_at_following(work, i));
      work.looked_at[m->begin] = {m->begin, m->end, m->offset, m->device, m->inode, {}, false};
      continue;
    }
    if (m != nullptr && has_its_code(work.target, work.block, i, *m)) {
      if (!can_be_armed(*m)) work.looked_at[m->begin] = {.begin = m->begin, .end = m->end};
      continue;
    }
    RETURN_IF_ERROR(work.change());
    RETURN_IF_ERROR(work.block.set_state(work.target, i, shared::PointState::unmapped));
  }
  return ok();
}

}  // namespace uprobe::control
