// SPDX-License-Identifier: MIT
// From a return address to the description of its caller. A program that keeps generated code alive, or finds its own frames,
// by the return addresses on a stack (garbage collectors that scan stacks, virtual machines) has code without unwind
// information.
//
// The tool has listed the mapped files; the agent reads their contents at the hit, so that it does not rely on a library that
// has been unmapped.
#include "preload/callers.h"

namespace uprobe::agent {
namespace {

using shared::CodeFile;

// LSB core specification, .eh_frame_hdr: version 1, DW_EH_PE_pcrel | sdata4, udata4, datarel | sdata4.
constexpr u64 kTableHeader = 0x3b031b01;
constexpr u64 kCountAt = 8, kTableAt = 12, kEntryBytes = 8;
constexpr u64 kFdeBegins = 8;  // after its length and the distance of its CIE

// Two words of 32 bits; 0 where they cannot be read.
u64 pair_at(u64 address) {
  u64 value = 0;
  return uprobe_peek8(address, &value) ? value : 0;
}
u64 low_half(u64 pair) { return pair & 0xffffffff; }
u64 high_half(u64 pair) { return pair >> 32; }
// The low half as a signed distance.
u64 low_signed(u64 pair) { return static_cast<u64>(i64{static_cast<i32>(pair)}); }

// 0: the address is in no mapped file's code.
u64 unwind_header_for(const ProcessBlock& block, u64 address) {
  const auto* files = at_offset<CodeFile>(&block, block.code_file_offset);
  const u32 count = __atomic_load_n(&block.code_file_count, __ATOMIC_ACQUIRE);
  for (u32 i = 0; i < count && i < shared::kCodeFiles; ++i)
    if (address - files[i].begin < files[i].end - files[i].begin) return files[i].unwind_header;
  return 0;
}

// The last entry of the search table that begins at or below the address; 0: none.
u64 entry_for(u64 header, u64 address) {
  u64 low = 0, high = low_half(pair_at(header + kCountAt));
  while (low < high) {
    const u64 middle = (low + high) / 2;
    const u64 begin = header + low_signed(pair_at(header + kTableAt + middle * kEntryBytes));
    if (begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low == 0 ? 0 : header + kTableAt + (low - 1) * kEntryBytes;
}

// An entry has its function's begin and the address of its FDE; the FDE repeats the begin and has the length.
bool covers(u64 header, u64 entry, u64 address) {
  const u64 pair = pair_at(entry);
  const u64 begin = header + low_signed(pair), fde = header + low_signed(high_half(pair));
  const u64 described = pair_at(fde + kFdeBegins);
  return fde + kFdeBegins + low_signed(described) == begin && address - begin < high_half(described);
}

}  // namespace

bool may_return_by_stub(const ProcessBlock& block, u64 address) {
  if (block.any_caller != 0) return true;
  const u64 call = address - 1;
  const u64 header = unwind_header_for(block, call);
  if (header == 0 || low_half(pair_at(header)) != kTableHeader) return false;
  const u64 entry = entry_for(header, call);
  return entry != 0 && covers(header, entry, call);
}

}  // namespace uprobe::agent
