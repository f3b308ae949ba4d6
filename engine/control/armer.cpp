#include "engine/control/armer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <unordered_set>
#include <utility>

#include "arch/x86/code/relocate.h"
#include "engine/base/text.h"
#include "engine/control/ifunc.h"
#include "engine/control/islands.h"
#include "engine/control/mapped_file.h"
#include "engine/plan/call_patterns.h"
#include "engine/plan/system_calls.h"

namespace uprobe::control {
namespace {

constexpr std::uint8_t kBreakpoint = 0xcc;

// The file behind a mapping, as stat sees it from here: the numbers in maps are not stat's on every file system.
std::optional<FileVersion> file_behind(pid_t pid, const target::Mapping& m) {
  const auto identity = identity_behind(pid, m);
  const auto name = identity ? name_behind(pid, m, *identity) : Result<std::string>(Error{});
  return name ? version_of(*name) : std::nullopt;
}

// Whether it is another file, or not as it was when it was read.
bool has_changed(const FilePoints& file, const FileVersion& now) { return file.version && *file.version != now; }

bool can_be_armed(const target::Mapping& m) {
  // Shared mappings would change the file on disk; only code is patched.
  return m.executable && !m.shared && !m.writable && m.is_file();
}

// A planned copy: what will be written where.
struct Pending {
  NewPoint point;
  std::vector<std::uint8_t> copy;
  const PlannedPoint* planned;
  std::optional<std::uint32_t> known;  // an entry of the block to be armed again
};

std::vector<shared::Consumer> consumers_of(const PlannedPoint& point) {
  std::vector<shared::Consumer> consumers;
  for (const std::uint16_t event : point.events) consumers.push_back({.session = 0, .event = event, .next = 0});
  return consumers;
}

// What the file has behind the first byte of an instruction, up to the end of the mapping.
std::vector<std::uint8_t> bytes_behind(const plan::Site& site, const target::Mapping& m) {
  const auto file = site.file->bytes();
  const std::uint64_t first = site.offset + 1, mapped = m.offset + (m.end - m.begin);
  const std::uint64_t last = std::min({first + shared::kMostBehind, mapped, std::uint64_t{file.size()}});
  return first < last ? std::vector<std::uint8_t>(file.begin() + static_cast<std::ptrdiff_t>(first),
                                                  file.begin() + static_cast<std::ptrdiff_t>(last))
                      : std::vector<std::uint8_t>();
}

std::uint32_t room_for_copy(const NewPoint& point) {
  const auto bytes = x86::copy_bytes(point.insn, point.address);
  const auto needed = static_cast<std::uint32_t>(bytes ? *bytes : x86::kMaxCopyBytes);
  return (needed + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
}

// A point that is armed again (its library was unmapped meanwhile) takes the room that it has had, if it is enough: libraries
// that come and go must not use the islands up.
Addr known_room(const Block& block, const Pending& pending) {
  if (!pending.known) return {};
  const shared::Point& before = block.points()[*pending.known];
  const std::uint32_t room = (before.copy_bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  return pending.point.copy_bytes <= room ? Addr{before.copy} : Addr{};
}

}  // namespace

struct Armer::Work {
  target::Target& target;
  Block& block;
  const Changed& range;                        // what the process has reported
  std::vector<Pending> pending;                // in the file under way
  std::unordered_set<std::uint64_t> standing;  // breakpoints in the mappings looked at
  std::vector<KnownMapping> before;            // what was looked at the last time
  std::vector<KnownMapping> untouched;         // of these, by address
  std::map<Addr, KnownMapping> looked_at;      // anew; one that is no file's never is the same again
  Addr witness;                                // a breakpoint in the mapping under way
  bool waits = false;                          // an IFUNC in it has not chosen yet
  bool unbound = false;                        // in any mapping
  bool changed = false;

  Work(target::Target& in, Block& its_block, const Changed& reported) : target(in), block(its_block), range(reported) {}
  void stands(Addr address) {
    standing.insert(address.value);
    witness = address;
  }
  // Comes before the first change of the block.
  Status change() { return std::exchange(changed, true) ? ok() : block.renew(target); }
  std::vector<KnownMapping> all_known() {
    for (const KnownMapping& known : untouched) looked_at[known.begin] = known;
    std::vector<KnownMapping> all;
    for (const auto& [begin, known] : looked_at) all.push_back(known);
    return all;
  }
};

// The file of a mapping, if the agent may need points in it.
std::shared_ptr<const elf::ElfFile> Armer::file_of(const target::Target& target, const target::Mapping& m,
                                                   const FileVersion& version) {
  for (const FilePoints& probed : probes_.files())
    if (probed.version == version) return probed.file;
  const auto name = name_behind(target.pid(), m, version.identity);
  if (name && !plan::may_have_followed_calls(*name, m.offset, m.end - m.begin)) return nullptr;
  auto file = name ? elf::ElfFile::open(*name) : Result<elf::ElfFile>(name.error());
  if (!file || file->identity() != version.identity) {
    const std::string why = file ? "it has changed meanwhile" : file.error().text;
    report_.notes.insert(m.path + ": its system calls are not followed: " + why);
    return nullptr;
  }
  return std::make_shared<const elf::ElfFile>(file.take());
}

// The sites where a libc changes signals, mappings and programs, found once per file.
const FilePoints& Armer::system_calls_of(const target::Target& target, const target::Mapping& m,
                                         const FileVersion& version) {
  const auto [entry, is_new] = system_calls_.try_emplace({version, m.offset, m.end - m.begin});
  FilePoints& points = entry->second;
  if (!is_new) return points;
  points.file = file_of(target, m, version);
  if (!points.file) return points;
  for (const plan::SystemCallSite& found : plan::system_call_sites(*points.file, ends_too_)) {
    auto site = plan::site_at(points.file, found.offset);
    if (site) points.points.push_back({.site = site.take(), .events = {}, .role = found.role});
  }
  std::sort(points.points.begin(), points.points.end(),
            [](const PlannedPoint& a, const PlannedPoint& b) { return a.site.offset < b.site.offset; });
  return points;
}

void Armer::refuse(const PlannedPoint& point, const std::string& why) {
  for (const std::uint16_t event : point.events) report_.refusals[event] = why;
  if (report_.first_refusal.empty()) report_.first_refusal = why;
  const std::string& path = point.site.file->path();
  report_.notes.insert(point.events.empty() ? path + ": what the agent itself needs there is not followed: " + why
                                            : path + ":" + hex(point.site.offset) + " not probed: " + why);
}

bool is_changed(const shared::Point& point, const shared::Undo& undo, const std::uint8_t* behind) {
  for (unsigned i = 0; i + 1 < point.insn_bytes && i < point.behind_bytes; ++i)
    if (behind[i] != undo.original[i + 1] && behind[i] != kBreakpoint) return true;
  return false;
}

// The process doubts a point that is right: its program has changed the code there. What lies behind the instruction looks
// like that from now on. The instruction itself, if it is another one now, is the program's own again.
Status Armer::look_behind(Work& work, std::uint32_t index) {
  const shared::Point& point = work.block.points()[index];
  const shared::Undo& undo = work.block.undo()[index];
  const Addr address{point.address};
  std::uint8_t behind[shared::kMostBehind] = {};
  if (address < work.range.begin || work.range.end <= address) return ok();
  if (!work.target.read(address + 1, behind, point.behind_bytes) || shared::is_as_before(point, undo, behind))
    return ok();
  if (Status s = work.change(); !s) return s;
  if (!is_changed(point, undo, behind))
    return work.block.set_behind(work.target, index, {behind, behind + point.behind_bytes});
  report_.notes.insert("a program changes probed code at " + hex(address.value) + ": not probed there any more");
  if (Status s = work.target.write(address, undo.original, 1); !s) return s;
  return work.block.set_state(work.target, index, shared::PointState::disarmed);
}

// Decides what has to be done for one point in one mapping; nothing is written yet.
Status Armer::consider(Work& work, const PlannedPoint& point, const target::Mapping& m) {
  const Addr address = m.begin + (point.site.offset - m.offset);
  const auto known = work.block.find(address);
  const bool armed =
      known && work.block.points()[*known].state == static_cast<std::uint32_t>(shared::PointState::armed);
  std::vector<std::uint8_t> now(point.site.insn.size());
  if (Status s = work.target.read(address, now.data(), now.size()); !s) {
    refuse(point, s.error().text);
    return ok();
  }
  if (armed && now[0] == kBreakpoint) {
    work.stands(address);
    if (Status s = look_behind(work, *known); !s) return s;
    report_.armed_events.insert(point.events.begin(), point.events.end());
    if (work.block.has(*known, consumers_of(point))) return ok();
    if (Status s = work.change(); !s) return s;
    return work.block.want(work.target, *known, consumers_of(point));
  }
  if (now != point.site.insn) {
    refuse(point, "the bytes in memory are not the file's (another tracer, or code that changes itself)");
    return ok();
  }
  Pending pending{.point = {}, .copy = {}, .planned = &point, .known = known};
  pending.point.address = address;
  pending.point.file_bias = address.value - point.site.offset;
  pending.point.role = point.role;
  pending.point.insn = point.site.insn;
  pending.point.behind = bytes_behind(point.site, m);
  pending.point.consumers = consumers_of(point);
  work.pending.push_back(std::move(pending));
  return ok();
}

Status Armer::arm_file(Work& work, const FilePoints& file, const target::Mapping& m) {
  work.pending.clear();
  const auto first =
      std::lower_bound(file.points.begin(), file.points.end(), m.offset,
                       [](const PlannedPoint& p, std::uint64_t offset) { return p.site.offset < offset; });
  for (auto point = first; point != file.points.end() && point->site.offset - m.offset < m.end - m.begin; ++point)
    if (Status s = consider(work, *point, m); !s) return s;
  return arm_ifuncs(work, file, m);
}

Status Armer::place_copies(Work& work, const target::Mapping& m) {
  if (Status s = work.change(); !s) return s;
  std::uint32_t bytes = 0;
  for (Pending& p : work.pending) {
    p.point.copy_bytes = room_for_copy(p.point);
    p.point.copy = known_room(work.block, p);
    if (!p.point.copy) bytes += p.point.copy_bytes;
  }
  auto room = bytes != 0 ? island_room(work.target, work.block, m.begin, m.end, bytes) : Result<Addr>(Addr{});
  if (!room) {
    for (const Pending& p : work.pending) refuse(*p.planned, room.error().text);
    return ok();
  }
  std::vector<Pending> ready;
  for (Pending& p : work.pending) {
    if (!p.point.copy) p.point.copy = std::exchange(*room, *room + p.point.copy_bytes);
    auto copy = x86::make_copy(p.point.insn, p.point.address, p.point.copy);
    if (!copy) {
      refuse(*p.planned, copy.error().text);
      continue;
    }
    p.point.copy_bytes = static_cast<std::uint32_t>(copy->bytes.size());
    p.point.marks = std::move(copy->marks);
    p.copy = std::move(copy->bytes);
    ready.push_back(std::move(p));
  }
  work.pending = std::move(ready);
  return publish(work);
}

// Whether the place is about to be armed for somebody else already; then it is for both.
bool Armer::join_pending(Work& work, PlannedPoint& point, const target::Mapping& m) {
  const Addr address = m.begin + (point.site.offset - m.offset);
  const auto same = std::find_if(work.pending.begin(), work.pending.end(),
                                 [address](const Pending& p) { return p.point.address == address; });
  if (same == work.pending.end()) return false;
  const auto& others = same->planned->events;
  point.events.insert(point.events.end(), others.begin(), others.end());
  std::sort(point.events.rbegin(), point.events.rend());
  point.role = same->planned->role;
  same->planned = &point;
  same->point.consumers = consumers_of(point);
  return true;
}

// The choice of an IFUNC is known once the object is relocated; until then its points wait for the next call.
Status Armer::arm_ifuncs(Work& work, const FilePoints& file, const target::Mapping& m) {
  for (const PlannedPoint& point : file.ifuncs) {
    if (point.site.offset < m.offset || point.site.offset - m.offset >= m.end - m.begin) continue;
    auto& relocations = relocations_[file.file.get()];
    if (!relocations) relocations = elf::relocations_of(*file.file);
    auto chosen = chosen_implementation(work.target, file.file, *relocations, m, point.site);
    if (!chosen) {
      refuse(point, chosen.error().text);
      continue;
    }
    if (!*chosen) {
      work.waits = true;
      continue;
    }
    auto planned = std::make_unique<PlannedPoint>(PlannedPoint{**chosen, point.events, point.role});
    if (!join_pending(work, *planned, m))
      if (Status s = consider(work, *planned, m); !s) return s;
    choices_.push_back(std::move(planned));  // what was considered points to it
  }
  return work.pending.empty() ? ok() : place_copies(work, m);
}

Status Armer::publish(Work& work) {
  std::vector<NewPoint> fresh;
  for (const Pending& p : work.pending) {
    if (Status s = work.target.write(p.point.copy, p.copy.data(), p.copy.size()); !s) return s;
    if (p.known) continue;
    fresh.push_back(p.point);
  }
  if (Status s = work.block.add(work.target, std::move(fresh)); !s) return s;
  for (const Pending& p : work.pending) {
    if (p.known)
      if (Status s = work.block.set_copy(work.target, *p.known, p.point); !s) return s;
    if (Status s = work.target.write(p.point.address, &kBreakpoint, 1); !s) return s;
    work.stands(p.point.address);
    report_.armed_events.insert(p.planned->events.begin(), p.planned->events.end());
  }
  return ok();
}

// The points of ours first: a probe's breakpoint must find the signals in order.
Status Armer::arm_mapping(Work& work, const target::Mapping& m) {
  const auto version = file_behind(work.target.pid(), m);
  if (!version) return ok();
  const FilePoints& own = system_calls_of(work.target, m, *version);
  if (!own.points.empty())
    if (Status s = arm_file(work, own, m); !s) return s;
  for (const FilePoints& file : probes_.files()) {
    if (file.file->identity() != version->identity) continue;
    if (has_changed(file, *version)) {
      for (const auto* points : {&file.points, &file.ifuncs})
        for (const PlannedPoint& point : *points) refuse(point, "the file has changed since it was read");
      continue;
    }
    if (Status s = arm_file(work, file, m); !s) return s;
  }
  return ok();
}

// What IFUNCs in a mapping that was looked at before have chosen since.
Status Armer::arm_choices(Work& work, const target::Mapping& m) {
  const auto version = file_behind(work.target.pid(), m);
  for (const FilePoints& file : probes_.files()) {
    if (!version || file.file->identity() != version->identity || has_changed(file, *version)) continue;
    work.pending.clear();
    if (Status s = arm_ifuncs(work, file, m); !s) return s;
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

const target::Mapping* mapping_at(const std::vector<target::Mapping>& maps, Addr address) {
  const auto next =
      std::upper_bound(maps.begin(), maps.end(), address, [](Addr a, const target::Mapping& m) { return a < m.begin; });
  return next != maps.begin() && address < (next - 1)->end ? &*(next - 1) : nullptr;
}

bool is_breakpoint(target::Target& target, Addr address) {
  std::uint8_t now = 0;
  return target.read(address, &now, 1) && now == kBreakpoint;
}

// Whether nothing has happened to a mapping since it was looked at. The witness shows what nobody has reported.
bool is_untouched(target::Target& target, const KnownMapping& known, const target::Mapping& m, const Changed& changed) {
  const bool replaced = m.begin < changed.end && changed.begin < m.end;
  return is_same(known, m) && !replaced && (!known.witness || is_breakpoint(target, known.witness));
}

const KnownMapping* known_at(const std::vector<KnownMapping>& known, Addr begin) {
  const auto found =
      std::lower_bound(known.begin(), known.end(), begin, [](const KnownMapping& k, Addr a) { return k.begin < a; });
  return found != known.end() && found->begin == begin ? &*found : nullptr;
}

}  // namespace

// The agent asks once more when a library has been relocated.
Status Armer::note_unbound(Work& work) {
  if ((work.block.head().unbound != 0) == work.unbound) return ok();
  if (Status s = work.change(); !s) return s;
  work.block.head().unbound = work.unbound ? 1 : 0;
  return work.block.write_head(work.target);
}

// One mapping; `known`: what was found there the last time, null: nothing.
Status Armer::look_at(Work& work, const target::Mapping& m, const KnownMapping* known) {
  const bool untouched = known != nullptr && is_untouched(work.target, *known, m, work.range);
  work.witness = untouched ? known->witness : Addr{};
  work.waits = false;
  if (!untouched)
    if (Status s = arm_mapping(work, m); !s) return s;
  if (untouched && known->waits)
    if (Status s = arm_choices(work, m); !s) return s;
  work.unbound = work.unbound || work.waits;
  const KnownMapping found{m.begin, m.end, m.offset, m.device, m.inode, work.witness, work.waits};
  if (untouched)
    work.untouched.push_back(found);
  else
    work.looked_at[m.begin] = found;
  return ok();
}

Status Armer::arm(target::Target& target, Block& block, const Changed& changed) {
  auto maps = target.maps();
  if (!maps) return maps.error();
  Work work(target, block, changed);
  const auto* remembered = known_.mappings(block.stamp());
  if (remembered != nullptr) work.before = *remembered;
  // Where points may have lost their code.
  std::vector<Changed> doubtful{remembered != nullptr ? changed : Changed{Addr{0}, Addr{~std::uint64_t{0}}}};
  const target::Mapping* agent = mapping_at(*maps, Addr{block.head().agent_base});
  for (const target::Mapping& m : *maps) {
    if (!can_be_armed(m) || (agent != nullptr && m.path == agent->path)) continue;
    if (Status s = look_at(work, m, known_at(work.before, m.begin)); !s) return s;
  }
  for (const KnownMapping& known : work.before)
    if (known_at(work.untouched, known.begin) == nullptr) doubtful.push_back({known.begin, known.end});
  for (const Changed& range : doubtful)
    if (Status s = retire(work, *maps, range); !s) return s;
  if (Status s = note_unbound(work); !s) return s;
  known_.keep_mappings(block.stamp(), work.all_known());
  return ok();
}

namespace {

// Whether a point that was not found again has its code all the same: while that is being changed, and may be written; in a
// file that cannot be looked at any more; as a copy, moved to large pages.
bool has_its_code(target::Target& target, const shared::Point& point, const shared::Undo& undo,
                  const target::Mapping& m) {
  std::uint8_t behind[shared::kMostBehind] = {};
  if (m.shared || !is_breakpoint(target, Addr{point.address})) return false;
  return target.read(Addr{point.address + 1}, behind, point.behind_bytes) && shared::is_as_before(point, undo, behind);
}

}  // namespace

namespace {

// Whether a mapping is a part of one that was looked at before, of the same file in the same place.
bool was_there(const std::vector<KnownMapping>& before, const target::Mapping& m) {
  return std::any_of(before.begin(), before.end(), [&](const KnownMapping& known) {
    return m.is_file() && !m.shared && known.inode == m.inode && known.device == m.device &&
           known.begin.value - known.offset == m.begin.value - m.offset;
  });
}

}  // namespace

// Points whose code is gone (dlclose): what comes to stand there later is not theirs.
Status Armer::retire(Work& work, const std::vector<target::Mapping>& maps, const Changed& range) {
  for (const std::uint32_t i : work.block.points_in(range.begin, range.end)) {
    const shared::Point& point = work.block.points()[i];
    if (point.state != static_cast<std::uint32_t>(shared::PointState::armed)) continue;
    if (work.standing.count(point.address) != 0) continue;
    const target::Mapping* m = mapping_at(maps, Addr{point.address});
    if (m != nullptr && known_at(work.untouched, m->begin) != nullptr) continue;
    if (m != nullptr && was_there(work.before, *m) && is_breakpoint(work.target, Addr{point.address})) {
      if (Status s = look_behind(work, i); !s) return s;
      work.looked_at[m->begin] = {m->begin, m->end, m->offset, m->device, m->inode, {}, false};
      continue;
    }
    if (m != nullptr && has_its_code(work.target, point, work.block.undo()[i], *m)) {
      if (!can_be_armed(*m)) work.looked_at[m->begin] = {.begin = m->begin, .end = m->end};
      continue;
    }
    if (Status s = work.change(); !s) return s;
    if (Status s = work.block.set_state(work.target, i, shared::PointState::unmapped); !s) return s;
  }
  return ok();
}

}  // namespace uprobe::control
