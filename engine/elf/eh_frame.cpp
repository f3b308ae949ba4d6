// SPDX-License-Identifier: MIT
#include "engine/elf/eh_frame.h"

#include <algorithm>
#include <optional>

#include "engine/elf/frame_table.h"

namespace uprobe::elf {
namespace {

// The state at the first instruction, by the rules of a frame (DWARF 5, section 6.4.2).
class FirstRow {
 public:
  explicit FirstRow(std::int64_t data_alignment) : data_alignment_(data_alignment) {}

  // False: after the row, or at a rule that is not understood.
  bool run(BytesView rules) {
    Cursor cursor(rules);
    while (cursor.at() < rules.size())
      if (!step(cursor)) return false;
    return cursor.good();
  }
  bool is_at_call() const {
    constexpr std::uint64_t kRsp = 7;
    return is_known_ && register_ == kRsp && offset_ == 8 && return_address_ == -8 && !saved_;
  }

 private:
  enum : std::uint8_t { kAdvance = 0x40, kOffset = 0x80, kRestore = 0xc0, kOperand = 0x3f };
  static constexpr std::uint64_t kReturnAddress = 16;

  bool step(Cursor& cursor) {
    const auto code = cursor.take<std::uint8_t>();
    const auto high = static_cast<std::uint8_t>(code & kRestore);
    if (high == kOffset) return save(code & kOperand, cursor);
    if (high == kAdvance || (code >= 0x01 && code <= 0x04)) return false;  // DW_CFA_advance_loc..., set_loc
    switch (code) {
      case 0x00:  // nop
      case 0x0a:  // remember_state
        return true;
      case 0x08:  // same_value
      case 0x2e:  // GNU_args_size
        cursor.uleb();
        return true;
      case 0x0c:  // def_cfa
        register_ = cursor.uleb();
        offset_ = cursor.uleb();
        return true;
      case 0x0d:  // def_cfa_register
        register_ = cursor.uleb();
        return true;
      case 0x0e:  // def_cfa_offset
        offset_ = cursor.uleb();
        return true;
      default:
        return is_known_ = false;
    }
  }
  bool save(std::uint64_t reg, Cursor& cursor) {
    const std::int64_t at = static_cast<std::int64_t>(cursor.uleb()) * data_alignment_;
    if (reg == kReturnAddress)
      return_address_ = at;
    else
      saved_ = true;
    return true;
  }

  std::int64_t data_alignment_;
  std::uint64_t register_ = 0, offset_ = 0;
  std::int64_t return_address_ = 0;
  bool saved_ = false, is_known_ = true;
};

bool begins_at_call(const FrameForm& form, BytesView rules) {
  FirstRow row(form.data_alignment);
  if (!row.run(form.rules)) return false;
  row.run(rules);
  return row.is_at_call();
}

// The augmentation data: its length, then the address of the language's table. A zero means that there is none,
// whatever it is relative to.
void read_handlers(Cursor cursor, const FrameTable& table, const FrameForm& form, Frame& frame) {
  cursor.uleb();
  Cursor raw = cursor;
  const bool is_none = take_format(raw, form.handlers & kFormatMask) == 0 && raw.good();
  if (is_none) return;
  const auto handlers = take_address(cursor, form.handlers, table.address + cursor.at());
  frame.handlers = handlers.value_or(0);
  frame.handlers_known = handlers.has_value();
}

std::optional<Frame> frame_of(const Image& image, const FrameTable& table, const FrameForm& form,
                              const FrameEntry& entry) {
  const Segment* segment = image.executable_at(entry.begin);
  if (segment == nullptr || entry.size == 0) return std::nullopt;
  const std::uint64_t room = segment->address + segment->file_bytes - entry.begin;
  Frame frame{.code = {entry.begin, entry.begin + std::min(entry.size, room)}, .is_signal = form.is_signal};
  frame.begins_at_call = entry.rules && begins_at_call(form, *entry.rules);
  if (form.has_augmentation && form.handlers != kOmitted) read_handlers(entry.augmentation, table, form, frame);
  return frame;
}

// The frames of functions, or those of signal handlers' callers.
std::vector<Frame> frames_of(const Image& image, bool signals) {
  std::vector<Frame> frames;
  const auto table = find_frame_table(image);
  if (!table) return frames;
  each_frame(*table, [&](const FrameForm& form, const FrameEntry& entry) {
    const auto frame = form.is_signal == signals ? frame_of(image, *table, form, entry) : std::nullopt;
    if (frame) frames.push_back(*frame);
  });
  return frames;
}

}  // namespace

std::vector<Frame> frames_of(const Image& image) { return frames_of(image, false); }

std::vector<Range> signal_frame_ranges(const Image& image) {
  std::vector<Range> ranges;
  for (const Frame& frame : frames_of(image, true)) ranges.push_back(frame.code);
  return ranges;
}

std::vector<Range> frame_ranges(const Image& image) {
  std::vector<Range> ranges;
  for (const Frame& frame : frames_of(image)) ranges.push_back(frame.code);
  return ranges;
}

// The table (Itanium C++ ABI's exception handling, as gcc and clang write it for every language): the landing pads' base,
// the types, then the call sites: begin, length, landing pad (0: none), action.
std::optional<std::vector<std::uint64_t>> landing_pads(const Image& image, const Frame& frame, std::size_t most) {
  std::vector<std::uint64_t> pads;
  if (!frame.handlers_known) return std::nullopt;
  if (frame.handlers == 0) return pads;
  Cursor cursor(image.bytes_at(frame.handlers));
  std::uint64_t base = frame.code.begin;
  if (const auto encoding = cursor.take<std::uint8_t>(); encoding != kOmitted) {
    const auto given = take_address(cursor, encoding, frame.handlers + cursor.at());
    if (!given) return std::nullopt;
    base = *given;
  }
  if (cursor.take<std::uint8_t>() != kOmitted) cursor.uleb();  // the types, and where their table ends
  const auto format = static_cast<std::uint8_t>(cursor.take<std::uint8_t>() & kFormatMask);
  const std::uint64_t length = cursor.uleb();
  const std::uint64_t begin = cursor.at();
  for (std::size_t entries = 0; cursor.good() && cursor.at() - begin < length; ++entries) {
    if (entries == most) return std::nullopt;
    take_format(cursor, format);
    take_format(cursor, format);
    const std::uint64_t pad = take_format(cursor, format);
    cursor.uleb();
    if (pad != 0) pads.push_back(base + pad);
  }
  if (!cursor.good()) return std::nullopt;
  return pads;
}

}  // namespace uprobe::elf
