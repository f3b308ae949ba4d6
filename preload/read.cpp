// SPDX-License-Identifier: MIT
// Reads of the application's memory by plain loads with a fault table: 1-2 ns where the memory is there.
#include "preload/agent.h"

namespace uprobe::agent {

UPROBE_IN_SECTION u32 Reader::copy(u8* to, u64 from, u32 bytes) const {
  u32 done = 0;
  u64 word = 0;
  while (may_fault && bytes - done >= 8 && uprobe_peek8(from + done, &word)) {
    __builtin_memcpy(to + done, &word, 8);
    done += 8;
  }
  // The tail, and what is left of a word that crosses into an unreadable page.
  while (may_fault && done < bytes && uprobe_peek1(from + done, &word)) to[done++] = static_cast<u8>(word);
  for (u32 i = done; i < bytes; ++i) to[i] = 0;
  return done;
}

UPROBE_IN_SECTION u32 Reader::string_bytes(u64 from, u32 limit) const {
  if (!may_fault) return 0;
  constexpr u64 kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;
  u32 length = 0;
  u64 word = 0;
  while (length < limit) {
    // Aligned words cannot cross a page, so a string that ends just before an unreadable page is read to its end.
    if (((from + length) & 7) == 0 && limit - length >= 8) {
      if (!uprobe_peek8(from + length, &word)) return 0;
      const u64 zeros = (word - kOnes) & ~word & kHighs;
      if (zeros == 0) {
        length += 8;
        continue;
      }
      return length + static_cast<u32>(__builtin_ctzll(zeros)) / 8 + 1;
    }
    if (!uprobe_peek1(from + length, &word)) return 0;
    ++length;
    if (word == 0) return length;
  }
  return limit + 1;
}

}  // namespace uprobe::agent
