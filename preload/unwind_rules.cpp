// SPDX-License-Identifier: MIT
// Unwind tables (LSB core specification, .eh_frame; DWARF 4, section 6.4) say by a small program how the frame of a function grows.
// It is run up to the address, which takes some hundred nanoseconds; so the rules are kept.
//
// What the agent follows are the two registers by which compilers describe frames, the stack pointer and the frame pointer, and the
// two expressions that they use where a function aligns its stack. All other rules are `unknown`.
#include "preload/unwind_rules.h"

#include "arch/shared/unwinding.h"
#include "preload/unwind_tables.h"

namespace uprobe::agent {
namespace {

constexpr u32 kMostBytes = 65536;   // of one program; very large functions have thousands
constexpr u32 kMostRemembered = 2;  // compilers need one
constexpr i64 kMostDistance = 1 << 27;

// The bytes of a table, and whether all that was asked for was there.
struct TableBytes {
  u64 at, end;
  bool good = true;

  UPROBE_IN_SECTION u64 fixed(u32 bytes) {
    u64 value = 0, byte = 0;
    for (u32 i = 0; i < bytes && good; ++i, ++at) {
      good = at < end && uprobe_peek1(at, &byte);
      value |= (byte & 0xff) << 8 * i;
    }
    return value;
  }
  UPROBE_IN_SECTION u64 variable(bool is_signed = false) {
    u64 value = 0, byte = 0x80;
    u32 shift = 0;
    while ((byte & 0x80) != 0 && good) {
      byte = fixed(1);
      if (shift < 64) value |= (byte & 0x7f) << shift;
      shift += 7;
    }
    if (is_signed && shift < 64 && (byte & 0x40) != 0) value |= ~u64{0} << shift;
    return value;
  }
  UPROBE_IN_SECTION i64 variable_signed() { return static_cast<i64>(variable(true)); }
  UPROBE_IN_SECTION void skip(u64 bytes) {
    good = good && bytes <= end - at;
    if (good) at += bytes;
  }
};

// What the file says of all functions with the same kind of frame (a CIE).
struct CommonPart {
  TableBytes program{};
  u64 code_unit = 0;
  i64 data_unit = 0;
  bool is_of_signal = false, has_extra = false;
};

UPROBE_IN_SECTION bool read_common_part(u64 at, CommonPart& common) {
  TableBytes bytes{at, at + 8};
  const u64 length = bytes.fixed(4);
  if (bytes.fixed(4) != 0 || !bytes.good || length > kMostBytes || length < 8) return false;
  bytes.end = at + 4 + length;
  const u64 version = bytes.fixed(1);
  for (u64 letter = bytes.fixed(1); letter != 0 && bytes.good; letter = bytes.fixed(1)) {
    common.has_extra = common.has_extra || letter == 'z';
    common.is_of_signal = common.is_of_signal || letter == 'S';
    if (!common.has_extra) return false;
  }
  common.code_unit = bytes.variable(), common.data_unit = bytes.variable_signed();
  const u64 return_address = version == 1 ? bytes.fixed(1) : bytes.variable();
  if (common.has_extra) {
    const u64 extra = bytes.variable();
    bytes.skip(extra);
  }
  common.program = bytes;
  return bytes.good && return_address == shared::kUnwindReturnAddress;
}

// The state of a program. Without default values, so that no memory is filled.
struct Frame {
  i32 distance, link_at;
  FrameBase base;
  CallersLink link;
  bool ends, is_odd;  // is_odd: the return address or the link is somewhere else
};
constexpr Frame kNoFrame{0, 0, FrameBase::unknown, CallersLink::kept, false, false};

UPROBE_IN_SECTION i32 bounded(i64 distance, bool& good) {
  good = good && distance > -kMostDistance && distance < kMostDistance;
  return good ? static_cast<i32>(distance) : 0;
}

UPROBE_IN_SECTION FrameBase base_by(u64 reg) {
  if (reg == shared::kUnwindStackPointer) return FrameBase::stack;
  return reg == shared::kUnwindFramePointer ? FrameBase::frame : FrameBase::unknown;
}

// A place by the frame pointer alone: DW_OP_bregN, and where `is_word` DW_OP_deref after it.
UPROBE_IN_SECTION bool read_place_by_link(TableBytes& bytes, bool is_word, i64& distance) {
  constexpr u64 kDeref = 0x06, kByFirstRegister = 0x70;
  const u64 length = bytes.variable();
  TableBytes place{bytes.at, bytes.at + length};
  bytes.skip(length);
  if (!bytes.good || place.fixed(1) != kByFirstRegister + shared::kUnwindFramePointer) return false;
  distance = place.variable_signed();
  const bool has_word = place.at < place.end && place.fixed(1) == kDeref;
  return place.good && has_word == is_word && place.at == place.end;
}

// One program; `place` is where the code is that the state belongs to.
struct Run {
  const CommonPart& common;
  u64 wanted, place;
  Frame frame = kNoFrame, first = kNoFrame;  // first: after the common part
  u32 depth = 0;
  Frame remembered[kMostRemembered];

  UPROBE_IN_SECTION Run(const CommonPart& its_common, u64 wanted_address, u64 begin)
      : common(its_common), wanted(wanted_address), place(begin) {}

  UPROBE_IN_SECTION void save_at(TableBytes& bytes, u64 reg, i64 factor) {
    const i64 at = static_cast<i64>(static_cast<u64>(factor) * static_cast<u64>(common.data_unit));
    if (reg == shared::kUnwindFramePointer)
      frame.link = CallersLink::below_frame, frame.link_at = bounded(at, bytes.good);
    if (reg == shared::kUnwindReturnAddress) frame.is_odd = at != -static_cast<i64>(sizeof(u64));
  }
  UPROBE_IN_SECTION void save_by_expression(TableBytes& bytes, u64 reg) {
    i64 distance = 0;
    const bool is_known = read_place_by_link(bytes, false, distance);
    if (reg == shared::kUnwindFramePointer && is_known)
      frame.link = CallersLink::from_link, frame.link_at = bounded(distance, bytes.good);
    else if (reg == shared::kUnwindFramePointer || reg == shared::kUnwindReturnAddress)
      frame.is_odd = true;
  }
  UPROBE_IN_SECTION void base_by_expression(TableBytes& bytes) {
    i64 distance = 0;
    frame.base = read_place_by_link(bytes, true, distance) ? FrameBase::word : FrameBase::unknown;
    frame.distance = bounded(distance, bytes.good);
  }
  UPROBE_IN_SECTION void restore(u64 reg) {
    if (reg == shared::kUnwindFramePointer) frame.link = first.link, frame.link_at = first.link_at;
    if (reg == shared::kUnwindReturnAddress) frame.is_odd = first.is_odd, frame.ends = first.ends;
  }
  UPROBE_IN_SECTION void lose(u64 reg) {
    if (reg == shared::kUnwindFramePointer) frame.link = CallersLink::kept;
    if (reg == shared::kUnwindReturnAddress) frame.ends = true;
  }
  UPROBE_IN_SECTION bool step(TableBytes& bytes);
  UPROBE_IN_SECTION bool step_by_name(TableBytes& bytes, u64 name);
};

// DW_CFA_*. False: one that no compiler writes for this machine.
UPROBE_IN_SECTION bool Run::step_by_name(TableBytes& bytes, u64 name) {
  u64 reg = 0;
  switch (name) {
    case 0x00:  // nop
      return true;
    case 0x02:  // advance_loc1
    case 0x03:
    case 0x04:
      place += bytes.fixed(1u << (name - 2)) * common.code_unit;
      return true;
    case 0x05:  // offset_extended
      reg = bytes.variable();
      save_at(bytes, reg, static_cast<i64>(bytes.variable()));
      return true;
    case 0x06:  // restore_extended
      restore(bytes.variable());
      return true;
    case 0x07:  // undefined
    case 0x08:  // same_value
      reg = bytes.variable();
      if (name == 0x07 || reg == shared::kUnwindFramePointer) lose(reg);
      return true;
    case 0x09:  // register
      reg = bytes.variable(), bytes.variable();
      frame.is_odd = frame.is_odd || reg == shared::kUnwindFramePointer || reg == shared::kUnwindReturnAddress;
      return true;
    case 0x0a:  // remember_state
      if (depth == kMostRemembered) return false;
      remembered[depth++] = frame;
      return true;
    case 0x0b:  // restore_state
      if (depth == 0) return false;
      frame = remembered[--depth];
      return true;
    case 0x0c:  // def_cfa
      frame.base = base_by(bytes.variable());
      frame.distance = bounded(static_cast<i64>(bytes.variable()), bytes.good);
      return true;
    case 0x0d:  // def_cfa_register
      frame.base = base_by(bytes.variable());
      return true;
    case 0x0e:  // def_cfa_offset
      frame.distance = bounded(static_cast<i64>(bytes.variable()), bytes.good);
      return true;
    case 0x0f:  // def_cfa_expression
      base_by_expression(bytes);
      return true;
    case 0x10:  // expression
      reg = bytes.variable();
      save_by_expression(bytes, reg);
      return true;
    case 0x11:  // offset_extended_sf
      reg = bytes.variable();
      save_at(bytes, reg, bytes.variable_signed());
      return true;
    case 0x16:  // val_expression
      reg = bytes.variable();
      bytes.skip(bytes.variable());
      frame.is_odd = frame.is_odd || reg == shared::kUnwindFramePointer || reg == shared::kUnwindReturnAddress;
      return true;
    case 0x2e:  // GNU_args_size
      bytes.variable();
      return true;
    default:
      return false;
  }
}

UPROBE_IN_SECTION bool Run::step(TableBytes& bytes) {
  const u64 byte = bytes.fixed(1), low = byte & 0x3f;
  switch (byte >> 6) {
    case 1:  // advance_loc
      place += low * common.code_unit;
      return true;
    case 2:  // offset
      save_at(bytes, low, static_cast<i64>(bytes.variable()));
      return true;
    case 3:  // restore
      restore(low);
      return true;
    default:
      return step_by_name(bytes, low);
  }
}

// Up to the last state that begins at or below the wanted address. False: it is not known.
UPROBE_IN_SECTION bool run(Run& of, TableBytes bytes) {
  while (bytes.at < bytes.end) {
    const Frame before = of.frame;
    if (!of.step(bytes) || !bytes.good) return false;
    if (of.place > of.wanted) return of.frame = before, true;
  }
  return true;
}

UPROBE_IN_SECTION UnwindRule rule_of(const Frame& frame) {
  if (frame.ends) return {.base = FrameBase::outermost};
  if (frame.is_odd || frame.base == FrameBase::unknown) return {};
  return {.base = frame.base, .link = frame.link, .distance = frame.distance, .link_at = frame.link_at};
}

// Not inlined, so that a known rule is found without the stack that this takes.
[[gnu::noinline]] UPROBE_IN_SECTION UnwindRule read_rule(const ProcessBlock& block, u64 address) {
  const Description found = description_of(block, address);
  CommonPart common;
  if (found.begin == 0) return {};
  TableBytes bytes{found.at, found.at + 8};
  const u64 length = bytes.fixed(4), common_at = found.at + 4 - bytes.fixed(4);
  if (!bytes.good || length > kMostBytes || !read_common_part(common_at, common)) return {};
  if (common.is_of_signal) return {.base = FrameBase::signal};
  bytes.end = found.at + 4 + length;
  bytes.skip(8);  // the begin and the length of the function
  if (common.has_extra) {
    const u64 extra = bytes.variable();
    bytes.skip(extra);
  }
  Run program(common, address, found.begin);
  if (!bytes.good || !run(program, common.program)) return {};
  program.first = program.frame;
  return run(program, bytes) ? rule_of(program.frame) : UnwindRule{};
}

// ---- known rules

constexpr u32 kDistanceBits = 29, kBaseBits = 3, kLinkBits = 2;
constexpr u64 kDistanceMask = (u64{1} << kDistanceBits) - 1;

UPROBE_IN_SECTION u64 packed(const UnwindRule& rule) {
  const u64 distance = static_cast<u64>(i64{rule.distance}) & kDistanceMask;
  const u64 link_at = static_cast<u64>(i64{rule.link_at}) & kDistanceMask;
  return static_cast<u64>(rule.base) | static_cast<u64>(rule.link) << kBaseBits |
         (distance | link_at << kDistanceBits) << (kBaseBits + kLinkBits);
}

UPROBE_IN_SECTION i32 distance_in(u64 bits) {
  return static_cast<i32>(static_cast<i64>(bits << (64 - kDistanceBits)) >> (64 - kDistanceBits));
}

UPROBE_IN_SECTION UnwindRule unpacked(u64 word) {
  const u64 distances = word >> (kBaseBits + kLinkBits);
  return {.base = static_cast<FrameBase>(word & 7),
          .link = static_cast<CallersLink>(word >> kBaseBits & 3),
          .distance = distance_in(distances),
          .link_at = distance_in(distances >> kDistanceBits)};
}

// Of other code at the same address, and of a file that has been mapped there since, it is another one.
UPROBE_IN_SECTION u64 check_of(const ProcessBlock& block, u64 address, u64 code, u64 rule) {
  const u64 changes = u64{__atomic_load_n(&block.code_changes, __ATOMIC_RELAXED)} << 32;
  return ((rule ^ code) * 0xff51afd7ed558ccd) ^ changes ^ address ^ 1;
}

}  // namespace

UPROBE_IN_SECTION UnwindRule unwind_rule(ProcessBlock& block, u64 address) {
  const u64 code = uprobe_peek_word(address);
  const u64 hash = (address * 0x9e3779b97f4a7c15) >> 32;
  shared::UnwindRow& row = at_offset<shared::UnwindRow>(&block, block.unwind_offset)[hash & (shared::kUnwindRows - 1)];
  const u64 known = __atomic_load_n(&row.rule, __ATOMIC_RELAXED);
  if (__atomic_load_n(&row.check, __ATOMIC_RELAXED) == check_of(block, address, code, known)) return unpacked(known);
  const UnwindRule rule = read_rule(block, address);
  const u64 word = packed(rule);
  __atomic_store_n(&row.rule, word, __ATOMIC_RELAXED);
  __atomic_store_n(&row.check, check_of(block, address, code, word), __ATOMIC_RELAXED);
  return rule;
}

}  // namespace uprobe::agent
