// SPDX-License-Identifier: MIT
#include "engine/symbolize/call_frames.h"

#include <algorithm>

#include "engine/elf/frame_table.h"

namespace uprobe::elf {
namespace {

using Kind = FrameRule::Kind;

// Stacks repeat the same few places in code.
constexpr std::size_t kMostRows = 1 << 14;
// The longest program of a frame that compilers write has some thousands of steps.
constexpr unsigned kMostSteps = 1 << 14;
constexpr std::size_t kMostRemembered = 64;

}  // namespace

// Runs the rules of a frame up to an address.
class CallFrames::Program {
 public:
  Program(const Form& form, std::uint64_t begin, std::uint64_t address) : form_(form), at_(begin), address_(address) {
    row_.is_signal = form.is_signal;
  }

  std::optional<FrameRow> run(BytesView rules) {
    if (!run_part(form_.rules)) return std::nullopt;
    first_ = row_;
    if (!run_part(rules)) return std::nullopt;
    const bool has_top = row_.cfa.kind == Kind::in_register || row_.cfa.kind == Kind::is_expression;
    return has_top ? std::optional(row_) : std::nullopt;
  }

 private:
  enum : std::uint8_t { kHigh = 0xc0, kAdvance = 0x40, kOffset = 0x80, kRestore = 0xc0, kOperand = 0x3f };

  // False: a rule is not understood.
  bool run_part(BytesView rules) {
    Cursor cursor(rules);
    while (cursor.at() < rules.size() && at_ <= address_)
      if (++steps_ > kMostSteps || !step(cursor) || !cursor.good()) return false;
    return true;
  }

  bool step(Cursor& cursor) {
    const auto code = cursor.take<std::uint8_t>();
    const std::uint64_t operand = code & kOperand;
    switch (code & kHigh) {
      case kAdvance:
        return advance(operand);
      case kOffset:
        return set(operand, Kind::at_offset, factored(cursor.uleb()));
      case kRestore:
        return restore(operand);
      default:
        return code < 0x10 ? basic(code, cursor) : further(code, cursor);
    }
  }

  bool basic(std::uint8_t code, Cursor& cursor) {
    switch (code) {
      case 0x00:  // nop
        return true;
      case 0x02:  // advance_loc1, 2, 4; set_loc is in no table for this machine
        return advance(cursor.take<std::uint8_t>());
      case 0x03:
        return advance(cursor.take<std::uint16_t>());
      case 0x04:
        return advance(cursor.take<std::uint32_t>());
      case 0x05:  // offset_extended
        return set_far(Kind::at_offset, cursor);
      case 0x06:  // restore_extended
        return restore(cursor.uleb());
      case 0x07:  // undefined
        return set(cursor.uleb(), Kind::undefined, 0);
      case 0x08:  // same_value
        return set(cursor.uleb(), Kind::same, 0);
      case 0x09:  // register
        return set_register(cursor);
      case 0x0a:  // remember_state
        remembered_.push_back(row_);
        return remembered_.size() <= kMostRemembered;
      case 0x0b:  // restore_state
        return recall();
      case 0x0c:  // def_cfa
        row_.cfa = {.kind = Kind::in_register, .reg = cursor.uleb()};
        row_.cfa.offset = static_cast<std::int64_t>(cursor.uleb());
        return true;
      case 0x0d:  // def_cfa_register
        row_.cfa = {.kind = Kind::in_register, .reg = cursor.uleb(), .offset = row_.cfa.offset};
        return true;
      case 0x0e:  // def_cfa_offset
        row_.cfa.offset = static_cast<std::int64_t>(cursor.uleb());
        return row_.cfa.kind == Kind::in_register;
      case 0x0f:  // def_cfa_expression
        row_.cfa = {.kind = Kind::is_expression, .expression = cursor.slice(cursor.uleb())};
        return true;
      default:
        return false;
    }
  }

  bool further(std::uint8_t code, Cursor& cursor) {
    switch (code) {
      case 0x10:  // expression
        return set_expression(Kind::at_expression, cursor);
      case 0x11:  // offset_extended_sf
        return set_signed(Kind::at_offset, cursor);
      case 0x12:  // def_cfa_sf
        row_.cfa = {.kind = Kind::in_register, .reg = cursor.uleb()};
        row_.cfa.offset = factored(static_cast<std::uint64_t>(cursor.sleb()));
        return true;
      case 0x13:  // def_cfa_offset_sf
        row_.cfa.offset = factored(static_cast<std::uint64_t>(cursor.sleb()));
        return row_.cfa.kind == Kind::in_register;
      case 0x14:  // val_offset
        return set_far(Kind::is_offset, cursor);
      case 0x15:  // val_offset_sf
        return set_signed(Kind::is_offset, cursor);
      case 0x16:  // val_expression
        return set_expression(Kind::is_expression, cursor);
      case 0x2e:  // GNU_args_size: says nothing of registers
        cursor.uleb();
        return true;
      default:
        return false;
    }
  }

  bool advance(std::uint64_t units) {
    at_ += units * form_.code_alignment;
    return true;
  }
  std::int64_t factored(std::uint64_t units) const {
    return static_cast<std::int64_t>(units * static_cast<std::uint64_t>(form_.data_alignment));
  }

  // No reader needs vector registers and the like.
  bool set(std::uint64_t reg, FrameRule rule) {
    if (reg < kFrameRegisters) row_.registers[reg] = rule;
    return true;
  }
  bool set(std::uint64_t reg, Kind kind, std::int64_t offset) { return set(reg, {.kind = kind, .offset = offset}); }
  bool set_far(Kind kind, Cursor& cursor) {
    const std::uint64_t reg = cursor.uleb();
    return set(reg, kind, factored(cursor.uleb()));
  }
  bool set_signed(Kind kind, Cursor& cursor) {
    const std::uint64_t reg = cursor.uleb();
    return set(reg, kind, factored(static_cast<std::uint64_t>(cursor.sleb())));
  }
  bool set_register(Cursor& cursor) {
    const std::uint64_t reg = cursor.uleb();
    return set(reg, {.kind = Kind::in_register, .reg = cursor.uleb()});
  }
  bool set_expression(Kind kind, Cursor& cursor) {
    const std::uint64_t reg = cursor.uleb();
    return set(reg, {.kind = kind, .expression = cursor.slice(cursor.uleb())});
  }
  bool restore(std::uint64_t reg) {
    if (reg < kFrameRegisters) row_.registers[reg] = first_.registers[reg];
    return true;
  }
  bool recall() {
    if (remembered_.empty()) return false;
    row_ = remembered_.back();
    remembered_.pop_back();
    return true;
  }

  const Form& form_;
  std::uint64_t at_, address_;
  unsigned steps_ = 0;
  FrameRow row_, first_;
  std::vector<FrameRow> remembered_;
};

CallFrames::CallFrames(std::span<const std::uint8_t> file) {
  const auto image = Image::parse(BytesView(file));
  if (!image) return;
  const auto add = [&](const FrameForm& form, const FrameEntry& entry) {
    const std::uint64_t end = entry.begin + entry.size;
    if (!entry.rules || end <= entry.begin || image->executable_at(entry.begin) == nullptr) return;
    if (forms_.empty() || forms_.back().rules.span().data() != form.rules.span().data())
      forms_.push_back({form.code_alignment, form.return_column, form.data_alignment, form.rules, form.is_signal});
    entries_.push_back({entry.begin, end, *entry.rules, static_cast<std::uint32_t>(forms_.size() - 1)});
  };
  for (const auto& table : {find_frame_table(*image), find_debug_frame_table(*image)})
    if (table) each_frame(*table, add);
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
}

// Of two that begin at one address, the first: the program itself unwinds by .eh_frame.
const CallFrames::Entry* CallFrames::entry_at(std::uint64_t address) const {
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), address,
                                      [](std::uint64_t a, const Entry& entry) { return a < entry.begin; });
  if (after == entries_.begin()) return nullptr;
  const std::uint64_t begin = std::prev(after)->begin;
  const auto first = std::lower_bound(entries_.begin(), after, begin,
                                      [](const Entry& entry, std::uint64_t b) { return entry.begin < b; });
  return address < first->end ? &*first : nullptr;
}

std::optional<FrameRow> CallFrames::make_row(std::uint64_t address) const {
  const Entry* entry = entry_at(address);
  if (entry == nullptr) return std::nullopt;
  const Form& form = forms_[entry->form];
  if (form.return_column != kFrameIp) return std::nullopt;
  return Program(form, entry->begin, address).run(entry->rules);
}

const FrameRow* CallFrames::row_at(std::uint64_t address) {
  if (rows_.size() > kMostRows) rows_.clear();
  const auto [at, is_new] = rows_.try_emplace(address);
  if (is_new) at->second = make_row(address);
  return at->second ? &*at->second : nullptr;
}

}  // namespace uprobe::elf
