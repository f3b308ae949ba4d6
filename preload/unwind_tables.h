// SPDX-License-Identifier: MIT
// From an address to the description of its function in the unwind tables that the process has mapped.
//
// The tool has listed the mapped files; the agent reads their contents at the hit, so that it does not rely on a library that
// has been unmapped.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// A function's entry in .eh_frame (an FDE), and where its code begins; begin 0: there is none.
struct Description {
  u64 at = 0, begin = 0;
};

namespace unwind {

// LSB core specification, .eh_frame_hdr: version 1, DW_EH_PE_pcrel | sdata4, udata4, datarel | sdata4.
inline constexpr u64 kTableHeader = 0x3b031b01;
inline constexpr u64 kCountAt = 8, kTableAt = 12, kEntryBytes = 8;
inline constexpr u64 kFdeBegins = 8;  // after its length and the distance of its CIE

// A word has two of 32 bits; it is 0 where it cannot be read.
UPROBE_IN_SECTION inline u64 low_half(u64 pair) { return pair & 0xffffffff; }
UPROBE_IN_SECTION inline u64 high_half(u64 pair) { return pair >> 32; }
// The low half as a signed distance.
UPROBE_IN_SECTION inline u64 low_signed(u64 pair) { return static_cast<u64>(i64{static_cast<i32>(pair)}); }

// 0: the address is in no mapped file's code.
UPROBE_IN_SECTION inline u64 header_for(const ProcessBlock& block, u64 address) {
  const auto* files = at_offset<shared::CodeFile>(&block, block.code_file_offset);
  const u32 count = __atomic_load_n(&block.code_file_count, __ATOMIC_ACQUIRE);
  for (u32 i = 0; i < count && i < shared::kCodeFiles; ++i)
    if (address - files[i].begin < files[i].end - files[i].begin) return files[i].unwind_header;
  return 0;
}

// The last entry of the search table that begins at or below the address; 0: none.
UPROBE_IN_SECTION inline u64 entry_for(u64 header, u64 address) {
  u64 low = 0, high = low_half(uprobe_peek_word(header + kCountAt));
  while (low < high) {
    const u64 middle = (low + high) / 2;
    const u64 begin = header + low_signed(uprobe_peek_word(header + kTableAt + middle * kEntryBytes));
    if (begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low == 0 ? 0 : header + kTableAt + (low - 1) * kEntryBytes;
}

}  // namespace unwind

// An entry of the search table has its function's begin and the address of its FDE; the FDE repeats the begin and has the length.
UPROBE_IN_SECTION inline Description description_of(const ProcessBlock& block, u64 address) {
  using namespace unwind;
  const u64 header = header_for(block, address);
  if (header == 0 || low_half(uprobe_peek_word(header)) != kTableHeader) return {};
  const u64 entry = entry_for(header, address);
  if (entry == 0) return {};
  const u64 pair = uprobe_peek_word(entry);
  const u64 begin = header + low_signed(pair), fde = header + low_signed(high_half(pair));
  const u64 described = uprobe_peek_word(fde + kFdeBegins);
  const bool is_its = fde + kFdeBegins + low_signed(described) == begin && address - begin < high_half(described);
  return is_its ? Description{fde, begin} : Description{};
}

}  // namespace uprobe::agent
