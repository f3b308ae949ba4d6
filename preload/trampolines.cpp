// Hits by jump in terms of the program: a thread inside a trampoline either has not come yet, or stands in front of the
// displaced instruction. Faults inside trampolines: see engine/shared/trampoline.h.
//
// The application's registers are where they were, or in the trampoline's frame. What has been popped off that frame is still
// there: it lies in the red zone, and no signal frame of ours is put into that.
#include "preload/trampolines.h"

#include "engine/shared/trampoline.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

using shared::TrampolineDepth;
using shared::TrampolineFrame;
using shared::TrampolineHead;

constexpr u64 kArithmetic = 0x8d5, kOverflow = 0x800;

extern "C" {
// arch/x86/entry/jump.S
extern const u8 uprobe_jump_entry[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_done[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_leaves[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_left[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_late[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_waits[] __attribute__((visibility("hidden")));
}

const TrampolineHead* as_head(u64 at) { return reinterpret_cast<const TrampolineHead*>(at); }

bool is_head(u64 at) { return as_head(at)->mark == (shared::kTrampolineMagic ^ at); }

// Null: the address is in no trampoline of this island.
const TrampolineHead* head_of(u64 ip, u64 island) {
  u64 at = ip & ~u64{shared::kTrampolineUnit - 1};
  for (u32 steps = 0; steps <= shared::kMaxTrampolineBytes / shared::kTrampolineUnit; ++steps) {
    if (at < island) return nullptr;
    if (is_head(at)) return ip - at < as_head(at)->bytes ? as_head(at) : nullptr;
    at -= shared::kTrampolineUnit;
  }
  return nullptr;
}

// Null: the address is in no trampoline.
const TrampolineHead* trampoline_at(const ProcessBlock& block, u64 ip) {
  for (u32 i = 0; i < block.island_count && i < shared::kMaxIslands; ++i)
    if (ip - block.islands[i].base < block.islands[i].used) return head_of(ip, block.islands[i].base);
  return nullptr;
}

const Point& point_of(const TrampolineHead& head) { return *reinterpret_cast<const Point*>(head.point); }

template <std::size_t N>
constexpr u32 depth_at(const TrampolineDepth (&depths)[N], u32 distance) {
  u32 depth = 0;
  for (const TrampolineDepth& from : depths)
    if (distance >= from.at) depth = from.depth;
  return depth;
}

void take_registers(SignalFrame& frame, const TrampolineFrame& kept) {
  frame.r8 = kept.r8;
  frame.di = kept.di;
  frame.si = kept.si;
  frame.dx = kept.dx;
  frame.cx = kept.cx;
  frame.ax = kept.ax;
  frame.sp = as_word(&kept) + shared::kFullDepth;
}

// A trap flag in the frame may be that of a debugger, which pushfq does not hide.
void take_whole_frame(SignalFrame& frame, const TrampolineFrame& kept) {
  take_registers(frame, kept);
  frame.flags = (kept.flags & ~kTrapFlag) | (frame.flags & kTrapFlag);
}

void take_frame(SignalFrame& frame, const TrampolineFrame& kept) {
  take_registers(frame, kept);
  const u64 others = kept.flags >> 8 & 0xff & kArithmetic;
  frame.flags = (frame.flags & ~kArithmetic) | others | ((kept.flags & 1) != 0 ? kOverflow : 0);
}

const TrampolineFrame& frame_at(u64 sp) { return *reinterpret_cast<const TrampolineFrame*>(sp); }

// While the frame is being made all registers are still what they were, but rax at the end.
void undo_save(SignalFrame& frame, u32 distance) {
  const u64 sp = frame.sp + depth_at(shared::kSaveDepths, distance);
  if (distance >= shared::kRaxSaved) frame.ax = *reinterpret_cast<const u64*>(sp - shared::kSkippedRedZone - 8);
  frame.sp = sp;
}

// While it is taken down: once rsp is what it was, all is.
void finish_restore(SignalFrame& frame, u32 distance) {
  const u32 depth = depth_at(shared::kRestoreDepths, distance);
  if (depth != 0) take_frame(frame, frame_at(frame.sp + depth - shared::kFullDepth));
}

// Somewhere between. `pushfq; pop %rax` is the only pair there that moves rsp.
void take_kept(SignalFrame& frame, const TrampolineHead& head, u32 at) {
  constexpr u8 kPopRax = 0x58;
  const bool pushed = *reinterpret_cast<const u8*>(frame.ip) == kPopRax;
  const TrampolineFrame& kept = frame_at(frame.sp + (pushed ? 8 : 0));
  at >= head.whole_flags&& at < head.short_flags ? take_whole_frame(frame, kept) : take_frame(frame, kept);
}

Jump leave(SignalFrame& frame, const TrampolineHead& head) {
  constexpr u32 kSaved = 17;
  static_assert(depth_at(shared::kSaveDepths, kSaved) == shared::kFullDepth);
  const u32 at = static_cast<u32>(frame.ip - as_word(&head));
  if (at < head.code) return Jump::no;
  const bool recorded =
      (at >= head.recorded && at < head.slow) || at >= head.called || (head.lost != 0 && at == head.lost);
  if (at < head.code + kSaved)
    undo_save(frame, at - head.code);
  else if (at >= head.out && at < head.slow)
    finish_restore(frame, at - head.out);
  else
    take_kept(frame, head, at);
  frame.ip = recorded ? point_of(head).copy : point_of(head).address;
  return recorded ? Jump::recorded : Jump::arriving;
}

// The far jump of a short one stands in padding, at an address that the program never has.
Jump leave_padding(const ProcessBlock& block, SignalFrame& frame) {
  const Point* point = find_point(block, frame.ip);
  if (point == nullptr || !shared::is_long_jump(*point)) return Jump::no;
  const TrampolineHead* head = trampoline_at(block, point->jump_to);
  if (head == nullptr) return Jump::no;
  frame.ip = point_of(*head).address;
  return Jump::arriving;
}

// The stack that the agent needs is not there.
Jump leave_entry(const ProcessBlock& block, SignalFrame& frame) {
  const TrampolineHead* head = trampoline_at(block, *reinterpret_cast<const u64*>(frame.sp));
  if (head == nullptr) return Jump::no;
  take_whole_frame(frame, frame_at(frame.sp + 8));
  frame.ip = point_of(*head).address;
  return Jump::arriving;
}

// rbp points to where jump.S has saved it, below its return address, until the last two instructions; its registers lie below.
Jump leave_end(const ProcessBlock& block, SignalFrame& frame) {
  const bool popped = frame.ip > as_word(uprobe_jump_leaves) && frame.ip < as_word(uprobe_jump_left);
  const u64 base = popped ? frame.sp - 8 : frame.bp;
  const TrampolineHead* head = trampoline_at(block, *reinterpret_cast<const u64*>(base + 8));
  if (head == nullptr) return Jump::no;
  if (frame.ip < as_word(uprobe_jump_leaves) || frame.ip >= as_word(uprobe_jump_left)) {
    const auto& registers = *reinterpret_cast<const Registers*>((base - sizeof(Registers)) & ~u64{15});
    frame.r9 = registers[shared::Reg::r9];
    frame.r10 = registers[shared::Reg::r10];
    frame.r11 = registers[shared::Reg::r11];
  }
  if (!popped) frame.bp = *reinterpret_cast<const u64*>(base);
  take_whole_frame(frame, frame_at(base + 16));
  frame.ip = point_of(*head).copy;
  return Jump::recorded;
}

bool is_in(u64 ip, const u8* begin, const u8* end) { return ip >= as_word(begin) && ip < as_word(end); }

}  // namespace

bool is_end_of_jump(u64 ip) { return ip == as_word(uprobe_jump_waits); }

Jump leave_trampoline(const ProcessBlock& block, SignalFrame& frame) {
  if (frame.ip == as_word(uprobe_jump_entry)) return leave_entry(block, frame);
  if (is_in(frame.ip, uprobe_jump_done, uprobe_jump_left) || is_in(frame.ip, uprobe_jump_late, uprobe_jump_waits + 1))
    return leave_end(block, frame);
  const TrampolineHead* head = trampoline_at(block, frame.ip);
  return head != nullptr ? leave(frame, *head) : leave_padding(block, frame);
}

u64 trampoline_fixup(const ProcessBlock& block, u64 ip) {
  const TrampolineHead* head = trampoline_at(block, ip);
  if (head == nullptr) return 0;
  const u64 start = as_word(head);
  for (const shared::TrampolineFault& fault : head->faults)
    if (fault.insn != 0 && start + fault.insn == ip) return start + fault.fixup;
  return 0;
}

}  // namespace uprobe::agent
