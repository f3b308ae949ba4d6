// SPDX-License-Identifier: MIT
// One pass over the instructions with a small state: the stage within an argument, and the bytes that are stored.
#include "engine/program/verify.h"

#include <string_view>
#include <utility>
#include <vector>

#include "engine/program/compile.h"
#include "engine/program/filter.h"

namespace uprobe::program {
namespace {

using shared::Insn;
using shared::Op;

// A nested definition has at most 15 steps; a program that is longer than this was not made from one.
constexpr std::size_t kMaxInsns = std::size_t{shared::kMaxArguments} * 20 + 1;

// Where in an argument the next instruction is. Only `stored` may be followed by another argument, a shift or the end.
enum class Stage { outside, begun, loaded, stored };

bool is_element_size(unsigned size) { return size == 1 || size == 2 || size == 4 || size == 8; }

class Verifier {
 public:
  explicit Verifier(const EventProgram& program)
      : program_(program), taken_(program.layout.fixed_bytes <= kMaxFixed ? program.layout.fixed_bytes : 0) {}

  Status check();

 private:
  static constexpr std::uint32_t kMaxFixed = kReturnHead + shared::kMaxFixedArguments;

  Status check_layout();
  Status check_insn(const Insn& insn);
  Status check_load(const Insn& insn);
  Status check_noted(const Insn& insn);
  Status check_store(const Insn& insn);
  Status check_sourceless(const Insn& insn);
  Status check_text(const Insn& insn);
  Status check_shift(const Insn& insn);
  Status take_extension(const Insn& insn);
  Status take(const Insn& insn, std::uint64_t bytes);
  Status begin();
  Status keep();
  Error fail(std::string_view what) const {
    return Error{.code = Code::damaged, .text = "instruction " + std::to_string(at_) + ": " + std::string(what)};
  }
  std::uint32_t head() const { return program_.layout.is_return ? kReturnHead : kEntryHead; }

  const EventProgram& program_;
  std::vector<bool> taken_;  // bytes of the fixed part
  Stage stage_ = Stage::outside;
  bool has_kept_ = false, may_restart_ = false;  // of this argument
  std::size_t at_ = 0;
  std::uint32_t stored_offset_ = 0, stored_bytes_ = 0;  // of the last store
};

Status Verifier::check() {
  RETURN_IF_ERROR(check_layout());
  const auto& insns = program_.insns;
  if (insns.empty() || insns.back().op != Op::end)
    return Error{.code = Code::damaged, .text = "the program has no end"};
  if (insns.size() > kMaxInsns) return Error{.code = Code::damaged, .text = "the program is too long"};
  for (at_ = 0; at_ < insns.size(); ++at_) {
    RETURN_IF_ERROR(check_insn(insns[at_]));
  }
  // The ring's memory is reused: a byte without a store would be another record's.
  for (std::size_t i = head(); i < taken_.size(); ++i) {
    if (!taken_[i]) return Error{.code = Code::damaged, .text = "byte " + std::to_string(i) + " is never stored"};
  }
  return verify_filter(program_);
}

// The reader prints by these fields alone, so a hole or an overlap would show an earlier record's bytes.
Status Verifier::check_layout() {
  const EventLayout& layout = program_.layout;
  const auto damaged = [](const char* text) { return Error{.code = Code::damaged, .text = text}; };
  if (layout.fixed_bytes < head() || layout.fixed_bytes - head() > shared::kMaxFixedArguments)
    return damaged("the record's size is impossible");
  if (layout.fields.size() > shared::kMaxArguments) return damaged("the record has too many fields");
  std::uint64_t end = head();
  for (const Field& field : layout.fields) {
    if (!is_element_size(field.size) || field.count > kMaxElements) return damaged("a field's size is impossible");
    if (field.kind == Kind::string && field.size != kLocatorBytes) return damaged("a string's field is no locator");
    if (field.is_wide && (field.is_text || !spec::can_be_wide(field.kind, field.size, field.count)))
      return damaged("a wide field is no pair of numbers");
    if (field.offset != end) return damaged("the fields are not packed");
    end += std::uint64_t{field.size} * (field.count == 0 ? 1 : field.count);
  }
  return end == layout.fixed_bytes ? ok() : damaged("the fields do not fill the record");
}

Status Verifier::check_insn(const Insn& insn) {
  switch (insn.op) {
    case Op::load_entry:
    case Op::load_latency:
    case Op::load_self:
      return check_noted(insn);
    case Op::end:
      if (stage_ != Stage::outside && stage_ != Stage::stored) return fail("the last argument stores nothing");
      return at_ + 1 == program_.insns.size() ? ok() : fail("an end in the middle");
    case Op::begin:
      return begin();
    case Op::load_register:
    case Op::load_constant:
    case Op::load_file_offset:
    case Op::load_object:
    case Op::load_thread:
    case Op::load_thread_pointer:
    case Op::dereference:
    case Op::add:
    case Op::add_register:
    case Op::add_kept:
    case Op::add_thread_pointer:
    case Op::find_thread_data:
    case Op::shift_right:
      return check_load(insn);
    case Op::keep:
      return keep();
    case Op::store_value:
    case Op::store_memory:
    case Op::store_string:
    case Op::store_string_array:
      return stage_ == Stage::loaded ? check_store(insn) : fail("a store without a value");
    case Op::store_text:
    case Op::store_comm:
    case Op::store_vector:
      return stage_ == Stage::begun ? check_sourceless(insn) : fail("a store of its own after a value");
    case Op::shift:
      return check_shift(insn);
  }
  return fail("an unknown operation");
}

Status Verifier::begin() {
  if (stage_ != Stage::outside && stage_ != Stage::stored) return fail("the argument before stores nothing");
  stage_ = Stage::begun;
  has_kept_ = may_restart_ = false;
  return ok();
}

// Another source may follow at once.
Status Verifier::keep() {
  if (stage_ != Stage::loaded) return fail("nothing to keep");
  has_kept_ = may_restart_ = true;
  return ok();
}

// One source, then what changes its value; a register number indexes the agent's register file.
Status Verifier::check_load(const Insn& insn) {
  const bool is_source = insn.op != Op::dereference && insn.op != Op::add && insn.op != Op::add_register &&
                         insn.op != Op::add_kept && insn.op != Op::shift_right && insn.op != Op::add_thread_pointer &&
                         insn.op != Op::find_thread_data;
  const bool restarts = is_source && std::exchange(may_restart_, false);
  if (!restarts && stage_ != (is_source ? Stage::begun : Stage::loaded)) return fail("a load out of order");
  may_restart_ = false;
  if (insn.op == Op::add_kept && !has_kept_) return fail("nothing was kept");
  const bool is_register = insn.op == Op::load_register || insn.op == Op::add_register;
  if (is_register && insn.size >= shared::kRegCount) return fail("an unknown register");
  if (insn.op == Op::add_register && insn.count > 3) return fail("an index of an impossible scale");
  if (insn.op == Op::load_object && insn.count >= program_.objects.size()) return fail("an unknown object");
  if (insn.op == Op::shift_right && insn.immediate >= 64) return fail("a shift past the value");
  stage_ = Stage::loaded;
  return ok();
}

// A load from the entry record lies inside its layout, and only return events have one.
Status Verifier::check_noted(const Insn& insn) {
  if (stage_ != Stage::begun) return fail("a load out of order");
  if (program_.note.empty() || !program_.layout.is_return) return fail("nothing is noted at the entry");
  const std::uint64_t end = std::uint64_t{insn.offset} + insn.size;
  const bool is_inside = is_element_size(insn.size) && insn.offset >= kEntryHead && end <= program_.noted.fixed_bytes;
  if (insn.op == Op::load_entry && !is_inside) return fail("a load outside of what is noted");
  stage_ = Stage::loaded;
  return ok();
}

// A locator takes 4 bytes; the agent bounds its data at the hit.
Status Verifier::check_store(const Insn& insn) {
  if (insn.op == Op::store_value && !is_element_size(insn.size)) return fail("a value of an impossible size");
  if (insn.op == Op::store_memory && insn.size != 0 && (!is_element_size(insn.size) || insn.count % insn.size != 0))
    return fail("elements of an impossible size");
  const bool is_bounded = insn.op == Op::store_string && insn.count != 0;
  if (is_bounded && (insn.count != 1 || !has_kept_)) return fail("a string without its length");
  const bool is_array = insn.op == Op::store_string_array;
  if (is_array && (insn.count == 0 || insn.count > kMaxElements)) return fail("an array of an impossible length");
  switch (insn.op) {
    case Op::store_value:
      return take(insn, insn.size);
    case Op::store_memory:
      return take(insn, insn.count);
    default:
      return take(insn, is_array ? std::uint64_t{insn.count} * kLocatorBytes : kLocatorBytes);
  }
}

// Stores that need no value.
Status Verifier::check_sourceless(const Insn& insn) {
  if (insn.op != Op::store_vector) return check_text(insn);
  if (insn.size >= shared::kVectorCount || insn.count > shared::kYmmBytes) return fail("an unknown vector register");
  return take(insn, insn.count);
}

// The agent copies these bytes without looking for the NUL, the reader prints up to it.
Status Verifier::check_text(const Insn& insn) {
  if (insn.op == Op::store_text) {
    const std::string& pool = program_.text;
    if (insn.count == 0 || insn.count > shared::kMaxStringBytes) return fail("a text of an impossible length");
    if (insn.immediate >= pool.size() || insn.count > pool.size() - insn.immediate)
      return fail("a text outside of its pool");
    if (pool[insn.immediate + insn.count - 1] != '\0') return fail("a text without its NUL");
  }
  return take(insn, kLocatorBytes);
}

// A count of the element's width or more is undefined in C++ and taken modulo by the machine.
Status Verifier::check_shift(const Insn& insn) {
  if (stage_ != Stage::stored) return fail("a shift before its store");
  if (!is_element_size(insn.size) || insn.count == 0) return fail("a shift of an impossible size");
  if (insn.offset == stored_offset_ && insn.count == 1 && insn.size > stored_bytes_)
    RETURN_IF_ERROR(take_extension(insn));
  if (insn.offset != stored_offset_ || std::uint32_t{insn.size} * insn.count != stored_bytes_)
    return fail("a shift of what was not stored");
  const std::uint64_t left = insn.immediate & 0xff, right = (insn.immediate & ~shared::kShiftSigned) >> 8;
  if (left >= insn.size * 8u || right >= insn.size * 8u) return fail("a shift past the element");
  return ok();
}

// A shift to a wider element is the first store to its upper bytes: it must shift out all that was there.
Status Verifier::take_extension(const Insn& insn) {
  const std::uint32_t stored = stored_bytes_;
  if ((insn.immediate & 0xff) < 8u * (insn.size - stored)) return fail("a shift that keeps what was not stored");
  const Insn rest{.op = insn.op, .size = insn.size, .count = 1, .offset = insn.offset + stored, .immediate = 0};
  RETURN_IF_ERROR(take(rest, insn.size - stored));
  stored_offset_ = insn.offset;
  stored_bytes_ = insn.size;
  return ok();
}

// A store of an argument: inside the fixed part, outside the head, to bytes without an earlier store.
Status Verifier::take(const Insn& insn, std::uint64_t bytes) {
  const std::uint64_t end = insn.offset + bytes;
  if (bytes == 0 || insn.offset < head() || end > taken_.size()) return fail("a store outside of the record");
  for (std::uint64_t i = insn.offset; i < end; ++i) {
    if (taken_[i]) return fail("a second store to the same bytes");
    taken_[i] = true;
  }
  stage_ = Stage::stored;
  stored_offset_ = insn.offset;
  stored_bytes_ = static_cast<std::uint32_t>(bytes);
  return ok();
}

}  // namespace

// An entry record has no dynamic data: strings would need the text of their own program.
Status verify(const EventProgram& program) {
  RETURN_IF_ERROR(Verifier(program).check());
  if (program.note.empty()) return ok();
  const EventProgram note{.layout = program.noted, .insns = program.note};
  if (note.layout.is_return || note.layout.fixed_bytes > shared::kMostNoted)
    return Error{.code = Code::damaged, .text = "what is noted at the entry is impossible"};
  for (const Insn& insn : note.insns)
    if (insn.op >= Op::store_string && insn.op <= Op::store_comm)
      return Error{.code = Code::damaged, .text = "dynamic data is noted at the entry"};
  return Verifier(note).check();
}

}  // namespace uprobe::program
