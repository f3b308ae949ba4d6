// SPDX-License-Identifier: MIT
// Runs an event's program (engine/shared/event_program.h) and lays out the payload. The tool verified the program, but it
// lies in memory that the application can write: every store is checked against the limit all the same.
#include "preload/agent.h"
#include "preload/stubs.h"
#include "preload/system_call.h"

namespace uprobe::agent {

// The tool may change an entry while the agent reads it: it clears `sentinel_at` first and writes it last (this machine keeps the
// order of stores, and that of loads).
UPROBE_IN_SECTION bool bias_of_object(const ProcessBlock& block, const Reader& reader, u32 index, u64& bias) {
  if (index >= shared::kMappedObjects) return false;
  const shared::MappedObject& object = block.objects[index];
  const u64 at = __atomic_load_n(&object.sentinel_at, __ATOMIC_ACQUIRE);
  bias = __atomic_load_n(&object.bias, __ATOMIC_ACQUIRE);
  const u64 sentinel = __atomic_load_n(&object.sentinel, __ATOMIC_ACQUIRE);
  u64 there = 0;
  if (at == 0 || __atomic_load_n(&object.sentinel_at, __ATOMIC_RELAXED) != at) return false;
  return reader.load8(at, there) && there == sentinel;
}

namespace {

using shared::Op;

class Builder {
 public:
  Builder(const Hit& hit, const AreaHeader* area, u32 fixed_bytes, Payload& payload)
      : hit_(hit), area_(area), reader_{hit.may_fault}, payload_(payload), fixed_(fixed_bytes) {
    payload_.used = fixed_bytes;
  }

  void step(const Insn& insn);
  Built result() const {
    if (wants_call_) return Built::wants_call;
    if (total_ > payload_.most) return Built::too_big;
    return total_ > payload_.limit ? Built::no_room : Built::ok;
  }
  void start() { total_ = payload_.used; }

 private:
  bool inside(u32 offset, u64 bytes) const { return offset + bytes <= fixed_; }
  void store_value(const Insn& insn);
  void copy_memory(const Insn& insn);
  void lead_past_stubs(const Insn& insn);
  void store_memory(const Insn& insn);
  u32 room_for_strings(u32 later) const;
  u32 fitting(const Insn& insn, u32 bytes);
  u32 most_characters(u32 room) const;
  void store_string(u32 offset, u64 address, bool readable, u32 later);
  void store_bounded_string(const Insn& insn);
  void store_string_array(const Insn& insn);
  void store_text(const Insn& insn);
  void store_comm(const Insn& insn);
  void store_vector(const Insn& insn);
  void load_entry(const Insn& insn);
  void load_object(const Insn& insn);
  void miss();
  void add_thread_pointer();
  void find_thread_data();
  void check_object(const Insn& insn);
  void run(const Insn& insn);
  void shift(const Insn& insn);
  u8* dynamic(u32 offset, u32 bytes);

  const Hit& hit_;
  const AreaHeader* area_;
  Reader reader_;
  Payload& payload_;
  u32 fixed_;
  u32 total_ = 0;  // bytes that the payload needs, also beyond its room
  u64 value_ = 0, kept_ = 0;
  u32 object_ = 0;  // index + 1 of the object whose data the argument reads; 0: none
  u64 object_bias_ = 0;
  bool fault_ = false;
  bool wants_call_ = false;
};

// Room for `bytes` of dynamic data with the locator at `offset`. Null if it does not fit: the hit is then dropped. 65,536 are
// the longest string (string_data.h).
UPROBE_IN_SECTION u8* Builder::dynamic(u32 offset, u32 bytes) {
  const u32 place = total_;
  total_ += bytes;
  if (total_ > payload_.limit || total_ > payload_.most) return nullptr;
  payload_.used = total_;
  const u32 locator = (bytes > shared::kMostString ? shared::kMostString : bytes) << 16 | place;
  __builtin_memcpy(payload_.at + offset, &locator, 4);
  return payload_.at + place;
}

UPROBE_IN_SECTION void Builder::store_value(const Insn& insn) {
  if (insn.size > 8 || !inside(insn.offset, insn.size)) return;
  const u64 value = fault_ ? 0 : value_;
  if (insn.size == 8) {
    __builtin_memcpy(payload_.at + insn.offset, &value, 8);
    return;
  }
  for (u32 i = 0; i < insn.size; ++i) payload_.at[insn.offset + i] = static_cast<u8>(value >> (8 * i));
}

// A stub's address must not show: the return address replaces it.
UPROBE_IN_SECTION void Builder::lead_past_stubs(const Insn& insn) {
  if (!shared::is_of_words(insn)) return;
  for (u32 i = 0; i < insn.count; i += 8) {
    u64 word = 0;
    __builtin_memcpy(&word, payload_.at + insn.offset + i, 8);
    if (!is_in_stub(word)) continue;
    word = past_stubs(word);
    __builtin_memcpy(payload_.at + insn.offset + i, &word, 8);
  }
}

UPROBE_IN_SECTION void Builder::store_memory(const Insn& insn) {
  if (!inside(insn.offset, insn.count)) return;
  copy_memory(insn);
  lead_past_stubs(insn);
}

UPROBE_IN_SECTION void Builder::copy_memory(const Insn& insn) {
  constexpr u64 kPageBytes = 4096;
  const Reader reader{reader_.may_fault && !fault_};
  const u64 from = value_ + insn.immediate;
  u8* const to = payload_.at + insn.offset;
  u32 done = reader.copy(to, from, insn.count);
  while (insn.size != 0 && done < insn.count && reader.may_fault) {
    const u64 after_page = ((from + done) | (kPageBytes - 1)) + 1 - from;
    const u64 next = (after_page + insn.size - 1) / insn.size * insn.size;
    if (next >= insn.count) return;
    done = static_cast<u32>(next) + reader.copy(to + next, from + next, insn.count - static_cast<u32>(next));
  }
}

// The bytes that a string may take if `later` ones follow. Some are kept for each of these, so that a long string leaves them
// more than nothing.
UPROBE_IN_SECTION u32 Builder::room_for_strings(u32 later) const {
  constexpr u32 kPlaces = shared::kMostString + 1;
  u32 end = payload_.most;
  if (total_ >= kPlaces) return 0;
  if (later != 0) {
    if (end > kPlaces) end = kPlaces;
    end -= later * (end / 1024);
  }
  return end > total_ ? end - total_ : 0;
}

UPROBE_IN_SECTION u32 Builder::most_characters(u32 room) const {
  u32 most = room == 0 ? 0 : room - 1;
  if (area_->string_limit != 0 && most > area_->string_limit) most = area_->string_limit;
  return most > shared::kMostString ? shared::kMostString : most;
}

// Of a length that the program keeps: any number, and the bytes need not be readable. Strict sessions have none.
UPROBE_IN_SECTION void Builder::store_bounded_string(const Insn& insn) {
  if (!inside(insn.offset, 4)) return;
  const u64 address = value_ + insn.immediate, length = kept_;
  const u32 fault = total_ > shared::kMostString ? shared::kMostString : total_, cut = shared::kCutToNothing;
  __builtin_memcpy(payload_.at + insn.offset, &fault, 4);
  if (fault_) return;
  const u32 room = room_for_strings(insn.size), most = most_characters(room);
  const bool is_cut = length > most;
  const u32 characters = is_cut ? most : static_cast<u32>(length), stored = characters + (is_cut ? 0 : 1);
  if (stored == 0 || stored > room) {
    __builtin_memcpy(payload_.at + insn.offset, &cut, 4);
    return;
  }
  u8* to = dynamic(insn.offset, stored);
  if (to == nullptr) return;
  if (!is_cut) to[characters] = 0;
  if (reader_.copy(to, address, characters) == characters) return;
  total_ -= stored;
  payload_.used = total_;
  __builtin_memcpy(payload_.at + insn.offset, &fault, 4);
}

// In a strict session a string that is too long is a fault, in another one it is cut.
UPROBE_IN_SECTION void Builder::store_string(u32 offset, u64 address, bool readable, u32 later) {
  if (!inside(offset, 4)) return;
  const bool is_strict = area_->string_limit == 0;
  u32 locator = total_ > shared::kMostString ? shared::kMostString : total_;  // length 0: (fault)
  __builtin_memcpy(payload_.at + offset, &locator, 4);
  const u32 room = is_strict ? shared::kMaxStringBytes : room_for_strings(later);
  const u32 most = most_characters(room);
  const u32 bytes = readable ? reader_.string_bytes(address, most + 1) : 0;
  const bool is_cut = bytes > most + 1;
  if (bytes == 0 || (is_cut && is_strict)) return;
  const u32 stored = is_cut ? most : bytes;
  if (stored == 0 || stored > room) {
    locator = shared::kCutToNothing;
    __builtin_memcpy(payload_.at + offset, &locator, 4);
    return;
  }
  u8* to = dynamic(offset, stored);
  if (to == nullptr) return;
  reader_.copy(to, address, stored);
  if (!is_cut) to[stored - 1] = 0;  // the string may have changed since it was measured
}

UPROBE_IN_SECTION void Builder::store_string_array(const Insn& insn) {
  for (u32 i = 0; i < insn.count; ++i) {
    u64 pointer = 0;
    const bool readable = !fault_ && reader_.load8(value_ + insn.immediate + 8 * i, pointer);
    store_string(insn.offset + 4 * i, pointer, readable, insn.size + (insn.count - 1u - i));
  }
}

// As many of a string's `bytes` as there is room for. 0: none, and its locator says that it was cut.
UPROBE_IN_SECTION u32 Builder::fitting(const Insn& insn, u32 bytes) {
  const u32 room = area_->string_limit == 0 ? bytes : room_for_strings(insn.size);
  const u32 locator = shared::kCutToNothing;
  __builtin_memcpy(payload_.at + insn.offset, &locator, 4);
  return bytes < room ? bytes : room;
}

UPROBE_IN_SECTION void Builder::store_text(const Insn& insn) {
  if (!inside(insn.offset, 4) || insn.immediate > area_->text_bytes || insn.count > area_->text_bytes - insn.immediate)
    return;
  const u32 bytes = fitting(insn, insn.count);
  u8* to = bytes == 0 ? nullptr : dynamic(insn.offset, bytes);
  if (to == nullptr) return;
  const u8* text = at_offset<u8>(area_, area_->text_offset + insn.immediate);
  for (u32 i = 0; i < bytes; ++i) to[i] = text[i];
}

UPROBE_IN_SECTION void Builder::store_comm(const Insn& insn) {
  constexpr u32 kCommBytes = 16;  // TASK_COMM_LEN
  if (!inside(insn.offset, 4)) return;
  u8 name[kCommBytes] = {};
  // prctl(PR_GET_NAME) touches nothing but the 16 bytes. It is not made where a seccomp filter is or may be in force:
  // such a record is marked, and the reader fills the name in.
  const bool may_call = (hit_.block->flags & shared::kBlockFiltered) == 0;
  if (may_call && payload_.in_section) {
    wants_call_ = true;
    return;
  }
  const bool known = may_call && get_task_name(name);
  u32 bytes = kCommBytes;
  if (known) {
    bytes = 1;
    while (bytes < kCommBytes && name[bytes - 1] != 0) ++bytes;
  } else {
    payload_.record_flags |= shared::kRecordCommLater;
  }
  u8* to = fitting(insn, bytes) < bytes ? nullptr : dynamic(insn.offset, bytes);
  if (to == nullptr) return;
  for (u32 i = 0; i < bytes; ++i) to[i] = name[i];
}

UPROBE_IN_SECTION void Builder::store_vector(const Insn& insn) {
  if (insn.size >= shared::kVectorCount || insn.count > shared::kYmmBytes || !inside(insn.offset, insn.count)) return;
  read_vector(hit_, insn.size, insn.count, payload_.at + insn.offset);
}

// Loads a word or the beginning of one, at any offset.
UPROBE_IN_SECTION void Builder::load_entry(const Insn& insn) {
  const EntryRecord* noted = hit_.noted;
  value_ = 0;
  fault_ = noted == nullptr || !noted->known;
  constexpr u32 kHead = sizeof(shared::PayloadHead);
  if (fault_ || insn.size > 8 || insn.offset < kHead || u64{insn.offset} + insn.size > shared::kMostNoted) return;
  const u8* bytes = reinterpret_cast<const u8*>(noted->words) + (insn.offset - kHead);
  for (u32 i = 0; i < insn.size; ++i) value_ |= u64{bytes[i]} << (8 * i);
}

UPROBE_IN_SECTION void Builder::load_object(const Insn& insn) {
  u64 bias = 0;
  fault_ = !bias_of_object(*hit_.block, reader_, insn.count, bias);
  value_ = fault_ ? 0 : bias + insn.immediate;
  if (!fault_) object_ = insn.count + 1u, object_bias_ = bias;
}

UPROBE_IN_SECTION void Builder::miss() {
  value_ = 0, fault_ = true;
  payload_.record_flags |= shared::kRecordNoEntry;
}

// The word that says the distance is 0 until the loader has relocated its object.
UPROBE_IN_SECTION void Builder::add_thread_pointer() {
  const u64 thread = thread_pointer();
  if (fault_ || thread == 0 || static_cast<i64>(value_) >= 0) return miss();
  value_ += thread;
}

// By the table that the thread's libc keeps of its modules. A thread that has not used a module's data has none of it. What it owns
// itself may be that of a module that was unloaded and had the same number, until the thread uses the new one.
UPROBE_IN_SECTION void Builder::find_thread_data() {
  const u64 module = value_, thread = thread_pointer();
  const i32 known = hit_.block->tid_offset;
  if (fault_ || thread == 0 || known == 0) return miss();
  const bool is_glibc = known == shared::kControlBlocks[0].tid;
  const shared::ModuleTableLayout& layout = shared::kModuleTables[is_glibc ? 0 : 1];
  u64 table = 0, count = 0, data = 0, owned = 0;
  if (!reader_.load8(thread + static_cast<u64>(i64{layout.table}), table)) return miss();
  if (!reader_.load8(table + static_cast<u64>(i64{layout.count}), count) || module == 0 || module > count)
    return miss();
  const u64 entry = table + module * layout.entry_bytes;
  if (!reader_.load8(entry, data) || data + 1 <= 1) return miss();
  if (is_glibc && (!reader_.load8(entry + 8, owned) || owned > 1)) return miss();
  value_ = data;
}

// The stored value is the object's only if the object is still mapped: another thread may have unloaded it and mapped another
// file.
UPROBE_IN_SECTION void Builder::check_object(const Insn& insn) {
  u64 bias = 0;
  const bool is_store = insn.op == Op::store_value || insn.op == Op::store_memory || insn.op == Op::store_string ||
                        insn.op == Op::store_string_array;
  if (object_ == 0 || !is_store || (bias_of_object(*hit_.block, reader_, object_ - 1, bias) && bias == object_bias_))
    return;
  fault_ = true;
  if (insn.op == Op::store_string) return store_string(insn.offset, 0, false, 0);
  if (insn.op == Op::store_string_array) return store_string_array(insn);
  if (insn.op == Op::store_value) return store_value(insn);
  if (!inside(insn.offset, insn.count)) return;
  for (u32 i = 0; i < insn.count; ++i) payload_.at[insn.offset + i] = 0;
}

// Bitfields: each element <<= left, >>= right, in its own width.
UPROBE_IN_SECTION void Builder::shift(const Insn& insn) {
  const u32 left = insn.immediate & 63, right = insn.immediate >> 8 & 63, size = insn.size;
  const bool is_signed = (insn.immediate & shared::kShiftSigned) != 0;
  if (size == 0 || size > 8 || !inside(insn.offset, u64{size} * insn.count)) return;
  for (u32 i = 0; i < insn.count; ++i) {
    u8* at = payload_.at + insn.offset + i * size;
    u64 value = 0;
    for (u32 b = 0; b < size; ++b) value |= u64{at[b]} << (8 * b);
    value = value << left << (64 - 8 * size);
    value = is_signed ? static_cast<u64>(static_cast<i64>(value) >> right) : value >> right;
    value >>= 64 - 8 * size;
    for (u32 b = 0; b < size; ++b) at[b] = static_cast<u8>(value >> (8 * b));
  }
}

UPROBE_IN_SECTION void Builder::step(const Insn& insn) {
  run(insn);
  check_object(insn);
}

UPROBE_IN_SECTION void Builder::run(const Insn& insn) {
  switch (insn.op) {
    case Op::end:
      break;
    case Op::begin:
      value_ = kept_ = 0, fault_ = false, object_ = 0;
      break;
    case Op::load_register:
      value_ = insn.size < shared::kRegCount ? past_stubs(hit_.registers->value[insn.size]) : 0;
      break;
    case Op::load_constant:
      value_ = insn.immediate;
      break;
    case Op::load_file_offset:
      value_ = hit_.point->file_bias + insn.immediate;
      break;
    case Op::load_object:
      load_object(insn);
      break;
    case Op::load_thread:
      value_ = hit_.tid;
      break;
    case Op::load_thread_pointer:
      value_ = thread_pointer();
      fault_ = fault_ || value_ == 0;
      break;
    case Op::add_thread_pointer:
      add_thread_pointer();
      break;
    case Op::find_thread_data:
      find_thread_data();
      break;
    case Op::keep:
      kept_ = value_;
      break;
    case Op::add_kept:
      value_ += kept_;
      break;
    case Op::dereference:
      if (!fault_ && !reader_.load8(value_ + insn.immediate, value_)) value_ = 0, fault_ = true;
      value_ = past_stubs(value_);
      break;
    case Op::add:
      value_ += insn.immediate;
      break;
    case Op::add_register:
      if (insn.size < shared::kRegCount) value_ += past_stubs(hit_.registers->value[insn.size]) << (insn.count & 3);
      break;
    case Op::shift_right:
      value_ >>= insn.immediate & 63;
      break;
    case Op::store_value:
      store_value(insn);
      break;
    case Op::store_memory:
      store_memory(insn);
      break;
    case Op::store_string:
      if (insn.count != 0) return store_bounded_string(insn);
      store_string(insn.offset, value_ + insn.immediate, !fault_, insn.size);
      break;
    case Op::store_string_array:
      store_string_array(insn);
      break;
    case Op::store_text:
      store_text(insn);
      break;
    case Op::store_comm:
      store_comm(insn);
      break;
    case Op::shift:
      shift(insn);
      break;
    case Op::load_entry:
      load_entry(insn);
      break;
    case Op::store_vector:
      store_vector(insn);
      break;
    case Op::load_latency:
      fault_ = hit_.noted == nullptr || !hit_.noted->known;
      value_ = fault_ ? 0 : hit_.noted->nanoseconds;
      break;
    case Op::load_self:
      fault_ = hit_.noted == nullptr || !hit_.noted->known || !hit_.noted->self_known;
      value_ = fault_ ? 0 : hit_.noted->self;
      break;
  }
}

}  // namespace

UPROBE_IN_SECTION Built build_payload(const Hit& hit, const AreaHeader* area, const Event& event, Payload& payload) {
  const u32 fixed = event.fixed_bytes;
  const bool is_return = (event.flags & shared::kEventReturns) != 0;
  if (fixed < (is_return ? sizeof(shared::ReturnHead) : sizeof(shared::PayloadHead)) || fixed > shared::kMaxPayload)
    return Built::too_big;
  if (u64{event.first_insn} + event.insn_count > area->insn_count) return Built::too_big;
  if (fixed > payload.limit) return Built::no_room;
  auto& head = *reinterpret_cast<shared::PayloadHead*>(payload.at);
  put_task(*hit.block, hit.tid, event.type, payload.at);
  head.ip = (*hit.registers)[shared::Reg::ip];
  if (is_return) {
    auto& returns = *reinterpret_cast<shared::ReturnHead*>(payload.at);
    returns.return_ip = head.ip;
    head.ip = hit.function;
  }

  const bool notes = (event.flags & shared::kEventNotes) != 0;
  if (notes && (hit.noted == nullptr || !hit.noted->known)) payload.record_flags |= shared::kRecordNoEntry;
  Builder builder(hit, area, fixed, payload);
  builder.start();
  const Insn* insn = at_offset<Insn>(area, area->insn_offset) + event.first_insn;
  for (u32 i = 0; i < event.insn_count && insn[i].op != Op::end; ++i) builder.step(insn[i]);
  return builder.result();
}

[[gnu::noinline]] bool build_note(const Hit& hit, const AreaHeader* area, const Event& event,
                                  u64 (&words)[shared::kNotedWords]) {
  u64 all[shared::kMostNoted / 8];
  for (u64& word : all) *const_cast<volatile u64*>(&word) = 0;
  if (event.note_bytes < sizeof(shared::PayloadHead) || event.note_bytes > sizeof all) return false;
  if (u64{event.first_note} + event.note_count > area->insn_count) return false;
  Payload payload{reinterpret_cast<u8*>(all), event.note_bytes, 0, 0, false, event.note_bytes};
  Builder builder(hit, area, event.note_bytes, payload);
  builder.start();
  const Insn* insn = at_offset<Insn>(area, area->insn_offset) + event.first_note;
  for (u32 i = 0; i < event.note_count && insn[i].op != Op::end; ++i) builder.step(insn[i]);
  copy_words(words, all + sizeof(shared::PayloadHead) / 8, sizeof words);
  return builder.result() == Built::ok;
}

}  // namespace uprobe::agent
