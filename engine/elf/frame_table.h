// SPDX-License-Identifier: MIT
// The entries of unwind tables (.eh_frame, .debug_frame). Internal to this folder.
//
//   CIE  length, id, version, augmentation, alignments, return column, augmentation data (pointer encodings), first rules
//   FDE  length, where its CIE is, first address and size of the code (encoded as the CIE says), ..., rules
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/elf/image.h"

namespace uprobe::elf {

// Pointer encodings (DW_EH_PE_*): the low half is the format, the high half the base of the value.
inline constexpr std::uint8_t kFormatMask = 0x0f;
inline constexpr std::uint8_t kOmitted = 0xff;
inline constexpr std::uint8_t kAbsolute = 0x00;

// A value without its base; an unknown format leaves the cursor in a failed state.
std::uint64_t take_format(Cursor& cursor, std::uint8_t format);

// An address that is the same in the file and in memory: not an indirect, text-relative or function-relative one.
std::optional<std::uint64_t> take_address(Cursor& cursor, std::uint8_t encoding, std::uint64_t field_address);

// The table's bytes and where they are loaded.
struct FrameTable {
  BytesView bytes;
  std::uint64_t address = 0;
  bool ends_at_terminator = false;  // its size is not known otherwise
  bool is_debug = false;            // .debug_frame
};
std::optional<FrameTable> find_frame_table(const Image& image);  // .eh_frame
std::optional<FrameTable> find_debug_frame_table(const Image& image);

// A CIE: how its FDEs are written.
struct FrameForm {
  std::uint64_t code_alignment = 0;
  std::int64_t data_alignment = 0;
  std::uint64_t return_column = 0;
  BytesView rules;  // the first rules of its FDEs
  std::uint8_t pointer = kAbsolute;
  std::uint8_t handlers = kOmitted;
  bool has_augmentation = false;
  bool is_signal = false;
};

// An FDE. The code may be anywhere: the linker leaves the FDEs of discarded functions in place, at address 0.
struct FrameEntry {
  std::uint64_t begin = 0, size = 0;
  std::optional<BytesView> rules;  // nothing: they are not inside the table
  Cursor augmentation;             // where its data begin, with their length; only if the form has any
};

// Each FDE that can be read, in the order of the table.
void each_frame(const FrameTable& table, const std::function<void(const FrameForm&, const FrameEntry&)>& visit);

}  // namespace uprobe::elf
