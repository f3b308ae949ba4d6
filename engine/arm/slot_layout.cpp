// SPDX-License-Identifier: MIT
#include "engine/arm/slot_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>

#include "arch/abi/processor.h"
#include "arch/code/call_patterns.h"
#include "arch/code/trampoline.h"
#include "arch/code/window.h"
#include "engine/patch/batched_patch.h"
#include "engine/patch/islands.h"
#include "engine/process/text_view.h"
#include "engine/shared/trampoline.h"

namespace uprobe::control {
namespace {

constexpr std::uint8_t kFiller = shared::kBreakpoint;
constexpr std::uint32_t kMarkUnit = 8;  // shared::marks_of

constexpr std::uint32_t round_up(std::size_t bytes, std::uint32_t unit) {
  return (static_cast<std::uint32_t>(bytes) + unit - 1) / unit * unit;
}

// `next`: the address to which a prefix window leads.
Result<arch::Copy> displace(const Pending& p, Addr to, Addr next) {
  const Addr from = p.point.address;
  return p.window != nullptr ? arch::displace_window(p.code, from, to, next) : arch::make_copy(p.code, from, to);
}

constexpr std::uint32_t copy_in_slot(bool is_jump) { return is_jump ? shared::kCopyAfterThunk : shared::kCopyInSlot; }

// The bytes of a slot.
struct Made {
  std::vector<std::uint8_t> bytes;
  std::size_t copy_bytes = 0, marks = 0;
};

// Slots are compared as bytes, and padding differs.
template <class T>
requires std::has_unique_object_representations_v<T>
void append(std::vector<std::uint8_t>& bytes, const T& value) {
  bytes.resize(bytes.size() + sizeof value);
  std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
}

void append_marks(std::vector<std::uint8_t>& bytes, const arch::Copy& copy, const Pending& p) {
  const Addr end = p.point.address + p.code.size();
  for (const arch::CopyMark& from : copy.marks) {
    const bool after_call = from.original == end && arch::ends_with_system_call(p.code);
    const shared::Mark mark{.offset = from.offset,
                            .pushed = from.pushed,
                            .after_call = static_cast<shared::u16>(after_call ? 1 : 0),
                            .place = static_cast<std::int32_t>(from.original - p.point.address)};
    append(bytes, mark);
  }
}

// A body, and the points whose jumps share it.
struct SharedBody {
  const PlannedConsumer* made_for = nullptr;  // the first consumer for which it records; null: the agent records
  arch::BodySpec spec;
  std::uint32_t room = 0;
  bool records = false;
};
constexpr std::size_t kNoBody = ~std::size_t{0};
using EventWord = std::array<std::uint8_t, sizeof(shared::SlotHead::event)>;

// The size that is almost always enough for a point's slot, with the instructions with which compilers begin functions.
std::uint32_t usual_room(const Pending& p) {
  constexpr std::size_t kGrows = 13;  // a jump back, and the growth of one branch
  const std::size_t insns = p.code.size() / 2 + 2;
  const std::size_t own = shared::kCopyAfterThunk + p.code.size() + kGrows + insns * sizeof(shared::Mark);
  return round_up(own, kIslandUnit) + (p.prefix_window ? usual_room(*p.prefix_window) : 0);
}

class Placer {
 public:
  Placer(const PlaceContext& context, std::vector<Pending>& pending)
      : context_(context), pending_(pending), slots_(pending.size()), held_(context.target) {}

  Status run();

 private:
  // A part of an island.
  struct Part {
    Addr begin;
    std::vector<std::uint8_t> bytes;
  };
  // The slot of a point in the list.
  struct Slot {
    bool settled = false;
    std::size_t body = kNoBody;
    std::string refusal;  // why it cannot be placed
  };

  bool settle(Pending& p);
  bool settle_jump(Pending& p, const shared::Point& before);
  bool settle_copy(Pending& p, const shared::Point& before);
  Status read(Addr from, void* to, std::size_t bytes);
  Status write_event(Addr at, const EventWord& word);
  Status write_settled();
  bool stands(Addr at, const std::vector<std::uint8_t>& bytes);
  bool has_body(std::size_t body, Addr at);
  bool renew_body(const arch::BodySpec& spec, const std::vector<std::uint8_t>& wanted);
  std::size_t body_for(const Pending& p);
  std::uint64_t choose_bodies();
  std::uint64_t body_room() const;
  void place_bodies(Addr begin, std::vector<std::uint8_t>& all);
  std::vector<std::uint8_t> make_all(Addr begin);
  Result<Part> make_in_room(std::uint64_t usual);
  Result<Part> make_new();
  Result<Made> make_copy(const Pending& p, Addr at, std::vector<std::uint8_t> front, Addr next = {}) const;
  std::vector<std::uint8_t> make_exit_head(const Pending& p, std::size_t body) const;
  bool is_switched(std::size_t body) const { return body != kNoBody && bodies_[body].spec.switches; }
  std::vector<std::uint8_t> make_front(const Pending& p, std::size_t body, Addr slot) const;
  Addr jump_target(const Pending& p, std::size_t body, Addr slot) const;
  Result<Made> make_slot(const Pending& p, Addr at, std::size_t body, Addr entry) const;
  Result<Made> make_prefix_window(const Pending& p, Addr at, Addr thunk) const;
  Result<std::vector<std::uint8_t>> make_one(std::size_t index, Addr at);
  bool settle_prefix_window(Pending& p, Addr thunk);
  void take(Pending& p, const Made& made, Addr copy, Addr jump_to);
  void take_prefix_window(Pending& p, const Made& made, Addr at);
  std::size_t index_of(const Pending& p) const { return p.known ? *p.known : context_.block.points().size() + fresh_; }
  // Whether the body of a point may make the record.
  bool may_record(const Pending& p) const;
  arch::FastRecord fast_record(const PlannedConsumer& consumer, const Pending& p) const;
  bool watches_tool(const PlannedConsumer& consumer) const;

  const PlaceContext& context_;
  std::vector<Pending>& pending_;
  std::vector<Slot> slots_;
  TextView held_;
  std::vector<std::pair<Addr, EventWord>> events_;  // for existing slots of a stopped process, still to be written
  std::vector<std::pair<Addr, std::vector<std::uint8_t>>> renewed_;  // existing bodies of a stopped process, likewise
  std::size_t fresh_ = 0;                                            // points so far that will be new in the block
  std::vector<SharedBody> bodies_;
  std::map<std::string, std::size_t> by_program_;      // key: program, filter and kinds; "": the agent records
  std::map<std::pair<Addr, std::size_t>, bool> seen_;  // whether that body is at that address, for known points
};

bool Placer::may_record(const Pending& p) const {
  if (context_.area == nullptr || p.planned->consumers.size() != 1) return false;
  const shared::ConsumerKind kind = p.planned->consumers.front().kind;
  if (kind != shared::ConsumerKind::entry && kind != shared::ConsumerKind::exit) return false;
  if (p.point.role != shared::PointRole::probe) return false;  // the agent has to handle the hit
  if (context_.area->is_thinned(p.planned->consumers.front().event)) return false;
  return !context_.area->has_switches();  // the agent has to check which events are off
}

arch::FastRecord Placer::fast_record(const PlannedConsumer& consumer, const Pending& p) const {
  const trace::Area& area = *context_.area;
  const trace::Area::Places places = area.places();
  const std::uint16_t event = consumer.event;
  const shared::ProcessBlock& head = context_.block.head();
  const std::uint64_t text_bytes = context_.has_stubs ? head.agent_text_end - head.agent_text : 0;
  return arch::FastRecord{.area = Addr{head.sessions[0].area},
                          .data_offset = places.data,
                          .ring_bytes = area.ring_bytes(),
                          .ring_offset = places.rings,
                          .cpu_ring_count = places.cpu_ring_count,
                          .events_offset = places.events,
                          .counts_offset = places.counts,
                          .fixed_bytes = area.fixed_bytes(event),
                          .file_bias = p.point.file_bias,
                          .is_return = consumer.kind == shared::ConsumerKind::exit,
                          .agent_text = Addr{head.agent_text},
                          .agent_text_bytes = static_cast<std::uint32_t>(text_bytes),
                          .program = area.program(event),
                          .filter = area.filter(event),
                          .dropped_offset = places.dropped,
                          .dropped_stride = places.dropped_stride,
                          .has_cpu_number = arch::has_cpu_number_instruction(),
                          .claimed_ring_count = area.ring_count() - places.cpu_ring_count,
                          .is_elsewhere = (context_.block.head().flags & shared::kBlockElsewhere) != 0,
                          .watches_tool = watches_tool(consumer)};
}

// The hits of an event with semaphores tell the agent when the tool is gone.
bool Placer::watches_tool(const PlannedConsumer& consumer) const {
  return context_.probes != nullptr && context_.probes->has_semaphore(consumer.event);
}

bool record_alike(const trace::Area& area, const PlannedConsumer& a, const PlannedConsumer& b) {
  const auto same = [](auto one, auto other) { return std::ranges::equal(std::as_bytes(one), std::as_bytes(other)); };
  return a.kind == b.kind && same(area.program(a.event), area.program(b.event)) &&
         same(area.filter(a.event), area.filter(b.event));
}

std::string key_of(const trace::Area& area, const PlannedConsumer& consumer) {
  const auto program = std::as_bytes(area.program(consumer.event)), filter = std::as_bytes(area.filter(consumer.event));
  std::string key(consumer.kind == shared::ConsumerKind::exit ? "r" : "p");
  key.append(reinterpret_cast<const char*>(program.data()), program.size());
  return key.append(reinterpret_cast<const char*>(filter.data()), filter.size());
}

// Equal programs have equal layouts, and all points of the list are in one mapping.
std::size_t Placer::body_for(const Pending& p) {
  const PlannedConsumer* recorded = may_record(p) ? &p.planned->consumers.front() : nullptr;
  // Neighbouring points mostly record alike.
  const bool is_like_latest = !bodies_.empty() && bodies_.back().spec.switches == p.window->switches_stack;
  const PlannedConsumer* latest = is_like_latest ? bodies_.back().made_for : nullptr;
  if (recorded != nullptr && latest != nullptr && watches_tool(*recorded) == watches_tool(*latest) &&
      record_alike(*context_.area, *recorded, *latest))
    return bodies_.size() - 1;
  std::string key = p.window->switches_stack ? "s" : "";
  if (recorded != nullptr) key += (watches_tool(*recorded) ? "w" : "") + key_of(*context_.area, *recorded);
  const auto [found, is_new] = by_program_.try_emplace(key, bodies_.size());
  if (!is_new) return found->second;
  SharedBody& body = bodies_.emplace_back();
  body.made_for = recorded;
  body.spec = {.at = {},
               .block = context_.block.address(),
               .jump_entry = Addr{context_.block.head().jump_entry},
               .fast = {},
               .switches = p.window->switches_stack};
  if (recorded != nullptr) body.spec.fast = fast_record(*recorded, p);
  const arch::Body longest = arch::longest_body(body.spec);
  body.records = longest.records;
  if (!body.records) body.spec.fast.reset();
  body.room = round_up(longest.bytes.size(), shared::kBodyUnit);
  return found->second;
}

// The bytes at `at`: those before the copy, the copy, the marks.
Result<Made> Placer::make_copy(const Pending& p, Addr at, std::vector<std::uint8_t> front, Addr next) const {
  const auto copy = displace(p, at + front.size(), next);
  if (!copy) return copy.error();
  Made made{.bytes = std::move(front), .copy_bytes = copy->bytes.size(), .marks = copy->marks.size()};
  for (const std::uint8_t byte : copy->bytes) made.bytes.push_back(byte);
  while ((at.value + made.bytes.size()) % kMarkUnit != 0) made.bytes.push_back(kFiller);
  append_marks(made.bytes, *copy, p);
  return made;
}

// The bytes before the slot; none, unless the body records returns.
std::vector<std::uint8_t> Placer::make_exit_head(const Pending& p, std::size_t body) const {
  std::vector<std::uint8_t> front;
  if (body == kNoBody || !bodies_[body].spec.fast || !bodies_[body].spec.fast->is_return) return front;
  const PlannedConsumer& consumer = p.planned->consumers.front();
  const auto distance = static_cast<std::uint64_t>(std::int64_t{consumer.distance});
  append(front, shared::ExitHead{.lead = consumer.lead,
                                 .moves = std::uint32_t{consumer.lead} + consumer.pops,
                                 .function = p.point.address.value - distance});
  return front;
}

// All bytes before the slot: a switch as well, if the stack is switched.
std::vector<std::uint8_t> Placer::make_front(const Pending& p, std::size_t body, Addr slot) const {
  std::vector<std::uint8_t> exit_head = make_exit_head(p, body);
  if (!is_switched(body)) return exit_head;
  const Addr at = slot - exit_head.size() - shared::kSwitchBytes;
  std::vector<std::uint8_t> front = arch::make_switch(at, slot + shared::kThunkInSlot);
  front.insert(front.end(), exit_head.begin(), exit_head.end());
  return front;
}

// Where the jump of the point leads: the thunk, or the switch before the slot.
Addr Placer::jump_target(const Pending& p, std::size_t body, Addr slot) const {
  return is_switched(body) ? slot - make_front(p, body, slot).size() : slot + shared::kThunkInSlot;
}

// `entry`: the body's; a breakpoint has none.
Result<Made> Placer::make_slot(const Pending& p, Addr at, std::size_t body, Addr entry) const {
  const bool records = body != kNoBody && bodies_[body].records;
  std::vector<std::uint8_t> front;
  const shared::u32 agents = shared::is_before_call(p.point.role) ? shared::kMakesCall : shared::kAskAgent;
  append(front, shared::SlotHead{.address = p.point.address.value,
                                 .point = static_cast<shared::u32>(index_of(p)),
                                 .event = records ? p.planned->consumers.front().event : agents});
  const Addr thunk = at + shared::kThunkInSlot;
  if (is_switched(body)) RETURN_IF_ERROR(arch::append_switched_thunk(front, thunk, entry));
  if (body != kNoBody && !is_switched(body)) RETURN_IF_ERROR(arch::append_thunk(front, thunk, entry));
  return make_copy(p, at, std::move(front));
}

// Call after take() of the place to which the window leads. The slot is that of a breakpoint.
Result<Made> Placer::make_prefix_window(const Pending& p, Addr at, Addr thunk) const {
  std::vector<std::uint8_t> front;
  append(front, shared::SlotHead{.address = p.point.address.value,
                                 .point = static_cast<shared::u32>(index_of(p)),
                                 .event = shared::kAskAgent});
  return make_copy(p, at, std::move(front), thunk);
}

void note_copy(Pending& p, const Made& made, Addr copy) {
  p.point.copy = copy;
  p.point.copy_bytes = static_cast<std::uint32_t>(made.copy_bytes);
  p.point.mark_count = static_cast<std::uint32_t>(made.marks);
  p.point.code_bytes = static_cast<std::uint32_t>(p.code.size());
}

void Placer::take_prefix_window(Pending& p, const Made& made, Addr at) {
  note_copy(p, made, at + shared::kCopyInSlot);
  p.point.jump_to = p.point.copy, p.point.jump_bytes = shared::kJumpBytes;
  fresh_ += p.known ? 0U : 1U;
}

void Placer::take(Pending& p, const Made& made, Addr copy, Addr jump_to) {
  note_copy(p, made, copy);
  p.point.jump_to = {}, p.point.jump_bytes = 0;
  p.point.prefix_window =
      p.prefix_window ? static_cast<std::uint32_t>(p.point.address - p.prefix_window->point.address) : 0;
  fresh_ += (p.known ? 0U : 1U) + (p.long_jump && !p.known_long_jump ? 1U : 0U);
  if (p.window == nullptr || p.prefix_window) return;
  p.point.jump_to = p.long_jump ? p.long_jump->address : jump_to;
  p.point.jump_bytes = p.long_jump ? shared::kShortJumpBytes : shared::kJumpBytes;
  if (!p.long_jump) return;
  // A thread that traps in the padding continues where the jump leads.
  p.long_jump->copy = p.long_jump->jump_to = jump_to;
  p.long_jump->jump_bytes = shared::kJumpBytes;
}

void take_breakpoint(Pending& p) {
  p.window = nullptr;
  p.long_jump.reset();
  p.prefix_window.reset();
  p.code = p.point.insn;
}

// A stopped process is read a page at a time and cached: only this code writes to it.
Status Placer::read(Addr from, void* to, std::size_t bytes) {
  return context_.target.is_held() ? held_.read(from, to, bytes) : context_.target.read(from, to, bytes);
}

bool Placer::stands(Addr at, const std::vector<std::uint8_t>& bytes) {
  if (bytes.empty()) return true;
  std::vector<std::uint8_t> now(bytes.size());
  return read(at, now.data(), now.size()) && now == bytes;
}

// Whether exactly this body is at `at`. Remembers the answer.
bool Placer::has_body(std::size_t body, Addr at) {
  const auto [known, is_new] = seen_.try_emplace({at, body}, false);
  if (is_new) {
    arch::BodySpec spec = bodies_[body].spec;
    spec.at = at;
    const std::vector<std::uint8_t> wanted = arch::make_body(spec).bytes;
    known->second = stands(at, wanted) || renew_body(spec, wanted);
  }
  return known->second;
}

// Adapts the body of an earlier session, whose area was elsewhere. No thread is in the agent's code when a session takes over
// what another one has left.
bool Placer::renew_body(const arch::BodySpec& spec, const std::vector<std::uint8_t>& wanted) {
  if (!context_.target.is_held() || !spec.fast) return false;
  arch::BodySpec elsewhere = spec;
  elsewhere.fast->area = Addr{~spec.fast->area.value};
  const std::vector<std::uint8_t> other = arch::make_body(elsewhere).bytes;
  std::vector<std::uint8_t> now(wanted.size());
  if (other.size() != wanted.size() || !read(spec.at, now.data(), now.size())) return false;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (wanted[i] == other[i] && now[i] != wanted[i]) return false;
  renewed_.emplace_back(spec.at, wanted);
  return true;
}

// In a stopped process the words are written together later: a thousand small writes would take half as long as everything
// else.
Status Placer::write_event(Addr at, const EventWord& word) {
  if (!context_.target.is_held()) return context_.target.write(at, word.data(), word.size());
  events_.emplace_back(at, word);
  return ok();
}

Status Placer::write_settled() {
  std::vector<TextPiece> pieces;
  for (const auto& [at, word] : events_) pieces.push_back({at, word});
  for (const auto& [at, body] : renewed_) pieces.push_back({at, body});
  return write_in_runs(context_.target, std::move(pieces));
}

// A thunk is never changed, nor is its body within a session: a thread may be in them.
bool Placer::settle_jump(Pending& p, const shared::Point& before) {
  if (p.window == nullptr || !shared::has_thunk(before) || (p.long_jump && !p.known_long_jump)) return false;
  const Addr copy{before.copy}, slot = copy - shared::kCopyAfterThunk;
  const Addr event = slot + offsetof(shared::SlotHead, event);
  const Addr call_end = copy - (p.window->switches_stack ? shared::kStackRestoreBytes : 0);
  std::int32_t distance = 0;
  if (!read(call_end - sizeof distance, &distance, sizeof distance)) return false;
  const Addr entry = call_end + static_cast<std::uint64_t>(std::int64_t{distance});
  const std::size_t body = body_for(p);
  auto made = make_slot(p, slot, body, entry);
  if (!made || !has_body(body, entry - arch::kBodyEntry)) return false;
  const auto front = make_front(p, body, slot);
  if (!stands(slot - front.size(), front)) return false;
  std::uint8_t* const word = &made->bytes[event - slot];
  EventWord wanted;
  std::copy_n(word, wanted.size(), wanted.begin());
  if (!read(event, word, wanted.size()) || !stands(slot, made->bytes)) return false;
  if (p.prefix_window && !settle_prefix_window(*p.prefix_window, copy - shared::kThunkBytes)) return false;
  if (!write_event(event, wanted)) return false;
  take(p, *made, copy, jump_target(p, body, slot));
  return true;
}

bool Placer::settle_prefix_window(Pending& p, Addr thunk) {
  if (!p.known || !shared::is_prefix_window(context_.block.points()[*p.known])) return false;
  const Addr at = Addr{context_.block.points()[*p.known].copy} - shared::kCopyInSlot;
  const auto made = make_prefix_window(p, at, thunk);
  if (!made || !stands(at, made->bytes)) return false;
  take_prefix_window(p, *made, at);
  return true;
}

// Uses the old slot again if its code was unmapped, or if the bytes are the same.
bool Placer::settle_copy(Pending& p, const shared::Point& before) {
  const bool is_gone = before.state == static_cast<std::uint32_t>(shared::PointState::unmapped);
  const Addr at{before.copy};
  const auto made = before.copy_bytes != 0 ? make_copy(p, at, {}) : Result<Made>(Error{});
  const std::size_t room = shared::marks_of(before) + before.mark_count * sizeof(shared::Mark) - before.copy;
  if (!made || made->bytes.size() > room) return false;
  if (!stands(at, made->bytes) && (!is_gone || !context_.target.write(at, made->bytes.data(), made->bytes.size())))
    return false;
  take(p, *made, at, {});
  return true;
}

// A point that is armed again (its library was unmapped and mapped again) keeps its slot, so that libraries that come and go do
// not use up the islands.
bool Placer::settle(Pending& p) {
  if (!p.known) return false;
  const shared::Point& before = context_.block.points()[*p.known];
  if (settle_jump(p, before)) return true;
  take_breakpoint(p);
  return settle_copy(p, before);
}

// Returns the room that all points without a slot will usually need, including bodies.
std::uint64_t Placer::choose_bodies() {
  std::uint64_t all = 0;
  bodies_.clear(), by_program_.clear();
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (slots_[i].settled) continue;
    slots_[i].body = pending_[i].window != nullptr ? body_for(pending_[i]) : kNoBody;
    all += usual_room(pending_[i]) + make_front(pending_[i], slots_[i].body, {}).size();
  }
  return all + body_room();
}

std::uint64_t Placer::body_room() const {
  std::uint64_t all = 0;
  for (const SharedBody& body : bodies_) all += body.room;
  return all == 0 ? 0 : all + shared::kBodyUnit - kIslandUnit;  // for the alignment of the first body
}

void Placer::place_bodies(Addr begin, std::vector<std::uint8_t>& all) {
  Addr at{(begin.value + shared::kBodyUnit - 1) / shared::kBodyUnit * shared::kBodyUnit};
  for (SharedBody& body : bodies_) {
    body.spec.at = at;
    const arch::Body made = arch::make_body(body.spec);
    all.resize(at - begin, kFiller);
    all.insert(all.end(), made.bytes.begin(), made.bytes.end());
    at = at + body.room;
  }
  all.resize(body_room(), kFiller);
}

// The bytes at `at` for one point.
Result<std::vector<std::uint8_t>> Placer::make_one(std::size_t index, Addr at) {
  Pending& p = pending_[index];
  const std::size_t body = slots_[index].body;
  const Addr entry = body != kNoBody ? bodies_[body].spec.at + arch::kBodyEntry : Addr{};
  const Addr slot = at + make_front(p, body, {}).size();
  std::vector<std::uint8_t> all = make_front(p, body, slot);
  const auto made = make_slot(p, slot, body, entry);
  if (!made) return made.error();
  all.insert(all.end(), made->bytes.begin(), made->bytes.end());
  all.resize(round_up(all.size(), kIslandUnit), kFiller);
  const std::size_t fresh = fresh_;
  take(p, *made, slot + copy_in_slot(body != kNoBody), jump_target(p, body, slot));
  if (!p.prefix_window) return all;
  const Addr in_front = at + all.size();
  const auto prefix_window = make_prefix_window(*p.prefix_window, in_front, slot + shared::kThunkInSlot);
  if (!prefix_window) fresh_ = fresh;
  if (!prefix_window) return prefix_window.error();
  take_prefix_window(*p.prefix_window, *prefix_window, in_front);
  all.insert(all.end(), prefix_window->bytes.begin(), prefix_window->bytes.end());
  all.resize(round_up(all.size(), kIslandUnit), kFiller);
  return all;
}

// All bytes from there on. A point that cannot be displaced there gets a refusal.
std::vector<std::uint8_t> Placer::make_all(Addr begin) {
  std::vector<std::uint8_t> all;
  place_bodies(begin, all);
  fresh_ = 0;  // settled points are not new
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.settled) continue;
    const auto made = make_one(i, begin + all.size());
    slot.refusal = made ? "" : made.error().text;
    if (made) all.insert(all.end(), made->begin(), made->end());
  }
  return all;
}

// If the slots need more than the usual room, tries once more with what they need.
Result<Placer::Part> Placer::make_in_room(std::uint64_t usual) {
  for (std::uint64_t room = usual;;) {
    const auto begin = island_room(context_.target, context_.block, context_.begin, context_.end, room);
    if (!begin) return begin.error();
    Part made{*begin, make_all(*begin)};
    const bool fits = made.bytes.size() <= room;
    give_back(context_.block, *begin + room, fits ? room - made.bytes.size() : room);
    if (fits) return made;
    room = made.bytes.size();
  }
}

// If there is no room for jumps, uses breakpoints.
Result<Placer::Part> Placer::make_new() {
  auto made = make_in_room(choose_bodies());
  if (made) return made;
  for (std::size_t i = 0; i < pending_.size(); ++i)
    if (!slots_[i].settled) take_breakpoint(pending_[i]);
  return make_in_room(choose_bodies());
}

Status Placer::run() {
  for (std::size_t i = 0; i < pending_.size(); ++i) slots_[i].settled = settle(pending_[i]);
  RETURN_IF_ERROR(write_settled());
  const auto has_settled = [](const Slot& slot) { return slot.settled; };
  if (std::all_of(slots_.begin(), slots_.end(), has_settled)) return ok();
  const auto made = make_new();
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (!made && !slots_[i].settled) slots_[i].refusal = made.error().text;
    if (!slots_[i].refusal.empty()) context_.refuse(pending_[i], slots_[i].refusal);
  }
  const Slot* slot = slots_.data();
  std::erase_if(pending_, [&slot](const Pending&) { return !(slot++)->refusal.empty(); });
  return made ? context_.target.write(made->begin, made->bytes.data(), made->bytes.size()) : ok();
}

}  // namespace

Status place_all(const PlaceContext& context, std::vector<Pending>& pending) { return Placer(context, pending).run(); }

}  // namespace uprobe::control
