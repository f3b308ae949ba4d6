// SPDX-License-Identifier: MIT
#include "engine/arm/mapping_arming.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "arch/code/call_patterns.h"
#include "arch/code/scan.h"
#include "engine/arm/barring.h"
#include "engine/patch/patch.h"
#include "engine/process/ifunc.h"
#include "engine/shared/event_program.h"
#include "engine/shared/trampoline.h"

namespace uprobe::control {
namespace {

// Whether it is useful only together with all other exits of its function.
bool is_part(const PlannedConsumer& consumer) {
  return consumer.kind == shared::ConsumerKind::exit || consumer.kind == shared::ConsumerKind::note;
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
bool may_jump(shared::PointRole role) { return role == shared::PointRole::probe || shared::is_before_call(role); }

// The one instruction before a call has room for a jump, whatever the flow of the file is: no thread can be in its middle.
constexpr plan::Window kBeforeCall{
    .kind = plan::WindowKind::one, .length = shared::kJumpBytes, .code_length = shared::kJumpBytes, .instructions = 1};

// The agent has to make the call by which handlers return. It leaves that of musl alone (preload/returns.cpp) until a probe is there.
shared::PointRole role_of(const PlannedPoint& point) {
  const plan::Site& site = point.site;
  const bool returns = point.role == shared::PointRole::probe && arch::is_system_call(site.insn) &&
                       arch::is_signal_return(site.file->bytes(), site.offset);
  return returns ? shared::PointRole::system_call : point.role;
}

bool is_one_page(Addr begin, std::size_t bytes) {
  constexpr std::uint64_t kPage = 4096;
  return begin.value / kPage == (begin.value + bytes - 1) / kPage;
}

// Bit i: the byte at offset + i + 1 may be part of a jump before a call.
std::uint16_t calls_after(const FilePoints& file, std::uint64_t offset) {
  std::uint16_t bits = 0;
  const std::uint64_t end = offset + 1 + shared::kMostFollowing;
  auto at = std::ranges::upper_bound(file.points, offset, {}, [](const PlannedPoint& p) { return p.site.offset; });
  for (; at != file.points.end() && at->site.offset < end; ++at)
    for (std::uint64_t byte = at->site.offset; byte < std::min(at->site.offset + shared::kJumpBytes, end); ++byte)
      if (shared::is_before_call(at->role)) bits = static_cast<std::uint16_t>(bits | 1U << (byte - offset - 1));
  return bits;
}

// Whether a jump may come later, when the tool has seen that no thread is inside. Not for a short jump, whose long jump stays in
// the padding, nor for a prefix window: a breakpoint at its beginning is not the one at the place. Nor in Go, where goroutines that
// wait keep addresses which no look at threads sees.
bool can_be_future(const Pending& pending, const plan::Window& window) {
  using plan::WindowKind;
  return pending.point.role == shared::PointRole::probe && window.kind != WindowKind::short_jump &&
         window.kind != WindowKind::prefix_window && !window.switches_stack;
}

// ---- Go, whose handler of SIGSEGV has that signal blocked, and runs functions of the runtime alone

// Names in assembly may have no package.
bool may_be_of_runtime(std::string_view symbol) {
  constexpr std::string_view kBegins[] = {"runtime", "internal/", "sync", "type", "go.", "go:"};
  const auto begins = [symbol](std::string_view name) { return symbol.starts_with(name); };
  return symbol.find('.') == symbol.npos || std::any_of(std::begin(kBegins), std::end(kBegins), begins);
}

bool reads_memory(std::span<const shared::Insn> program) {
  using shared::Op;
  constexpr Op kReadNothing[] = {Op::end,         Op::begin, Op::load_register, Op::load_constant, Op::load_file_offset,
                                 Op::load_thread, Op::add,   Op::store_value,   Op::shift_right,   Op::shift};
  return std::any_of(program.begin(), program.end(), [&](const shared::Insn& insn) {
    return std::find(std::begin(kReadNothing), std::end(kReadNothing), insn.op) == std::end(kReadNothing);
  });
}

// Whether a hit may read memory where a fault would kill. A hit by breakpoint sees in its frame that it must not. `area` null: what
// the events read is not known.
bool may_fault_in_handler(const PlannedPoint& point, const trace::Area* area) {
  if (!may_be_of_runtime(point.site.symbol)) return false;
  if (area == nullptr || area->has_switches()) return true;  // a trigger may add the stack
  return std::any_of(point.consumers.begin(), point.consumers.end(),
                     [area](const PlannedConsumer& consumer) { return reads_memory(area->program(consumer.event)); });
}

bool leads_to_switch(const shared::Point& point) {
  return shared::is_armed_jump(point) && shared::has_thunk(point) && point.prefix_window == 0 &&
         point.jump_bytes == shared::kJumpBytes && point.copy - point.jump_to != shared::kThunkBytes;
}

// ----

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

}  // namespace

MappingArming::MappingArming(ProcessArming& process, const target::Mapping& mapping, bool is_new)
    : process_(process),
      state_(process.state),
      target_(process.target),
      block_(process.block),
      mapping_(mapping),
      is_new_(is_new),
      text_(process.target) {}

Status MappingArming::arm_mapping() {
  const auto& version = process_.version_of(mapping_);
  if (!version) return ok();
  const auto& files = state_.probes.files();
  const FilePoints& own = state_.own.in(target_, mapping_, *version);
  const auto probed = std::find_if(files.begin(), files.end(), [&](const FilePoints& file) {
    return file.file->identity() == version->identity && !has_changed(file, *version);
  });
  const bool may_have_jumps = state_.jumps && probed != files.end() && has_probes(*probed);
  const plan::FileJumps* jumps = may_have_jumps ? &state_.jumps->of(*probed) : nullptr;
  if (state_.probes.wants_code_files()) RETURN_IF_ERROR(process_.note_code(mapping_));
  if (own.fears_stubs) RETURN_IF_ERROR(process_.forbid_stubs(mapping_));
  if (!own.points.empty()) RETURN_IF_ERROR(arm_file(own, jumps));
  for (const FilePoints& file : files) {
    if (file.file->identity() != version->identity) continue;
    if (!has_changed(file, *version)) {
      RETURN_IF_ERROR(arm_file(file, jumps));
      continue;
    }
    for (const auto* points : {&file.points, &file.ifuncs})
      for (const PlannedPoint& point : *points) refuse(point, "the file has changed since it was read");
  }
  return ok();
}

Status MappingArming::arm_choices() {
  const auto& version = process_.version_of(mapping_);
  for (const FilePoints& file : state_.probes.files()) {
    if (!version || file.file->identity() != version->identity || has_changed(file, *version)) continue;
    begin_file(file);
    RETURN_IF_ERROR(arm_ifuncs(file));
  }
  return ok();
}

Status MappingArming::arm_file(const FilePoints& file, const plan::FileJumps* jumps) {
  begin_file(file);
  const auto first =
      std::lower_bound(file.points.begin(), file.points.end(), mapping_.offset,
                       [](const PlannedPoint& p, std::uint64_t offset) { return p.site.offset < offset; });
  const auto last = std::partition_point(first, file.points.end(), [this](const PlannedPoint& p) {
    return p.site.offset - mapping_.offset < mapping_.end - mapping_.begin;
  });
  pending_.reserve(static_cast<std::size_t>(last - first));
  leave_barred_out({first, last});
  look_ahead({first, last});
  for (auto point = first; point != last; ++point) RETURN_IF_ERROR(consider(*point, jumps));
  return arm_ifuncs(file);
}

// Of what is planned in the mapping.
void MappingArming::look_ahead(std::span<const PlannedPoint> points) {
  std::vector<Addr> places;
  places.reserve(points.size());
  for (const PlannedPoint& point : points) places.push_back(mapping_.begin + (point.site.offset - mapping_.offset));
  text_.look_ahead(places);
}

void MappingArming::begin_file(const FilePoints& file) {
  own_ = file.file ? &state_.own.in(file.file) : &file;
  pending_.clear();
  incomplete_.clear();
  text_.forget();
}

bool MappingArming::no_thread_runs() { return is_new_ || process_.is_quiet(); }

bool MappingArming::is_wanted(const PlannedConsumer& consumer) const {
  return !is_part(consumer) || incomplete_.count(consumer.event) == 0;
}

std::vector<shared::Consumer> MappingArming::consumers_of(const PlannedPoint& point) const {
  std::vector<shared::Consumer> consumers;
  for (const PlannedConsumer& wanted : point.consumers)
    if (is_wanted(wanted))
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

void MappingArming::add_events(plan::SparseSet& to, const PlannedPoint& point) const {
  for (const PlannedConsumer& consumer : point.consumers)
    if (is_wanted(consumer)) to.add(consumer.event);
}

void MappingArming::refuse(const PlannedPoint& point, const std::string& why) {
  for (const PlannedConsumer& consumer : point.consumers)
    if (is_part(consumer)) incomplete_.insert(consumer.event);
  process_.refuse(point, why);
}

void MappingArming::leave_barred_out(std::span<const PlannedPoint> points) {
  for (const PlannedPoint& point : points)
    if (const char* why = reason_barred(block_, point, mapping_)) refuse(point, why);
}

// What tells against a jump as long as a thread may be in the middle of its window.
const char* MappingArming::why_not_yet() const {
  return process_.is_live ? "the program is running" : "the program may be executing it";
}

// Why a window in Go's code, whose hits record on a stack of the agent's, may not be used; null: nothing is against it.
const char* MappingArming::against_switch(const Pending& pending, const plan::Window& window) {
  if (pending.point.role != shared::PointRole::probe) return "the agent itself needs a breakpoint there";
  if ((block_.head().flags & shared::kBlockReadsThreadPointer) == 0)
    return "Go code: the processor, or the kernel, has no instruction by which a thread knows itself";
  if (may_fault_in_handler(*pending.planned, state_.options.area))
    return "Go code: it may run in the handler of SIGSEGV, where memory cannot be read without a signal's frame";
  return window.keeps_addresses && !no_thread_runs() ? "a goroutine may wait in the middle of it" : nullptr;
}

// The same before a call, in a file whose flow is not known.
const plan::Window* MappingArming::window_before_call(const Pending& pending, std::string& why) {
  const std::size_t bytes = pending.code.size();
  if (!state_.jumps || process_.is_live || bytes < shared::kJumpBytes || !is_one_page(pending.point.address, bytes))
    return nullptr;
  if (!no_thread_runs() && !process_.no_thread_is_inside(kBeforeCall, pending.point.address))
    why = why_not_yet();
  else if (const char* barred = reason_barred(block_, mapping_, pending.point.address, pending.point.address + bytes))
    why = barred;
  return why.empty() ? &kBeforeCall : nullptr;
}

// The window that a point may use in this mapping; null: none, for the reason in `why`. A window with a reason is for a future
// jump.
const plan::Window* MappingArming::window_for(const Pending& pending, const plan::FileJumps* jumps, std::string& why) {
  const auto none = [&why](std::string because) -> const plan::Window* {
    why = std::move(because);
    return nullptr;
  };
  if (changes_program(*pending.planned)) return none(kChangesProgram);
  if (jumps == nullptr && shared::is_before_call(pending.point.role)) return window_before_call(pending, why);
  if (process_.is_live && jumps == nullptr) return none("the program is running");
  const plan::Window* window = jumps != nullptr ? jumps->window_at(pending.planned->site.address) : nullptr;
  if (window == nullptr) return none("the agent itself needs a breakpoint there, or another probe is too near");
  if (!window->is_jump() || !may_jump(pending.point.role)) return none(window->text());
  if (window->prefix_window != 0 && pending.point.role != shared::PointRole::probe)
    return none("the agent itself needs a jump of its own there");
  const bool is_future = !no_thread_runs() && !process_.no_thread_is_inside(*window, pending.point.address);
  if (is_future && !can_be_future(pending, *window)) return none(why_not_yet());
  if (window->switches_stack)
    if (const char* why_no_switch = against_switch(pending, *window)) return none(why_no_switch);
  const bool has_middle = !window->switches_stack && (window->instructions > 1 || window->prefix_window != 0);
  if (has_middle && !process_.follows_returns())
    return none("it is not known how the program's signal handlers return");
  const std::size_t bytes = window->prefix_window + std::max(window->length, window->code_length);
  const Addr begin = pending.point.address - window->prefix_window;
  if (const char* barred = reason_barred(block_, mapping_, begin, begin + bytes)) return none(barred);
  if (!has_original(pending, *jumps, *window)) return none("the bytes after it are not the file's");
  if (is_future) why = why_not_yet();
  return window;
}

// Whether the process has the file's bytes in the window, and in the padding that takes its long jump.
bool MappingArming::has_original(const Pending& pending, const plan::FileJumps& jumps, const plan::Window& window) {
  const auto is_original = [&](std::uint64_t address, std::size_t bytes) {
    const Addr at = pending.point.address + (address - window.address);
    return mapping_.begin <= at && at + bytes <= mapping_.end &&
           has_file_bytes(text_, at, jumps.flow().bytes_at(address), bytes);
  };
  const bool is_short = window.kind == plan::WindowKind::short_jump;
  return is_original(window.begin(), window.prefix_window + std::max(window.length, window.code_length)) &&
         (!is_short || is_original(window.padding, shared::kJumpBytes));
}

Status MappingArming::join(const PlannedPoint& point, std::uint32_t known) {
  if (changes_program(point) && shared::is_armed_jump(block_.points()[known]))
    return refuse(point, "it changes the program, and a jump of another session is there"), ok();
  if (leads_to_switch(block_.points()[known]) && may_fault_in_handler(point, state_.options.area))
    return refuse(point, "it reads memory, may run in Go's handler of SIGSEGV, and a jump is there"), ok();
  sentinel_ = process_.stands(block_.points()[known]);
  RETURN_IF_ERROR(process_.look_at_following(known));
  ArmReport& report = state_.report;
  add_events(report.armed_events, point);
  add_events(shared::is_armed_jump(block_.points()[known]) ? report.jumps : report.breakpoints, point);
  if (block_.has(known, consumers_of(point))) return ok();
  RETURN_IF_ERROR(process_.change());
  return block_.want(target_, known, consumers_of(point));
}

// The point, without the consumers that this process must refuse; null: none is left.
const PlannedPoint* MappingArming::possible(const PlannedPoint& point) {
  const auto is_stub = [](const PlannedConsumer& consumer) { return consumer.kind == shared::ConsumerKind::stub; };
  if (std::none_of(point.consumers.begin(), point.consumers.end(), is_stub) || process_.finds_stubs()) return &point;
  auto rest = std::make_unique<PlannedPoint>(point), refused = std::make_unique<PlannedPoint>(point);
  std::erase_if(rest->consumers, is_stub);
  std::erase_if(refused->consumers, std::not_fn(is_stub));
  refuse(*refused,
         "exceptions would not pass its return stub, because it is not known how the program finds unwind information "
         "(--return=exits)");
  if (rest->consumers.empty() && rest->role == shared::PointRole::probe) return nullptr;
  return choices_.emplace_back(std::move(rest)).get();
}

// Decides what one point needs. Writes nothing.
Status MappingArming::consider(const PlannedPoint& given, const plan::FileJumps* jumps) {
  const PlannedPoint* left = possible(given);
  if (left == nullptr) return ok();
  const PlannedPoint& point = *left;
  const Addr address = mapping_.begin + (point.site.offset - mapping_.offset);
  if (const char* why = reason_barred(block_, point, mapping_)) return refuse(point, why), ok();
  const auto known = block_.find(address);
  const bool armed = known && block_.points()[*known].state == static_cast<std::uint32_t>(shared::PointState::armed);
  if (armed && (process_.has_standing(address) || has_armed_text(target_, block_, block_.points()[*known])))
    return join(point, *known);
  std::vector<std::uint8_t> now(point.site.insn.size());
  const bool is_quick = point.role == shared::PointRole::quick_call;  // the call is a point as well
  if (is_quick && !(text_.read(address, now.data(), now.size()) && now == point.site.insn)) return ok();
  if (const Status read = text_.read(address, now.data(), now.size()); !read)
    return refuse(point, read.error().text), ok();
  if (now != point.site.insn)
    refuse(point, "the bytes in memory are not the file's (another tracer, or self-modifying code)");
  else
    append(point, known, jumps);
  return ok();
}

// Puts a point that is not armed yet on the list, with the window that it may use.
void MappingArming::append(const PlannedPoint& point, std::optional<std::uint32_t> known,
                           const plan::FileJumps* jumps) {
  Pending pending{.point = {}, .code = point.site.insn, .planned = &point, .known = known};
  pending.point.address = mapping_.begin + (point.site.offset - mapping_.offset);
  pending.point.file_bias = pending.point.address.value - point.site.offset;
  pending.point.role = role_of(point);
  pending.point.insn = point.site.insn;
  pending.point.following = bytes_following(*point.site.file, point.site.offset, mapping_);
  pending.point.following_varies =
      jumps != nullptr ? jumps->changed_after(point.site.address) : calls_after(*own_, point.site.offset);
  if (process_.is_live) pending.point.following_varies = jumps_after(block_, pending.point.address);
  std::string why;
  const plan::Window* window = window_for(pending, jumps, why);
  // Its copy of the instruction stays, since a thread may still be in it, and has nothing that a jump could lead to (Placer::settle).
  const bool is_probe = pending.point.role == shared::PointRole::probe;
  if (window != nullptr && known && is_probe && !shared::has_thunk(block_.points()[*known]))
    window = nullptr, why = "a breakpoint stood there before, for another session or library";
  if (window == nullptr && point.role == shared::PointRole::quick_call) return;
  const plan::Tier tier = state_.options.tier;
  if (!why.empty() && tier == plan::Tier::jump && !point.consumers.empty())
    return refuse(point, "it would need a breakpoint: " + why);
  if (!why.empty() && tier != plan::Tier::breakpoint)
    for (const PlannedConsumer& consumer : point.consumers) state_.report.against[consumer.event] = why;
  pending.is_future = window != nullptr && !why.empty();
  if (window == &kBeforeCall) pending.window = window;
  if (window != nullptr && window != &kBeforeCall) take_window(pending, *jumps, *window, block_, mapping_);
  pending_.push_back(std::move(pending));
}

// Whether the place is already in the list for another point; then both share it.
bool MappingArming::join_pending(PlannedPoint& point) {
  const Addr address = mapping_.begin + (point.site.offset - mapping_.offset);
  const auto same = std::find_if(pending_.begin(), pending_.end(),
                                 [address](const Pending& p) { return p.point.address == address; });
  if (same == pending_.end()) return false;
  const auto& others = same->planned->consumers;
  point.consumers.insert(point.consumers.end(), others.begin(), others.end());
  std::stable_sort(point.consumers.begin(), point.consumers.end(),
                   [](const PlannedConsumer& a, const PlannedConsumer& b) { return a.event > b.event; });
  point.role = same->point.role;
  same->planned = &point;
  return true;
}

// An IFUNC has chosen once its object is relocated; until then its points wait for the next call.
Status MappingArming::arm_ifuncs(const FilePoints& file) {
  const bool is_planned = state_.jumps && !process_.is_live && !file.ifuncs.empty();
  plan::FileJumps* jumps = is_planned ? &state_.jumps->of(file) : nullptr;
  for (const PlannedPoint& point : file.ifuncs) {
    if (point.site.offset < mapping_.offset || point.site.offset - mapping_.offset >= mapping_.end - mapping_.begin)
      continue;
    auto& relocations = state_.relocations[file.file.get()];
    if (!relocations) relocations = elf::relocations_of(*file.file);
    auto chosen = chosen_implementation(target_, file.file, *relocations, mapping_, point.site);
    if (!chosen) {
      refuse(point, process_.is_live
                        ? "its implementation is chosen at run time (IFUNC) and cannot be found out from outside"
                        : chosen.error().text);
      continue;
    }
    if (!*chosen) {
      waits_ = true;
      continue;
    }
    auto planned = std::make_unique<PlannedPoint>(PlannedPoint{**chosen, point.consumers, point.role});
    if (jumps != nullptr) jumps->add(planned->site.address);
    if (!join_pending(*planned)) RETURN_IF_ERROR(consider(*planned, jumps));
    choices_.push_back(std::move(planned));
  }
  return pending_.empty() ? ok() : place();
}

// Makes the consumer lists of all points that are to be placed.
Status MappingArming::list_consumers() {
  for (Pending& p : pending_) {
    auto consumers = block_.list_for(consumers_of(*p.planned), p.known.has_value());
    if (!consumers) return consumers.error();
    p.point.consumers = *consumers;
  }
  return ok();
}

// Some points may have lost consumers after they were placed. Their bodies still record for the old list, so they ask the
// agent.
Status MappingArming::list_again() {
  for (const Pending& p : pending_)
    if (p.window != nullptr && consumers_of(*p.planned).size() != p.planned->consumers.size())
      RETURN_IF_ERROR(ask_agent(target_, p.point.copy));
  return list_consumers();
}

Status MappingArming::place() {
  const auto is_for = [this](const PlannedConsumer& consumer) { return is_wanted(consumer); };
  std::erase_if(pending_, [&](const Pending& p) {
    const std::vector<PlannedConsumer>& consumers = p.planned->consumers;
    return !consumers.empty() && p.point.role == shared::PointRole::probe && std::ranges::none_of(consumers, is_for);
  });
  if (pending_.empty()) return ok();
  RETURN_IF_ERROR(process_.change());
  RETURN_IF_ERROR(list_consumers());
  const std::size_t incomplete = incomplete_.size();
  const PlaceContext context{.target = target_,
                             .block = block_,
                             .area = state_.options.area,
                             .has_stubs = state_.probes.wants_stubs(),
                             .probes = &state_.probes,
                             .begin = mapping_.begin,
                             .end = mapping_.end,
                             .refuse = [this](const Pending& p, const std::string& why) { refuse(*p.planned, why); }};
  RETURN_IF_ERROR(place_all(context, pending_));
  // Slots contain the index of their point, so a point without consumers stays in the list.
  if (incomplete_.size() != incomplete) RETURN_IF_ERROR(list_again());
  const auto is_jump = [](const Pending& p) { return p.window != nullptr; };
  if (std::any_of(pending_.begin(), pending_.end(), is_jump)) block_.note_jumps(mapping_.begin, mapping_.end);
  return publish();
}

// The tables first, the text last.
Status MappingArming::publish() {
  auto next = static_cast<std::uint32_t>(block_.points().size());
  RETURN_IF_ERROR(write_points());
  std::vector<ArmedPlace> texts;
  texts.reserve(pending_.size());
  process_.expect_standing(2 * pending_.size());
  const auto index_of = [&](const std::optional<std::uint32_t>& known) { return known ? *known : next++; };
  for (const Pending& p : pending_) {
    const std::uint32_t index = index_of(p.known);
    if (p.long_jump) texts.push_back(text_of(index_of(p.known_long_jump)));
    if (p.prefix_window) process_.stands(p.point.address);
    texts.push_back(text_of(p.prefix_window ? index_of(p.prefix_window->known) : index));
    const bool is_jump = p.window != nullptr && !p.is_future;
    if (p.is_future) texts.back().armed = {{shared::kBreakpoint}, 1};
    state_.awaited.set(target_.pid(), Addr{p.point.address}, p.is_future);
    add_events(state_.report.armed_events, *p.planned);
    add_events(is_jump ? state_.report.jumps : state_.report.breakpoints, *p.planned);
  }
  return process_.arm(texts, no_thread_runs());
}

// The points of the list that the block does not know yet, in the order in which slots have numbered them; then the known ones.
Status MappingArming::write_points() {
  std::vector<NewPoint> fresh;
  fresh.reserve(pending_.size());
  for (Pending& p : pending_) {
    if (!p.known) fresh.push_back(std::move(p.point));
    if (p.long_jump && !p.known_long_jump) fresh.push_back(std::move(*p.long_jump));
    if (p.prefix_window && !p.prefix_window->known) fresh.push_back(std::move(p.prefix_window->point));
  }
  RETURN_IF_ERROR(block_.add(target_, fresh));
  std::vector<Block::Change> changes;
  for (const Pending& p : pending_) {
    if (p.known) changes.push_back({*p.known, &p.point});
    if (p.known_long_jump) changes.push_back({*p.known_long_jump, &*p.long_jump});
    if (p.prefix_window && p.prefix_window->known)
      changes.push_back({*p.prefix_window->known, &p.prefix_window->point});
  }
  return block_.set_points(target_, std::move(changes));
}

ArmedPlace MappingArming::text_of(std::uint32_t index) {
  const shared::Point& point = block_.points()[index];
  sentinel_ = process_.stands(point);
  return {Addr{point.address}, shared::armed_text(point), static_cast<shared::PointRole>(point.role)};
}

}  // namespace uprobe::control
