// SPDX-License-Identifier: MIT
// scan() without a decoder for what compilers mostly write: legacy and REX prefixes, the one-byte opcodes and those after
// 0f, by tables. Internal to this folder and its tests; from outside there is scan() alone.
#pragma once

#include "arch/code/scan.h"

namespace uprobe::arch {

// That fast_scan() wants to see from the first byte of an instruction on, whatever its length.
inline constexpr std::size_t kBytesLookedAt = kMaxInsnBytes + 4 + 4 + 8;

// False: not in the tables (VEX, EVEX, lock, prefixes in an odd order, ...) or too near to the end of `bytes`; whether
// these are an instruction remains to be seen. True: `out` is what scan_fully() gives.
bool fast_scan(Bytes bytes, Addr at, Scanned& out);

// True: value_after() is certainly the same value. False: it may be.
bool fast_keeps(Bytes bytes, unsigned reg);

// The same as scan() and value_after(), by Zydis always.
bool scan_fully(Bytes bytes, Addr at, Scanned& out);
RegisterValue value_after_fully(Bytes bytes, Addr at, unsigned reg);

}  // namespace uprobe::arch
