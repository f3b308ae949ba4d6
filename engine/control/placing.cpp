#include "engine/control/placing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "arch/x86/code/trampoline.h"
#include "arch/x86/code/window.h"
#include "engine/control/islands.h"
#include "engine/shared/trampoline.h"

namespace uprobe::control {
namespace {

constexpr std::uint32_t kCopyAlignment = 16;
constexpr std::uint8_t kFiller = 0xcc;

constexpr std::uint32_t round_up(std::size_t bytes, std::uint32_t unit) {
  return (static_cast<std::uint32_t>(bytes) + unit - 1) / unit * unit;
}

// The copy and its marks as they stand in an island.
std::uint32_t copy_room(std::size_t copy_bytes, std::size_t marks) {
  return round_up(round_up(copy_bytes, 8) + marks * sizeof(shared::Mark), kCopyAlignment);
}

bool is_system_call(const std::vector<std::uint8_t>& insn) {
  return insn.size() >= 2 && insn[insn.size() - 2] == 0x0f && insn[insn.size() - 1] == 0x05;
}

Result<x86::Copy> displace(const Pending& p, Addr to) {
  const Addr from = p.point.address;
  return p.window != nullptr ? x86::displace_window(p.code, from, to) : x86::make_copy(p.code, from, to);
}

// All bytes of a point in an island, and where things are in them.
struct Made {
  std::vector<std::uint8_t> bytes;
  Addr entry;  // of the trampoline; 0: there is none
  Addr copy;
  std::size_t copy_bytes = 0, marks = 0;
};

void append_marks(std::vector<std::uint8_t>& bytes, const x86::Copy& copy, const Pending& p) {
  const Addr end = p.point.address + p.code.size();
  for (const x86::CopyMark& from : copy.marks) {
    const bool behind_call = from.original == end && is_system_call(p.code);
    const shared::Mark mark{.offset = from.offset,
                            .pushed = from.pushed,
                            .behind_call = static_cast<shared::u16>(behind_call ? 1 : 0),
                            .place = static_cast<std::int32_t>(from.original - p.point.address)};
    const auto* raw = reinterpret_cast<const std::uint8_t*>(&mark);
    bytes.insert(bytes.end(), raw, raw + sizeof mark);
  }
}

bool is_equal(const shared::Insn& a, const shared::Insn& b) {
  return a.op == b.op && a.size == b.size && a.count == b.count && a.offset == b.offset && a.immediate == b.immediate;
}

// In their order, each asked once.
template <class Keep>
void keep_if(std::vector<Pending>& list, const Keep& keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!keep(list[i])) continue;
    if (kept != i) list[kept] = std::move(list[i]);
    ++kept;
  }
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept), list.end());
}

class Placer {
 public:
  Placer(const PlaceContext& context, std::vector<Pending>& pending) : context_(context), pending_(pending) {}

  Status run();

 private:
  // `trampoline` of all the bytes: the copy is behind it.
  struct Room {
    std::uint32_t trampoline = 0, bytes = 0;
  };

  bool settle(Pending& p);
  bool settle_jump(Pending& p, const shared::Point& before);
  bool settle_copy(Pending& p, const shared::Point& before);
  bool stands(Addr at, const std::vector<std::uint8_t>& bytes);
  Addr trampoline_before(Addr entry);
  std::uint32_t trampoline_room(const Pending& p);
  Result<Room> measure(const Pending& p);
  std::uint64_t measure_all();
  Status place_new(Addr begin, std::uint64_t bytes);
  Result<Made> make(const Pending& p, Addr at, Addr copy_at) const;
  void take(Pending& p, const Made& made);
  void number(const Pending& p) { fresh_ += (p.known ? 0U : 1U) + (p.long_jump && !p.known_long_jump ? 1U : 0U); }
  std::optional<x86::FastRecord> fast_record(const Pending& p) const;
  x86::TrampolineSpec spec_of(const Pending& p, Addr at, Addr copy) const;

  const PlaceContext& context_;
  std::vector<Pending>& pending_;
  std::vector<Room> rooms_;  // by point of the list
  std::size_t fresh_ = 0;    // points so far that will be new in the block
  std::span<const shared::Insn> known_program_;
  std::uint32_t known_room_ = 0;  // of a trampoline for this program
  bool known_fast_ = false;
};

std::optional<x86::FastRecord> Placer::fast_record(const Pending& p) const {
  if (context_.area == nullptr || p.planned->consumers.size() != 1) return std::nullopt;
  if (p.planned->consumers.front().kind != shared::ConsumerKind::entry) return std::nullopt;
  const trace::Area& area = *context_.area;
  const trace::Area::Places places = area.places();
  const std::uint16_t event = p.planned->consumers.front().event;
  return x86::FastRecord{.area = Addr{context_.block.head().sessions[0].area},
                         .data_offset = places.data,
                         .ring_bytes = area.ring_bytes(),
                         .ring_offset = places.rings,
                         .cpu_ring_count = places.cpu_ring_count,
                         .event_offset = static_cast<std::uint32_t>(places.events + event * sizeof(shared::Event)),
                         .fixed_bytes = area.fixed_bytes(event),
                         .type = event,
                         .program = area.program(event),
                         .consumer = p.point.consumers};
}

x86::TrampolineSpec Placer::spec_of(const Pending& p, Addr at, Addr copy) const {
  const Block& block = context_.block;
  return {.at = at,
          .probe = p.point.address,
          .copy = copy,
          .block = block.address(),
          .point = block.point_at(p.known ? *p.known : block.points().size() + fresh_),
          .jump_entry = Addr{context_.block.head().jump_entry},
          .file_bias = p.point.file_bias,
          .fast = fast_record(p)};
}

// A trampoline in front of the copy, if there is to be one.
Result<Made> Placer::make(const Pending& p, Addr at, Addr copy_at) const {
  Made made{.bytes = {}, .entry = {}, .copy = copy_at};
  if (p.window != nullptr) {
    auto trampoline = x86::make_trampoline(spec_of(p, at, copy_at));
    if (!trampoline) return trampoline.error();
    made.entry = at + trampoline->entry;
    made.bytes = std::move(trampoline->bytes);
    made.bytes.resize(copy_at - at, kFiller);
  }
  const auto copy = displace(p, copy_at);
  if (!copy) return copy.error();
  made.copy_bytes = copy->bytes.size(), made.marks = copy->marks.size();
  made.bytes.insert(made.bytes.end(), copy->bytes.begin(), copy->bytes.end());
  made.bytes.resize(round_up(made.bytes.size(), 8), kFiller);
  append_marks(made.bytes, *copy, p);
  return made;
}

void Placer::take(Pending& p, const Made& made) {
  p.point.copy = made.copy;
  p.point.copy_bytes = static_cast<std::uint32_t>(made.copy_bytes);
  p.point.mark_count = static_cast<std::uint32_t>(made.marks);
  p.point.code_bytes = static_cast<std::uint32_t>(p.code.size());
  number(p);
  if (p.window == nullptr) return;
  p.point.jump_to = p.long_jump ? p.long_jump->address : made.entry;
  p.point.jump_bytes = p.long_jump ? shared::kShortJumpBytes : shared::kJumpBytes;
  if (!p.long_jump) return;
  // Who traps in the padding goes on where it leads.
  p.long_jump->copy = p.long_jump->jump_to = made.entry;
  p.long_jump->jump_bytes = shared::kJumpBytes;
}

void take_breakpoint(Pending& p) {
  p.window = nullptr;
  p.long_jump.reset();
  p.code = p.point.insn;
}

bool Placer::stands(Addr at, const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint8_t> now(bytes.size());
  return context_.target.read(at, now.data(), now.size()) && now == bytes;
}

// Where the trampoline begins that is entered there; 0: nowhere.
Addr Placer::trampoline_before(Addr entry) {
  constexpr std::uint64_t kUnit = shared::kTrampolineUnit, kMostInFront = 4 * kUnit;
  const Addr first{entry.value / kUnit * kUnit};
  for (Addr at = first; first - at <= kMostInFront; at = Addr{at.value - kUnit}) {
    shared::TrampolineHead head{};
    if (!context_.target.read(at, &head, sizeof head)) return {};
    if (head.mark == (shared::kTrampolineMagic ^ at.value) && at + head.code == entry) return at;
  }
  return {};
}

// A trampoline is never changed: a thread's rseq descriptor may still be in it, and the kernel kills where that makes no sense.
bool Placer::settle_jump(Pending& p, const shared::Point& before) {
  const bool is_same_kind = p.window != nullptr && before.jump_bytes == shared::kJumpBytes && !p.long_jump;
  const Addr at = is_same_kind ? trampoline_before(Addr{before.jump_to}) : Addr{};
  if (!at) return false;
  const auto made = make(p, at, Addr{before.copy});
  if (!made || !stands(at, made->bytes)) return false;
  take(p, *made);
  return true;
}

// In the room of the copy before, whose code has been unmapped, or with the same bytes.
bool Placer::settle_copy(Pending& p, const shared::Point& before) {
  const bool is_gone = before.state == static_cast<std::uint32_t>(shared::PointState::unmapped);
  const Addr at{before.copy};
  const auto made = before.copy_bytes != 0 ? make(p, at, at) : Result<Made>(Error{});
  if (!made || copy_room(made->copy_bytes, made->marks) > copy_room(before.copy_bytes, before.mark_count)) return false;
  if (!stands(at, made->bytes) && (!is_gone || !context_.target.write(at, made->bytes.data(), made->bytes.size())))
    return false;
  take(p, *made);
  return true;
}

// A point that is armed again (its library was unmapped meanwhile) keeps the room that it has had: libraries that come and go
// must not use the islands up.
bool Placer::settle(Pending& p) {
  if (!p.known) return false;
  const shared::Point& before = context_.block.points()[*p.known];
  if (settle_jump(p, before)) return true;
  take_breakpoint(p);
  return settle_copy(p, before);
}

// The most that a trampoline takes for an event; most events of a session have the same program.
std::uint32_t Placer::trampoline_room(const Pending& p) {
  const x86::TrampolineSpec spec = spec_of(p, {}, {});
  const auto program = spec.fast ? spec.fast->program : std::span<const shared::Insn>();
  const bool is_same =
      known_room_ != 0 && spec.fast.has_value() == known_fast_ &&
      std::equal(program.begin(), program.end(), known_program_.begin(), known_program_.end(), is_equal);
  if (is_same) return known_room_;
  known_fast_ = spec.fast.has_value();
  known_program_ = program;
  known_room_ = round_up(x86::trampoline_bytes(spec), kCopyAlignment);
  return known_room_;
}

Result<Placer::Room> Placer::measure(const Pending& p) {
  const auto copy = displace(p, p.point.address);
  if (!copy) return copy.error();
  const std::uint32_t trampoline = p.window == nullptr ? 0 : trampoline_room(p);
  return Room{trampoline, round_up(trampoline + copy_room(copy->bytes.size(), copy->marks.size()), kIslandUnit)};
}

// Room for each that has none, 0 for the others; returns all together. What cannot be displaced is refused.
std::uint64_t Placer::measure_all() {
  std::uint64_t all = 0;
  rooms_.clear();
  const auto fits = [&](Pending& p) {
    const auto room = p.point.copy ? Result<Room>(Room{}) : measure(p);
    if (!room) context_.refuse(p, room.error().text);
    if (!room) return false;
    rooms_.push_back(*room);
    all += room->bytes;
    return true;
  };
  keep_if(pending_, fits);
  return all;
}

Status Placer::place_new(Addr begin, std::uint64_t bytes) {
  std::vector<std::uint8_t> all(bytes, kFiller);
  Addr at = begin;
  std::size_t next = 0;
  const auto place = [&](Pending& p) {
    const Room room = rooms_[next++];
    if (room.bytes == 0) return true;
    const auto made = make(p, at, at + room.trampoline);
    if (!made) context_.refuse(p, made.error().text);
    if (!made) return false;
    std::copy(made->bytes.begin(), made->bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(at - begin));
    at = at + room.bytes;
    take(p, *made);
    return true;
  };
  keep_if(pending_, place);
  return context_.target.write(begin, all.data(), all.size());
}

// As breakpoints, if there is no room for trampolines.
Status Placer::run() {
  const auto has_no_room = [](const Pending& p) { return !p.point.copy; };
  for (Pending& p : pending_) settle(p);
  std::uint64_t bytes = measure_all();
  if (bytes == 0) return ok();
  auto found = island_room(context_.target, context_.block, context_.begin, context_.end, bytes);
  if (!found) {
    for (Pending& p : pending_)
      if (has_no_room(p)) take_breakpoint(p);
    bytes = measure_all();
    found = island_room(context_.target, context_.block, context_.begin, context_.end, bytes);
  }
  if (found) return place_new(*found, bytes);
  for (const Pending& p : pending_)
    if (has_no_room(p)) context_.refuse(p, found.error().text);
  std::erase_if(pending_, has_no_room);
  return ok();
}

}  // namespace

Status place_all(const PlaceContext& context, std::vector<Pending>& pending) { return Placer(context, pending).run(); }

}  // namespace uprobe::control
