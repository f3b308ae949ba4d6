// SPDX-License-Identifier: MIT
// Code that comes into the process: the agent shows the tool each executable mapping of a file before the call that made it
// returns, so that none of it has run unprobed. It does not matter which code made the call: the dynamic loader, the program
// itself, a plugin system.
//
// There are two ways: mmap with PROT_EXEC, and mprotect with PROT_EXEC of an earlier mapping without. For the second the agent
// keeps private mappings of files in a table; the anonymous memory of JIT compilers is in none of its ranges, so their calls
// cost one look at the table. munmap is not seen, so a range may be out of date; it goes when another file is mapped there, or
// with the first request, which is then idle.
//
// System calls: the application's own, and those of a request to the tool. No request is sent once a filter is in force.
#include "preload/mappings.h"

#include "preload/calls.h"
#include "preload/rewrites.h"

namespace uprobe::agent {
namespace {

// uapi/asm-generic/mman-common.h, uapi/linux/mman.h
constexpr u64 kProtRead = 1, kProtWrite = 2, kProtExec = 4, kMapType = 0xf, kMapPrivate = 2, kMapFixed = 0x10,
              kMapAnonymous = 0x20;
constexpr u64 kPageBits = 12;

// Of ProcessBlock::code_shown.
constexpr u32 kAnswered = 1, kNotAnswered = 2;

// [begin, end) in pages.
struct Pages {
  u64 begin, end;
};

Pages pages_of(u64 address, u64 bytes) {
  constexpr u64 kRest = (1ull << kPageBits) - 1;
  const u64 begin = address >> kPageBits;
  return {begin, begin + ((address & kRest) + bytes + kRest) / (kRest + 1)};
}

Pages unpack(u64 word) {
  const u64 begin = word & ((1ull << shared::kRangeBeginBits) - 1);
  return {begin, begin + (word >> shared::kRangeBeginBits)};
}
u64 pack(Pages p) { return p.begin < p.end ? p.begin | (p.end - p.begin) << shared::kRangeBeginBits : 0; }

// The kernel gives out addresses from 2^48 on only on request, and code does not take a terabyte.
bool can_be_packed(Pages p) {
  return p.end < 1ull << shared::kRangeBeginBits && p.end - p.begin < 1ull << (64 - shared::kRangeBeginBits);
}

bool overlap(Pages a, Pages b) { return a.begin < b.end && b.begin < a.end; }
bool touch(Pages a, Pages b) { return a.begin <= b.end && b.begin <= a.end; }
Pages join(Pages a, Pages b) { return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end}; }
u64 distance(Pages a, Pages b) { return a.end <= b.begin ? b.begin - a.end : b.end <= a.begin ? a.begin - b.end : 0; }

bool replace(u64& word, u64 from, u64 to) {
  return __atomic_compare_exchange_n(&word, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// The entry for a range: one that it touches, a free one, or the nearest: the table then covers too much, never too little.
u64& entry_for(ProcessBlock& block, Pages pages) {
  u64 *free = nullptr, *nearest = nullptr, best = ~0ull;
  for (u64& entry : block.file_ranges) {
    const u64 word = __atomic_load_n(&entry, __ATOMIC_RELAXED);
    if (word == 0) {
      if (free == nullptr) free = &entry;
      continue;
    }
    if (touch(unpack(word), pages)) return entry;
    const u64 far = distance(unpack(word), pages);
    if (far < best) nearest = &entry, best = far;
  }
  return free != nullptr ? *free : *nearest;
}

void remember(ProcessBlock& block, Pages pages) {
  if (!can_be_packed(pages)) return;
  for (u64 packed = 0; packed == 0;) {
    u64& entry = entry_for(block, pages);
    const u64 word = __atomic_load_n(&entry, __ATOMIC_RELAXED);
    packed = pack(word == 0 ? pages : join(unpack(word), pages));
    if (!replace(entry, word, packed)) packed = 0;
  }
}

void forget(ProcessBlock& block, Pages pages) {
  for (u64& entry : block.file_ranges) {
    const u64 word = __atomic_load_n(&entry, __ATOMIC_RELAXED);
    const Pages known = unpack(word);
    if (word == 0 || !overlap(known, pages)) continue;
    const Pages left{known.begin, pages.begin}, right{pages.end, known.end};
    const bool has_left = left.begin < left.end, has_right = right.begin < right.end;
    // Another thread has changed it: a range that covers too much costs an idle request.
    if (!replace(entry, word, has_left ? pack(left) : has_right ? pack(right) : 0)) continue;
    if (has_left && has_right) remember(block, right);
  }
}

bool is_remembered(const ProcessBlock& block, Pages pages) {
  for (const u64& entry : block.file_ranges) {
    const u64 word = __atomic_load_n(&entry, __ATOMIC_RELAXED);
    if (word != 0 && overlap(unpack(word), pages)) return true;
  }
  return false;
}

bool show_to_tool(ProcessBlock& block, const SignalFrame& frame, Pages pages, shared::MailKind kind) {
  const bool may_fault = (frame.mask & shared::kOurSignals) == 0;
  return ask_tool(block, session_area(block, 0),
                  {kind, thread_id(block, may_fault), pages.begin << kPageBits, pages.end << kPageBits});
}

// Code that the tool has not answered for is asked about again at the next library hook.
void show_code(ProcessBlock& block, const SignalFrame& frame, Pages pages) {
  if (!show_to_tool(block, frame, pages, shared::MailKind::code_mapped))
    block.code_shown = kNotAnswered;
  else if (block.code_shown == 0)
    block.code_shown = kAnswered;
}

// MAP_FIXED must not replace the stack in use: from here to the end of the signal frame.
bool takes_our_stack(const SignalFrame& frame, Pages pages) {
  constexpr u64 kBelow = 4096, kExtendedState = 16384;
  const u64 low = as_word(__builtin_frame_address(0)) - kBelow;
  const u64 high = (frame.fpstate != 0 ? frame.fpstate : as_word(&frame)) + kExtendedState;
  return overlap(pages, pages_of(low, high - low));
}

// The same for a thread on its own stack, at `sp`: from there down.
bool takes_stack_below(u64 sp, Pages pages) {
  constexpr u64 kBelow = 4096;
  const u64 low = as_word(__builtin_frame_address(0)) - kBelow;
  return overlap(pages, pages_of(low, sp - low));
}

// Code that can still be written is not probed: its mapping counts as not executable yet.
bool is_code(u64 protection) { return (protection & (kProtWrite | kProtExec)) == kProtExec; }

bool is_private_file(u64 flags) { return (flags & kMapAnonymous) == 0 && (flags & kMapType) == kMapPrivate; }

// Pages have been mapped with these arguments of mmap. Whether code of a file has come.
bool note_mapped(ProcessBlock& block, Pages pages, u64 protection, u64 flags) {
  const bool is_later_code = is_private_file(flags) && !is_code(protection);
  is_later_code ? remember(block, pages) : forget(block, pages);
  return is_private_file(flags) && !is_later_code;
}

// Whether a loader has relocated a library: it makes part of its data read-only.
bool is_relocated(const ProcessBlock& block, u64 protection) {
  return protection == kProtRead && __atomic_load_n(&block.unbound, __ATOMIC_RELAXED) != 0;
}

// Whether these pages are code from now on, or may be chosen among (IFUNCs).
bool concerns_tool(const ProcessBlock& block, Pages pages, u64 protection) {
  return (is_relocated(block, protection) || is_code(protection)) && is_remembered(block, pages);
}

bool is_error(long result) { return result < 0 && result > -4096; }

// Compares all fifteen bytes by two loads at each hit; a loop over the bytes would take eight.
bool is_untouched(const Reader& reader, const Point& point, const shared::Undo& undo) {
  constexpr u32 kLast = shared::kMostFollowing - 8;
  u64 now[2], then[2];
  if (point.following_bytes != shared::kMostFollowing) return false;
  if (!reader.load8(point.address + 1, now[0]) || !reader.load8(point.address + 1 + kLast, now[1])) return false;
  __builtin_memcpy(&then[0], undo.original + 1, 8);
  __builtin_memcpy(&then[1], undo.original + 1 + kLast, 8);
  return now[0] == then[0] && now[1] == then[1];
}

}  // namespace

bool map_pages(ProcessBlock& block, const SignalFrame& frame, long& result) {
  const u64 bytes = call_argument(frame, 1), flags = call_argument(frame, 3);
  if ((flags & kMapFixed) != 0 && takes_our_stack(frame, pages_of(call_argument(frame, 0), bytes))) return false;
  result = pass(frame);
  if (is_error(result)) return true;
  const Pages pages = pages_of(static_cast<u64>(result), bytes);
  if (note_mapped(block, pages, call_argument(frame, 2), flags)) show_code(block, frame, pages);
  return true;
}

bool map_pages_at_once(ProcessBlock& block, const SystemCall& call, long& result) {
  const auto& [address, bytes, protection, flags, file, offset] = call.arguments;
  if (is_private_file(flags) && is_code(protection)) return false;
  if ((flags & kMapFixed) != 0 && takes_stack_below(call.sp, pages_of(address, bytes))) return false;
  result = system_call(call.number, address, bytes, protection, flags, file, offset);
  if (!is_error(result)) note_mapped(block, pages_of(static_cast<u64>(result), bytes), protection, flags);
  return true;
}

// The first hook comes with nothing mapped. At the second one code has been shown, or the loader maps it in a way that the agent
// does not see.
bool is_quiet_hook(ProcessBlock& block) {
  const u32 hit = block.hook_hits;
  if (hit >= __atomic_load_n(&block.quiet_hooks, __ATOMIC_RELAXED)) return false;
  block.hook_hits = hit + 1;
  return hit == 0 || block.code_shown == kAnswered;
}

// After a loader has relocated a library it makes part of its data read-only: its IFUNCs have chosen, its constructors are
// next.
bool protect_pages(ProcessBlock& block, const SignalFrame& frame, long& result) {
  const Pages pages = pages_of(call_argument(frame, 0), call_argument(frame, 1));
  const u64 begin = pages.begin << kPageBits, end = pages.end << kPageBits;
  if ((call_argument(frame, 2) & kProtWrite) != 0 && may_have_jumps(block, begin, end)) {
    show_to_tool(block, frame, pages, shared::MailKind::code_writable);
    result = pass(frame);
    if (!is_error(result)) give_back_jumps(block, begin, end, (call_argument(frame, 2) & kProtExec) != 0);
    if (!is_error(result)) remember(block, pages);
    return true;
  }
  const bool relocated = is_relocated(block, call_argument(frame, 2));
  if (!concerns_tool(block, pages, call_argument(frame, 2))) return false;
  result = pass(frame);
  if (is_error(result)) return true;
  if (!relocated) forget(block, pages);
  show_code(block, frame, pages);
  return true;
}

bool protect_pages_at_once(ProcessBlock& block, const SystemCall& call, long& result) {
  const auto& [address, bytes, protection, key, unused, unused_too] = call.arguments;
  const Pages pages = pages_of(address, bytes);
  const u64 begin = pages.begin << kPageBits, end = pages.end << kPageBits;
  if (takes_stack_below(call.sp, pages) || concerns_tool(block, pages, protection)) return false;
  if ((protection & kProtWrite) != 0 && may_have_jumps(block, begin, end)) return false;
  result = system_call(call.number, address, bytes, protection, key);
  return true;
}

Code code_at(ProcessBlock& block, const Point& point, const SignalFrame& frame) {
  u8 after[shared::kMostFollowing];
  const shared::Undo& undo = undo_of(block, point);
  const Reader reader{(frame.mask & shared::kOurSignals) == 0};
  if (point.state == static_cast<u32>(shared::PointState::unmapped)) return Code::foreign;
  if (point.state == static_cast<u32>(shared::PointState::watched)) return Code::foreign;
  if (is_untouched(reader, point, undo)) return Code::ours;
  if (reader.copy(after, point.address + 1, point.following_bytes) < point.following_bytes) return Code::ours;
  if (shared::is_as_before(point, undo, after)) return Code::ours;
  const u64 page = point.address >> kPageBits;
  show_to_tool(block, frame, {page, page + 1}, shared::MailKind::code_mapped);
  const u32 now = __atomic_load_n(&point.state, __ATOMIC_ACQUIRE);
  if (now == static_cast<u32>(shared::PointState::armed)) return Code::ours;
  u64 first = 0;
  const bool restored = now == static_cast<u32>(shared::PointState::disarmed) && uprobe_peek1(point.address, &first) &&
                        first != shared::kBreakpoint;
  return restored ? Code::changed : Code::foreign;
}

}  // namespace uprobe::agent
