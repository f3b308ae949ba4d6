// SPDX-License-Identifier: MIT
// Arms one mapping: decides what each point needs, and does it.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <functional>

#include "arch/code/scan.h"
#include "engine/arm/armer_work.h"
#include "engine/arm/ifunc.h"
#include "engine/base/text.h"
#include "engine/patch/batched_patch.h"
#include "engine/patch/patch.h"

namespace uprobe::control {
namespace {

using shared::kBreakpoint;

// Whether it is useful only together with all other exits of its function.
bool is_part(const PlannedConsumer& consumer) {
  return consumer.kind == shared::ConsumerKind::exit || consumer.kind == shared::ConsumerKind::note;
}

// Whether a consumer is to be armed.
bool is_wanted(const Armer::Work& work, const PlannedConsumer& consumer) {
  return !is_part(consumer) || work.incomplete.count(consumer.event) == 0;
}

std::vector<shared::Consumer> consumers_of(const Armer::Work& work, const PlannedPoint& point) {
  std::vector<shared::Consumer> consumers;
  for (const PlannedConsumer& wanted : point.consumers)
    if (is_wanted(work, wanted))
      consumers.push_back({.session = 0,
                           .kind = static_cast<std::uint8_t>(wanted.kind),
                           .event = wanted.event,
                           .next = 0,
                           .distance = wanted.distance,
                           .pops = wanted.pops,
                           .lead = wanted.lead,
                           .restored = wanted.restored});
  return consumers;
}

void add_events(plan::SparseSet& to, const Armer::Work& work, const PlannedPoint& point) {
  for (const PlannedConsumer& consumer : point.consumers)
    if (is_wanted(work, consumer)) to.add(consumer.event);
}

// The file's bytes after the first byte of an instruction at an offset, up to the end of the mapping.
std::vector<std::uint8_t> bytes_following(const elf::ElfFile& from, std::uint64_t offset, const target::Mapping& m) {
  const auto file = from.bytes();
  const std::uint64_t first = offset + 1, mapped = m.offset + (m.end - m.begin);
  const std::uint64_t last = std::min({first + shared::kMostFollowing, mapped, std::uint64_t{file.size()}});
  return first < last ? std::vector<std::uint8_t>(file.begin() + static_cast<std::ptrdiff_t>(first),
                                                  file.begin() + static_cast<std::ptrdiff_t>(last))
                      : std::vector<std::uint8_t>();
}

bool is_changed(const shared::Point& point, const shared::Undo& undo, const std::uint8_t* after) {
  const shared::ArmedText armed = shared::armed_text(point);
  for (unsigned i = 0; i + 1 < point.insn_bytes && i < point.following_bytes; ++i)
    if (i + 1 >= armed.length && after[i] != undo.original[i + 1] && after[i] != kBreakpoint) return true;
  return false;
}

// Whether the process has the file's bytes in [address, address + bytes).
bool has_file_bytes(TextView& text, Addr address, std::span<const std::uint8_t> file, std::size_t bytes) {
  std::vector<std::uint8_t> now(bytes);
  return file.size() >= bytes && text.read(address, now.data(), bytes) &&
         std::equal(now.begin(), now.end(), file.begin());
}

// Bit i: the byte at address + i + 1 is, or was, part of a jump in the process.
std::uint16_t jumps_after(const Block& block, Addr address) {
  std::uint16_t bits = 0;
  for (const std::uint32_t i : block.points_in(address + 1, address + 1 + shared::kMostFollowing)) {
    const shared::Point& jump = block.points()[i];
    for (std::uint64_t byte = 0; byte < jump.jump_bytes; ++byte)
      bits = static_cast<std::uint16_t>(bits | 1u << (jump.address + byte - address.value - 1));
  }
  return bits;
}

// Other roles need the thread's registers in a signal frame at each hit.
bool may_jump(shared::PointRole role) {
  return role == shared::PointRole::probe || role == shared::PointRole::open_call;
}

// The instructions before the place, where the jump begins.
std::unique_ptr<Pending> prefix_window_of(const Pending& place, const plan::FileJumps& jumps,
                                          const plan::Window& window, const Block& block, const target::Mapping& m) {
  const auto code = jumps.flow().bytes_at(window.begin());
  arch::Scanned first;
  if (!arch::scan(code, Addr{window.begin()}, first)) return nullptr;
  auto prefix_window = std::make_unique<Pending>();
  prefix_window->window = &window;
  prefix_window->code.assign(code.begin(), code.begin() + window.prefix_window);
  prefix_window->point.address = place.point.address - window.prefix_window;
  prefix_window->point.file_bias = place.point.file_bias;
  prefix_window->point.insn.assign(code.begin(), code.begin() + first.length);
  prefix_window->point.following =
      bytes_following(*place.planned->site.file, place.planned->site.offset - window.prefix_window, m);
  prefix_window->point.following_varies = jumps.changed_after(window.begin());
  prefix_window->known = block.find(prefix_window->point.address);
  return prefix_window;
}

// Makes it a jump: the whole window is displaced.
void take_window(Pending& pending, const plan::FileJumps& jumps, const plan::Window& window, const Block& block,
                 const target::Mapping& m) {
  const plan::FileFlow& flow = jumps.flow();
  const auto code = flow.bytes_at(window.address);
  pending.window = &window;
  pending.code.assign(code.begin(), code.begin() + window.code_length);
  if (window.kind == plan::WindowKind::prefix_window)
    pending.prefix_window = prefix_window_of(pending, jumps, window, block, m);
  if (window.kind != plan::WindowKind::short_jump) return;
  const auto padding = flow.bytes_at(window.padding);
  const Addr bias{pending.point.address.value - window.address};
  NewPoint& far = pending.long_jump.emplace();
  far.address = bias + window.padding;
  far.file_bias = pending.point.file_bias;
  far.insn.assign(padding.begin(), padding.begin() + shared::kJumpBytes);
  far.code_bytes = shared::kJumpBytes;
  pending.known_long_jump = block.find(far.address);
}

// Restores the text while other threads may be executing it. False where the probe has to stay.
bool take_out(target::Target& target, const shared::Point& point, const shared::Undo& undo) {
  const Patch patch = patch_back(point, undo);
  ProcessSerializer serializer(target.pid());
  return patch_running(target, {&patch, 1}, serializer).front() == Patched::done;
}

}  // namespace

void Armer::refuse(Work& work, const PlannedPoint& point, const std::string& why) {
  if (work.is_live && work.refusal.empty()) work.refusal = why;
  for (const PlannedConsumer& consumer : point.consumers) {
    if (is_part(consumer)) work.incomplete.insert(consumer.event);
    if (!work.is_live) report_.refusals[consumer.event] = why;
  }
  if (work.is_live) return;
  if (report_.first_refusal.empty()) report_.first_refusal = why;
  const std::string& path = point.site.file->path();
  report_.notes.insert(point.consumers.empty() ? path + ": the agent does not follow the program there: " + why
                                               : path + ":" + hex(point.site.offset) + " not probed: " + why);
}

// The process has found that the bytes after a probed instruction have changed. They are noted as they are now. If the program
// has changed the instruction itself, the point is disarmed.
Status Armer::look_at_following(Work& work, std::uint32_t place) {
  const std::uint32_t index = work.block.leads_to(place);
  const shared::Point& point = work.block.points()[index];
  const shared::Undo& undo = work.block.undo()[index];
  const Addr address{point.address};
  std::uint8_t after[shared::kMostFollowing] = {};
  if (address < work.range.begin || work.range.end <= address) return ok();
  if (!work.target.read(address + 1, after, point.following_bytes) || shared::is_as_before(point, undo, after))
    return ok();
  RETURN_IF_ERROR(work.change());
  if (!is_changed(point, undo, after))
    return work.block.set_following(work.target, index, {after, after + point.following_bytes});
  report_.notes.insert("the program has changed probed code at " + hex(address.value) + ": it is not probed any more");
  return take_out(work.target, point, undo) ? work.block.set_state(work.target, index, shared::PointState::disarmed)
                                            : ok();
}

// The window that a point may use in this mapping; null: none, for the reason in `why`.
const plan::Window* Armer::window_for(Work& work, const Pending& pending, const target::Mapping& m,
                                      const plan::FileJumps* jumps, std::string& why) {
  const auto none = [&why](std::string because) -> const plan::Window* {
    why = std::move(because);
    return nullptr;
  };
  if (work.is_live) return none("the program is running");
  const plan::Window* window = jumps != nullptr ? jumps->window_at(pending.planned->site.address) : nullptr;
  if (window == nullptr) return none("the agent itself needs a breakpoint there, or another probe is too near");
  if (!window->is_jump() || !may_jump(pending.point.role)) return none(window->text());
  if (window->prefix_window != 0 && pending.point.role != shared::PointRole::probe)
    return none("the agent itself needs a jump of its own there");
  if (!work.no_thread_runs() && !work.no_thread_is_inside(*window, pending.point.address))
    return none("the program may be executing it");
  const bool has_middle = window->instructions > 1 || window->prefix_window != 0;
  if (has_middle && !follows_returns(work)) return none("it is not known how the program's signal handlers return");
  const auto is_original = [&](std::uint64_t address, std::size_t bytes) {
    const Addr at = pending.point.address + (address - window->address);
    return m.begin <= at && at + bytes <= m.end &&
           has_file_bytes(work.text, at, jumps->flow().bytes_at(address), bytes);
  };
  const bool is_short = window->kind == plan::WindowKind::short_jump;
  const std::size_t bytes = window->prefix_window + std::max(window->length, window->code_length);
  const Addr begin = pending.point.address - window->prefix_window;
  if (const char* barred = reason_barred(work, m, begin, begin + bytes)) return none(barred);
  const bool is_all =
      is_original(window->begin(), bytes) && (!is_short || is_original(window->padding, shared::kJumpBytes));
  return is_all ? window : none("the bytes after it are not the file's");
}

Status Armer::join(Work& work, const PlannedPoint& point, std::uint32_t known) {
  work.stands(work.block.points()[known]);
  RETURN_IF_ERROR(look_at_following(work, known));
  add_events(report_.armed_events, work, point);
  add_events(shared::is_armed_jump(work.block.points()[known]) ? report_.jumps : report_.breakpoints, work, point);
  if (work.block.has(known, consumers_of(work, point))) return ok();
  RETURN_IF_ERROR(work.change());
  return work.block.want(work.target, known, consumers_of(work, point));
}

// The point, without the consumers that this process must refuse; null: none is left.
const PlannedPoint* Armer::possible(Work& work, const PlannedPoint& point) {
  const auto is_stub = [](const PlannedConsumer& consumer) { return consumer.kind == shared::ConsumerKind::stub; };
  if (std::none_of(point.consumers.begin(), point.consumers.end(), is_stub) || finds_stubs(work)) return &point;
  auto rest = std::make_unique<PlannedPoint>(point), refused = std::make_unique<PlannedPoint>(point);
  std::erase_if(rest->consumers, is_stub);
  std::erase_if(refused->consumers, std::not_fn(is_stub));
  refuse(work, *refused,
         "exceptions would not pass its return stub, because it is not known how the program finds unwind information "
         "(--return=exits)");
  if (rest->consumers.empty() && rest->role == shared::PointRole::probe) return nullptr;
  return choices_.emplace_back(std::move(rest)).get();
}

// Decides what one point needs in one mapping. Writes nothing.
Status Armer::consider(Work& work, const PlannedPoint& given, const target::Mapping& m, const plan::FileJumps* jumps) {
  const PlannedPoint* left = possible(work, given);
  if (left == nullptr) return ok();
  const PlannedPoint& point = *left;
  const Addr address = m.begin + (point.site.offset - m.offset);
  if (const char* why = reason_barred(work, point, m)) {
    refuse(work, point, why);
    return ok();
  }
  const auto known = work.block.find(address);
  const bool armed =
      known && work.block.points()[*known].state == static_cast<std::uint32_t>(shared::PointState::armed);
  if (armed && (work.stands_soon(address) || has_armed_text(work.target, work.block, work.block.points()[*known])))
    return join(work, point, *known);
  std::vector<std::uint8_t> now(point.site.insn.size());
  if (Status s = work.text.read(address, now.data(), now.size()); !s) {
    refuse(work, point, s.error().text);
    return ok();
  }
  if (now != point.site.insn) {
    refuse(work, point, "the bytes in memory are not the file's (another tracer, or self-modifying code)");
    return ok();
  }
  Pending pending{.point = {}, .code = point.site.insn, .planned = &point, .known = known};
  pending.point.address = address;
  pending.point.file_bias = address.value - point.site.offset;
  pending.point.role = point.role;
  pending.point.insn = point.site.insn;
  pending.point.following = bytes_following(*point.site.file, point.site.offset, m);
  pending.point.following_varies = jumps != nullptr ? jumps->changed_after(point.site.address) : std::uint16_t{0};
  if (work.is_live) pending.point.following_varies = jumps_after(work.block, address);
  std::string why;
  const plan::Window* window = window_for(work, pending, m, jumps, why);
  if (window == nullptr && options_.tier == plan::Tier::jump && !point.consumers.empty()) {
    refuse(work, point, "it would need a breakpoint: " + why);
    return ok();
  }
  if (window == nullptr && options_.tier != plan::Tier::breakpoint)
    for (const PlannedConsumer& consumer : point.consumers) report_.against[consumer.event] = why;
  if (window != nullptr) take_window(pending, *jumps, *window, work.block, m);
  work.pending.push_back(std::move(pending));
  return ok();
}

Status Armer::arm_file(Work& work, const FilePoints& file, const target::Mapping& m, const plan::FileJumps* jumps) {
  work.begin_file();
  const auto first =
      std::lower_bound(file.points.begin(), file.points.end(), m.offset,
                       [](const PlannedPoint& p, std::uint64_t offset) { return p.site.offset < offset; });
  const auto last = std::partition_point(
      first, file.points.end(), [&m](const PlannedPoint& p) { return p.site.offset - m.offset < m.end - m.begin; });
  work.pending.reserve(static_cast<std::size_t>(last - first));
  leave_barred_out(work, {first, last}, m);
  for (auto point = first; point != last; ++point) RETURN_IF_ERROR(consider(work, *point, m, jumps));
  return arm_ifuncs(work, file, m);
}

// Whether the place is already in the list for another point; then both share it.
bool Armer::join_pending(Work& work, PlannedPoint& point, const target::Mapping& m) {
  const Addr address = m.begin + (point.site.offset - m.offset);
  const auto same = std::find_if(work.pending.begin(), work.pending.end(),
                                 [address](const Pending& p) { return p.point.address == address; });
  if (same == work.pending.end()) return false;
  const auto& others = same->planned->consumers;
  point.consumers.insert(point.consumers.end(), others.begin(), others.end());
  std::stable_sort(point.consumers.begin(), point.consumers.end(),
                   [](const PlannedConsumer& a, const PlannedConsumer& b) { return a.event > b.event; });
  point.role = same->planned->role;
  same->planned = &point;
  return true;
}

// An IFUNC has chosen once its object is relocated; until then its points wait for the next call.
Status Armer::arm_ifuncs(Work& work, const FilePoints& file, const target::Mapping& m) {
  plan::FileJumps* jumps = jumps_ && !work.is_live && !file.ifuncs.empty() ? &jumps_->of(file) : nullptr;
  for (const PlannedPoint& point : file.ifuncs) {
    if (point.site.offset < m.offset || point.site.offset - m.offset >= m.end - m.begin) continue;
    auto& relocations = relocations_[file.file.get()];
    if (!relocations) relocations = elf::relocations_of(*file.file);
    auto chosen = chosen_implementation(work.target, file.file, *relocations, m, point.site);
    if (!chosen) {
      refuse(work, point,
             work.is_live ? "its implementation is chosen at run time (IFUNC) and cannot be found out from outside"
                          : chosen.error().text);
      continue;
    }
    if (!*chosen) {
      work.waits = true;
      continue;
    }
    auto planned = std::make_unique<PlannedPoint>(PlannedPoint{**chosen, point.consumers, point.role});
    if (jumps != nullptr) jumps->add(planned->site.address);
    if (!join_pending(work, *planned, m)) RETURN_IF_ERROR(consider(work, *planned, m, jumps));
    choices_.push_back(std::move(planned));  // the pending points refer to it
  }
  return work.pending.empty() ? ok() : place(work, m);
}

// Makes the consumer lists of all points that are to be placed.
Status Armer::list_consumers(Work& work) {
  for (Pending& p : work.pending) {
    auto consumers = work.block.list_for(consumers_of(work, *p.planned), p.known.has_value());
    if (!consumers) return consumers.error();
    p.point.consumers = *consumers;
  }
  return ok();
}

// Some points may have lost consumers after they were placed. Their bodies still record for the old list, so they ask the
// agent.
Status Armer::list_again(Work& work) {
  for (const Pending& p : work.pending)
    if (p.window != nullptr && consumers_of(work, *p.planned).size() != p.planned->consumers.size())
      RETURN_IF_ERROR(ask_agent(work.target, p.point.copy));
  return list_consumers(work);
}

Status Armer::place(Work& work, const target::Mapping& m) {
  const auto is_for = [&](const PlannedConsumer& consumer) { return is_wanted(work, consumer); };
  std::erase_if(work.pending, [&](const Pending& p) {
    const std::vector<PlannedConsumer>& consumers = p.planned->consumers;
    return !consumers.empty() && p.point.role == shared::PointRole::probe && std::ranges::none_of(consumers, is_for);
  });
  if (work.pending.empty()) return ok();
  RETURN_IF_ERROR(work.change());
  RETURN_IF_ERROR(list_consumers(work));
  const std::size_t incomplete = work.incomplete.size();
  const PlaceContext context{
      .target = work.target,
      .block = work.block,
      .area = options_.area,
      .has_stubs = probes_.wants_stubs(),
      .begin = m.begin,
      .end = m.end,
      .refuse = [&](const Pending& p, const std::string& why) { refuse(work, *p.planned, why); }};
  RETURN_IF_ERROR(place_all(context, work.pending));
  // Slots contain the index of their point, so a point without consumers stays in the list.
  if (work.incomplete.size() != incomplete) RETURN_IF_ERROR(list_again(work));
  const auto is_jump = [](const Pending& p) { return p.window != nullptr; };
  if (std::any_of(work.pending.begin(), work.pending.end(), is_jump)) work.block.note_jumps(m.begin, m.end);
  return publish(work);
}

namespace {

ArmedPlace text_of(Armer::Work& work, std::uint32_t index) {
  const shared::Point& point = work.block.points()[index];
  work.stands(point);
  return {Addr{point.address}, shared::armed_text(point), static_cast<shared::PointRole>(point.role)};
}

Status write_each(target::Target& target, const std::vector<ArmedPlace>& texts) {
  for (const ArmedPlace& text : texts) RETURN_IF_ERROR(target.write(text.at, text.armed.bytes, text.armed.length));
  return ok();
}

Status write_together(target::Target& target, const std::vector<ArmedPlace>& texts) {
  std::vector<TextPiece> pieces;
  for (const ArmedPlace& text : texts) pieces.push_back({text.at, {text.armed.bytes, text.armed.length}});
  return write_in_runs(target, std::move(pieces));
}

}  // namespace

// The tables first, the text last.
Status Armer::publish(Work& work) {
  std::vector<NewPoint> fresh;
  fresh.reserve(work.pending.size());
  auto next = static_cast<std::uint32_t>(work.block.points().size());
  for (Pending& p : work.pending) {
    if (!p.known) fresh.push_back(std::move(p.point));
    if (p.long_jump && !p.known_long_jump) fresh.push_back(std::move(*p.long_jump));
    if (p.prefix_window && !p.prefix_window->known) fresh.push_back(std::move(p.prefix_window->point));
  }
  RETURN_IF_ERROR(work.block.add(work.target, std::move(fresh)));
  std::vector<Block::Change> changes;
  for (const Pending& p : work.pending) {
    if (p.known) changes.push_back({*p.known, &p.point});
    if (p.known_long_jump) changes.push_back({*p.known_long_jump, &*p.long_jump});
    if (p.prefix_window && p.prefix_window->known)
      changes.push_back({*p.prefix_window->known, &p.prefix_window->point});
  }
  RETURN_IF_ERROR(work.block.set_points(work.target, std::move(changes)));
  std::vector<ArmedPlace> texts;
  texts.reserve(work.pending.size());
  work.standing.reserve(work.standing.size() + 2 * work.pending.size());
  const auto index_of = [&](const std::optional<std::uint32_t>& known) { return known ? *known : next++; };
  for (const Pending& p : work.pending) {
    const std::uint32_t index = index_of(p.known);
    if (p.long_jump) texts.push_back(text_of(work, index_of(p.known_long_jump)));
    if (p.prefix_window) work.standing.insert(p.point.address.value);
    texts.push_back(text_of(work, p.prefix_window ? index_of(p.prefix_window->known) : index));
    add_events(report_.armed_events, work, *p.planned);
    add_events(p.window != nullptr ? report_.jumps : report_.breakpoints, work, *p.planned);
  }
  if (work.target.is_held()) {
    work.texts.insert(work.texts.end(), texts.begin(), texts.end());
    return ok();
  }
  return work.no_thread_runs() ? write_together(work.target, texts) : write_each(work.target, texts);
}

// Writes all texts of a stopped process in the least time: if the tool were killed in between, the threads would run on with
// some of them. Internal points come first, because without probes they do the least harm.
Status Armer::write_texts(Work& work) {
  const auto is_own = [](const ArmedPlace& text) { return text.role != shared::PointRole::probe; };
  const auto probes = std::stable_partition(work.texts.begin(), work.texts.end(), is_own);
  RETURN_IF_ERROR(write_together(work.target, {work.texts.begin(), probes}));
  return write_together(work.target, {probes, work.texts.end()});
}

}  // namespace uprobe::control
