#include "engine/control/armer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <functional>
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

// A planned copy: what will be written where.
struct Pending {
  NewPoint point;
  std::vector<std::uint8_t> copy;
  const PlannedPoint* planned;
  std::optional<std::uint32_t> known;  // an entry of the block to be armed again
};

// Two definitions can lead to one place: IFUNCs that chose the same implementation, or one that chose what is probed by
// name. Newest first, as everywhere.
std::unique_ptr<PlannedPoint> both_of(const PlannedPoint& first, const PlannedPoint& second) {
  auto both = std::make_unique<PlannedPoint>(first);
  both->events.insert(both->events.end(), second.events.begin(), second.events.end());
  std::sort(both->events.begin(), both->events.end(), std::greater<>());
  return both;
}

std::vector<shared::Consumer> consumers_of(const PlannedPoint& point) {
  std::vector<shared::Consumer> consumers;
  for (const std::uint16_t event : point.events) consumers.push_back({.session = 0, .event = event, .next = 0});
  return consumers;
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
  std::vector<Pending> pending;
};

const elf::Identity& Armer::identity_of(const target::Target& target, const target::Mapping& m) {
  const std::string key =
      std::to_string(target.pid()) + ":" + std::to_string(m.device) + ":" + std::to_string(m.inode) + ":" + m.path;
  auto known = identities_.find(key);
  if (known == identities_.end()) {
    known = identities_.emplace(key, identity_behind(target.pid(), m).value_or(elf::Identity{})).first;
  }
  return known->second;
}

// The sites where a libc changes signals and starts programs, found once per file.
const FilePoints& Armer::system_calls_of(const target::Target& target, const target::Mapping& m,
                                         const elf::Identity& identity) {
  const auto [entry, is_new] = system_calls_.try_emplace(identity);
  FilePoints& points = entry->second;
  if (!is_new) return points;
  const auto name = name_behind(target.pid(), m, identity);
  if (name && !plan::may_have_followed_calls(*name)) return points;
  auto file = name ? elf::ElfFile::open(*name) : Result<elf::ElfFile>(name.error());
  if (!file || file->identity() != identity) {
    const std::string why = file ? "it has changed meanwhile" : file.error().text;
    report_.notes.insert(m.path + ": its system calls are not followed: " + why);
    return points;
  }
  points.file = std::make_shared<const elf::ElfFile>(file.take());
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

// Decides what has to be done for one point in one mapping; nothing is written yet.
Status Armer::consider(Work& work, const PlannedPoint& point, const target::Mapping& m) {
  const Addr address = m.begin + (point.site.offset - m.offset);
  const auto known = work.block.find(address);
  std::vector<std::uint8_t> now(point.site.insn.size());
  if (Status s = work.target.read(address, now.data(), now.size()); !s) {
    refuse(point, s.error().text);
    return ok();
  }
  if (known && now[0] == kBreakpoint) {
    report_.armed_events.insert(point.events.begin(), point.events.end());
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
  if (Status s = arm_ifuncs(work, file, m); !s) return s;
  if (work.pending.empty()) return ok();

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

// The choice of an IFUNC is known once the object is relocated; until then its points wait for the next call.
Status Armer::arm_ifuncs(Work& work, const FilePoints& file, const target::Mapping& m) {
  for (const PlannedPoint& point : file.ifuncs) {
    if (point.site.offset < m.offset || point.site.offset - m.offset >= m.end - m.begin) continue;
    auto chosen = chosen_implementation(work.target, file.file, m, point.site);
    if (!chosen) {
      refuse(point, chosen.error().text);
      continue;
    }
    if (!*chosen) continue;
    auto planned = std::make_unique<PlannedPoint>(PlannedPoint{**chosen, point.events, point.role});
    const auto same = std::find_if(work.pending.begin(), work.pending.end(),
                                   [&](const Pending& p) { return p.planned->site.offset == planned->site.offset; });
    if (same != work.pending.end()) {
      planned = both_of(*same->planned, *planned);
      same->planned = planned.get();
      same->point.consumers = consumers_of(*planned);
    } else if (Status s = consider(work, *planned, m); !s) {
      return s;
    }
    choices_.push_back(std::move(planned));  // what was considered points to it
  }
  return ok();
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
    report_.armed_events.insert(p.planned->events.begin(), p.planned->events.end());
  }
  return ok();
}

// The points of ours first: a probe's breakpoint must find the signals in order.
Status Armer::arm_mapping(Work& work, const target::Mapping& m) {
  const elf::Identity identity = identity_of(work.target, m);
  if (identity == elf::Identity{}) return ok();
  const FilePoints& own = system_calls_of(work.target, m, identity);
  if (!own.points.empty())
    if (Status s = arm_file(work, own, m); !s) return s;
  for (const FilePoints& file : probes_.files())
    if (file.file->identity() == identity)
      if (Status s = arm_file(work, file, m); !s) return s;
  return ok();
}

namespace {

std::string path_at(const std::vector<target::Mapping>& maps, Addr address) {
  for (const target::Mapping& m : maps)
    if (m.begin <= address && address < m.end) return m.path;
  return {};
}

}  // namespace

Status Armer::arm(target::Target& target, Block& block) {
  auto maps = target.maps();
  if (!maps) return maps.error();
  Work work{target, block, {}};
  const std::string agent = path_at(*maps, Addr{block.head().agent_base});
  for (const target::Mapping& m : *maps) {
    // Shared mappings would change the file on disk; only code is patched, and never the agent's.
    if (!m.executable || m.shared || m.writable || !m.is_file() || m.path == agent) continue;
    if (Status s = arm_mapping(work, m); !s) return s;
  }
  return retire(work, *maps);
}

// Points whose code is gone (dlclose): what comes to stand there later is not theirs.
Status Armer::retire(Work& work, const std::vector<target::Mapping>& maps) {
  const auto& points = work.block.points();
  for (std::uint32_t i = 0; i < points.size(); ++i) {
    if (points[i].state != static_cast<std::uint32_t>(shared::PointState::armed)) continue;
    const Addr address{points[i].address};
    std::uint8_t now = 0;
    const bool mapped = std::any_of(maps.begin(), maps.end(), [&](const target::Mapping& m) {
      return m.begin <= address && address < m.end && m.executable && m.is_file();
    });
    if (mapped && work.target.read(address, &now, 1) && now == kBreakpoint) continue;
    if (Status s = work.block.set_state(work.target, i, shared::PointState::unmapped); !s) return s;
  }
  return ok();
}

}  // namespace uprobe::control
