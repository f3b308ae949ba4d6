// SPDX-License-Identifier: MIT
// Recording in a body: an rseq section that claims nothing, builds the record in place after the head of the CPU's
// ring and ends with the store of `commit`. The same bytes as preload/record.cpp and preload/interpret.cpp make.
//
//   rdi  rseq's place from fs:0, then the ring      rcx  the CPU, then the record
//   rsi  the area, then free                        rdx  the block; with dynamic data: where the next goes, from the payload
//   r8   `commit` as it was; with dynamic data: free
//   rax  free                                       rsi  at the end: the new `commit`
//
// What a hit adds to `commit` does not depend on where its record is: the next hit needs the sum early.
//
// Order: rdtsc does not start before everything that comes earlier is executed, and on Intel's processors nothing after it is
// issued until it is done. So only what must come first does (the announcement needs the CPU and the ring); the room, the place
// of the record and the new `commit` are worked out after it, beside the next instructions of the application.
//
// Where a function returns, the registers are those after its return, which has not been executed yet.
//
// On a switched stack there is no rseq. A ring is claimed as preload/ring_claim.cpp does, the registers are the same, and `commit` is
// followed by the store that gives the ring back. Which instructions have it the head of the body says, for a thread that a signal
// or a fault finds there.
//
// Nothing in the section may fault for good: the kernel aborts a section before it delivers a signal, so the handler sees the
// abort address (`slow`), whose fault entry sends the thread to the agent by `faulted`, which then reads with care. That
// holds for words that are not aligned, too, where alignment checks are on (AC): all of them are touched in the section.
#include "arch/code/trampoline_record.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "arch/code/trampoline_claim.h"
#include "arch/code/trampoline_filter.h"
#include "arch/code/trampoline_support.h"
#include "engine/shared/process_block.h"
#include "engine/shared/session_area.h"
#include "engine/shared/task_number.h"
#include "engine/shared/trampoline.h"

namespace uprobe::arch {
namespace {

using shared::Op;
using shared::ProcessBlock;
using shared::Reg;
using shared::Ring;

constexpr unsigned kBelow = 2, kNotBelow = 3, kEqual = 4, kNotEqual = 5, kAbove = 7, kNegative = 8, kNotPositive = 14;
constexpr std::uint32_t kHead = sizeof(shared::RecordHead);
constexpr std::uint32_t kFs = 0x64;
constexpr std::int32_t kWholeFlags = -8;  // from rsp
// The reader has had the ring's bytes in its own CPU's cache: they are asked back some hits before they are written. Never
// faults; a processor that does not know the instruction does nothing (SDM volume 2, PREFETCHW).
constexpr std::uint32_t kSoon = 320;
constexpr std::int32_t kRseqCpu = 4, kRseqSection = 8;
// From the slot's head.
constexpr std::int32_t kSlotAddress = offsetof(shared::SlotHead, address),
                       kSlotEvent = offsetof(shared::SlotHead, event);
constexpr std::int32_t kExit = -static_cast<std::int32_t>(sizeof(shared::ExitHead));
constexpr std::int32_t kExitLead = kExit + static_cast<std::int32_t>(offsetof(shared::ExitHead, lead)),
                       kExitMoves = kExit + static_cast<std::int32_t>(offsetof(shared::ExitHead, moves)),
                       kExitFunction = kExit + static_cast<std::int32_t>(offsetof(shared::ExitHead, function));
// On a switched stack: the application's stack pointer, from rsp.
constexpr std::int32_t kSwitchedSp = sizeof(shared::TrampolineFrame);

constexpr unsigned kEventBits = std::countr_zero(sizeof(shared::Event));

constexpr std::int32_t place(std::uint64_t offset) { return static_cast<std::int32_t>(offset); }

class Recorder {
 public:
  Recorder(const BodySpec& spec, Assembler& a, BodyLabels& labels)
      : spec_(spec),
        fast_(*spec.fast),
        a_(a),
        labels_(labels),
        dynamic_(has_dynamic(spec.fast->program)),
        filter_(filter_place(*spec.fast)) {}

  void all();

 private:
  std::uint32_t most_bytes() const {
    return (kHead + fast_.fixed_bytes + (dynamic_ ? kMostDynamic + 8 : 0) + 7) / 8 * 8;
  }
  static Mem rseq(std::int32_t field) { return {rdi, static_cast<std::int32_t>(field - shared::kRseqBias)}; }
  Mem slot(Gpr base, std::int32_t field) const { return {base, slot_from_return(spec_) + field}; }
  static Mem payload(std::uint32_t offset) { return {rcx, place(kHead + offset)}; }

  void keep_flags();
  void check_and_enter();
  void check_event();
  void claim();
  void unset_section();
  void unset_section_of_rdx();
  void abandon();
  void filter_registers();
  void drop_early();
  void filter_record();
  void drop_record();
  void announce_and_stamp();
  void load_cpu_of_record();
  void find_room();
  void heads();
  void task();
  void load_task_number(Gpr block);
  void load_thread();
  void add_application_sp();
  void return_head();
  void load_returned(Reg reg);
  void argument(const shared::Insn& insn);
  void leave_if_stub(Gpr value);
  void load_app(Reg reg);
  void value_to_rax();
  Mem pointer(std::uint64_t offset);
  void shift_right(const shared::Insn& insn);
  void store_value(const shared::Insn& insn);
  void store_memory(const shared::Insn& insn);
  void store_string(const shared::Insn& insn);
  void copy_string();
  void copy_word(std::uint32_t at, Label& has_end);
  void leave_if_long();
  void lengths();
  void next_commit();
  void commit();

  const BodySpec& spec_;
  const FastRecord& fast_;
  Assembler& a_;
  BodyLabels& labels_;
  bool dynamic_;
  FilterPlace filter_;
  bool no_string_yet_ = true;
  bool in_rax_ = false;  // the working value; else it is in `live_`
  Gpr live_ = rax;
  Label leave_, leave_early_, dropped_, commit_;
};

// An aborted section goes on with the rsp that it has been left with, so nothing is pushed in it. No code writes below rsp: it
// is a red zone to a signal as well.
void Recorder::keep_flags() {
  const auto is_wanted = [](const shared::Insn& insn) {
    return insn.op == Op::load_register && insn.size == static_cast<std::uint8_t>(Reg::flags);
  };
  if (std::none_of(fast_.program.begin(), fast_.program.end(), is_wanted)) return;
  load_flags(a_);
  a_.store({rsp, kWholeFlags}, rax);
}

// Everything that says "not here": consumers changed, the event switched off, no rseq of this thread's own. The mark of changed
// consumers is the sign of the slot's word, and may come at any moment: later code uses only the lower half of the word.
void Recorder::check_and_enter() {
  a_.constant(rdx, spec_.block.value);
  if (!spec_.switches) a_.load(rdi, {rdx, offsetof(ProcessBlock, own_rseq)});
  check_event();
  if (spec_.switches) return claim();
  a_.op(0x85, 8, rdi, rdi);
  a_.jump_if(kNotPositive, labels_.slow);
  if (filter_ == FilterPlace::registers) filter_registers();
  // What a program with an FS base of its own has there is not ours to change. (A section of libc's or the program's that
  // has ended may still be named there, until the kernel looks.)
  labels_.may_fault.push_back(a_.size());
  a_.op(0x83, 8, 7, rseq(kRseqSection), kFs), a_.raw({0});
  a_.jump_if(kNotEqual, labels_.slow);
  a_.op(0x8d, 8, rax, labels_.descriptor);
  Label begin;
  labels_.may_fault.push_back(a_.size());
  a_.op(0x89, 8, rax, rseq(kRseqSection), kFs);
  a_.jump(begin);
  a_.bind(labels_.section);
  abandon();
  a_.bind(begin);
  a_.op(0x8b, 4, rcx, rseq(kRseqCpu), kFs);
  a_.op(0x81, 4, 7, rcx), a_.number(fast_.cpu_ring_count, 4);
  a_.jump_if(kNotBelow, leave_early_);  // also of a negative number: not registered
  if (filter_ == FilterPlace::registers) drop_early();
}

// rsi = the area.
void Recorder::check_event() {
  a_.constant(rsi, fast_.area.value);
  a_.load(rax, {rsp, kCopyInFrame});
  a_.op(0x63, 8, rax, slot(rax, kSlotEvent));  // movslq
  a_.raw({0x48, 0xc1, 0xe0, kEventBits});      // shl, %rax
  a_.jump_if(kNegative, labels_.slow);
  a_.op(0x01, 8, rsi, rax);  // add %rsi, %rax
  a_.op(0x81, 4, 7, Mem{rax, place(fast_.events_offset + offsetof(shared::Event, state))});
  a_.number(static_cast<std::uint32_t>(shared::SessionState::recording), 4);
  a_.jump_if(kNotEqual, labels_.out);
  if (fast_.watches_tool) leave_if_tool_is_gone(a_, labels_.slow);
}

// In place of a section. What a filter drops is the agent's to count.
void Recorder::claim() {
  a_.op(0xf7, 4, 0, Mem{rdx, offsetof(ProcessBlock, flags)}), a_.number(shared::kBlockMovedAway, 4);  // test
  a_.jump_if(kNotEqual, labels_.slow);
  if (filter_ == FilterPlace::registers) filter_registers();
  claim_ring(fast_, a_, labels_, {&leave_, &leave_early_, &dropped_});
}

// The kernel kills a thread whose descriptor makes no sense, and this one lasts only as long as the body is mapped.
void Recorder::unset_section() {
  a_.constant(rdx, spec_.block.value);
  unset_section_of_rdx();
}

void Recorder::unset_section_of_rdx() {
  a_.op(0x63, 8, rax, Mem{rdx, offsetof(ProcessBlock, rseq_offset)});
  a_.op(0xc7, 8, 0, Mem{rax, kRseqSection}, kFs), a_.number(0, 4);
}

// Ways out without a record. Once it is announced, that is taken back, which must happen in the section. The agent takes what has
// no room here.
void Recorder::abandon() {
  if (filter_ == FilterPlace::record) drop_record();
  a_.bind(leave_);
  a_.load4(rax, {rdi, offsetof(Ring, commit)});
  a_.store({rdi, offsetof(Ring, begun)}, rax, 4);
  a_.bind(leave_early_);
  unset_section();
  a_.jump(labels_.slow);
}

// r8d = 1 if the hit is to be dropped. rax, rcx and r8 are free here; nothing has been entered or announced.
void Recorder::filter_registers() {
  Label pass, drop, known;
  const auto operand_of = [&](const shared::Test& test) -> Operand {
    const Reg reg = *register_of(fast_, test);
    const Where where = where_is(reg);
    if (where.live) return where.reg;
    if (where.slot >= 0) return Mem{rsp, where.slot};
    load_app(reg);
    return rax;
  };
  run_tests(a_, fast_.filter, r8, operand_of, pass, drop);
  a_.bind(drop);
  if (spec_.switches) {
    a_.jump(labels_.slow);
    return a_.bind(pass);
  }
  a_.constant(r8, 1);
  a_.jump(known);
  a_.bind(pass);
  a_.constant(r8, 0);
  a_.bind(known);
}

// In the section, before a ring is looked at: the count is published in the record's stead.
void Recorder::drop_early() {
  Label wanted;
  a_.op(0x85, 4, r8, r8);
  a_.jump_if(kEqual, wanted);
  next_dropped(fast_, a_);
  a_.jump(commit_);
  a_.bind(wanted);
}

// The record is built.
void Recorder::filter_record() {
  Label pass;
  const auto operand_of = [&](const shared::Test& test) -> Operand {
    return test.offset == shared::kTestCpu ? Mem{rcx, offsetof(shared::RecordHead, cpu)} : payload(test.offset);
  };
  run_tests(a_, fast_.filter, rax, operand_of, pass, dropped_);
  a_.bind(pass);
}

// Takes the announcement back, and publishes the count. Which CPU it is leads to where that stands: it is asked once more,
// since what the record says of it another process may have changed.
void Recorder::drop_record() {
  a_.bind(dropped_);
  a_.load4(rax, {rdi, offsetof(Ring, commit)});
  a_.store({rdi, offsetof(Ring, begun)}, rax, 4);
  a_.constant(rsi, fast_.area.value);
  a_.constant(rdx, spec_.block.value);
  a_.op(0x63, 8, rax, Mem{rdx, offsetof(ProcessBlock, rseq_offset)});
  a_.op(0x8b, 4, rcx, Mem{rax, kRseqCpu}, kFs);
  next_dropped(fast_, a_);
  a_.jump(commit_);
}

// rdi = ring, r8 = its `commit`; rax = the time. The number that would carry into the position when it is counted on is the
// agent's.
void Recorder::announce_and_stamp() {
  if (!spec_.switches) load_ring(a_, fast_.ring_offset);
  a_.load(r8, {rdi, offsetof(Ring, commit)});
  a_.move(rax, r8, 4);
  a_.raw({0x83, 0xc0, 1});  // add $1, %eax
  a_.jump_if(kBelow, leave_early_);
  if (!spec_.switches) a_.store({rdi, offsetof(Ring, begun)}, rax, 4);
  a_.raw({0x0f, 0x31, 0x48, 0xc1, 0xe2, 32});  // rdtsc; shl $32, %rdx
  a_.op(0x09, 8, rdx, rax);                    // or %rdx, %rax
  a_.store({rdi, offsetof(Ring, stamp)}, rax);
}

// edx = the CPU, ecx = the index of its ring.
void Recorder::load_cpu_of_record() {
  if (!spec_.switches) return a_.move(rdx, rcx, 4);
  a_.load4(rdx, {rsp, kSwitchedCpu});
  a_.raw({0x81, 0xc1}), a_.number(fast_.cpu_ring_count, 4);  // add, %ecx
}

// rcx = the record, its number, CPU and time written.
void Recorder::find_room() {
  const auto stride_bits = static_cast<unsigned>(std::countr_zero(2 * fast_.ring_bytes));
  a_.load4(rdx, {rdi, offsetof(Ring, commit) + 4});  // the position
  a_.op(0x2b, 4, rdx, Mem{rdi, offsetof(Ring, tail)});
  a_.op(0x81, 4, 7, rdx), a_.number((fast_.ring_bytes - most_bytes()) / 8, 4);
  a_.jump_if(kAbove, leave_);
  load_cpu_of_record();
  a_.raw({0x48, 0xc1, 0xe1, stride_bits});  // shl, %rcx
  a_.op(0x01, 8, rsi, rcx);                 // add %rsi, %rcx
  a_.move(rsi, r8);
  a_.raw({0x48, 0xc1, 0xee, 32 - 3});                        // shr, %rsi: eight times the position, and three bits more
  a_.raw({0x81, 0xe6}), a_.number(fast_.ring_bytes - 8, 4);  // and, %esi
  a_.raw({0x48, 0x8d, 0x8c, 0x31}), a_.number(fast_.data_offset, 4);  // lea data_offset(%rcx,%rsi), %rcx
  a_.raw({0x0f, 0x0d, 0x89}), a_.number(kSoon, 4);                    // prefetchw kSoon(%rcx)
  a_.store({rcx, offsetof(shared::RecordHead, number)}, r8, 4);
  a_.store({rcx, offsetof(shared::RecordHead, cpu)}, rdx, 4);  // and no flags
  a_.store({rcx, offsetof(shared::RecordHead, tsc)}, rax);
}

void Recorder::heads() {
  a_.load(rsi, {rsp, kCopyInFrame});
  a_.op(0x0fb7, 4, rax, slot(rsi, kSlotEvent));  // movzwl: `flags` and `preempt_count` are 0
  if (fast_.is_elsewhere) {
    a_.constant(rdx, spec_.block.value);
    a_.op(0x0b, 4, rax, Mem{rdx, offsetof(ProcessBlock, process_word)});  // or
  }
  a_.store(payload(0), rax, 4);
  a_.load(rax, slot(rsi, fast_.is_return ? kExitFunction : kSlotAddress));
  a_.store(payload(offsetof(shared::PayloadHead, ip)), rax);
  if (fast_.is_return) return_head();
  task();
  if (dynamic_) a_.constant(rdx, fast_.fixed_bytes);
}

// eax = the thread's number; of a thread whose control block has none, its process's.
void Recorder::load_task_number(Gpr block) {
  if (spec_.switches) return a_.load4(rax, {block, offsetof(ProcessBlock, pid)});
  a_.op(0x63, 8, rax, Mem{block, offsetof(ProcessBlock, tid_offset)});
  a_.op(0x8b, 4, rax, Mem{rax, 0}, kFs);
}

// rdx = the block.
void Recorder::task() {
  a_.constant(rdx, spec_.block.value);
  load_task_number(rdx);
  if (fast_.is_elsewhere) {
    a_.raw({0x25}), a_.number(shared::kNumberMask, 4);                   // and, %eax
    a_.op(0x0b, 4, rax, Mem{rdx, offsetof(ProcessBlock, thread_word)});  // or
  }
  a_.store(payload(offsetof(shared::PayloadHead, pid)), rax, 4);
}

void Recorder::load_thread() {
  a_.constant(rax, spec_.block.value);
  load_task_number(rax);
  in_rax_ = true;
}

// rax += the application's stack pointer.
void Recorder::add_application_sp() {
  if (spec_.switches) return a_.op(0x03, 8, rax, Mem{rsp, kSwitchedSp});
  a_.raw({0x48, 0x8d, 0x84, 0x04}), a_.number(kFrame, 4);  // lea kFrame(%rsp,%rax), %rax
}

void Recorder::return_head() {
  a_.load4(rax, slot(rsi, kExitLead));
  if (spec_.switches) a_.op(0x03, 8, rax, Mem{rsp, kSwitchedSp}), a_.load(rax, {rax, 0});
  if (!spec_.switches) a_.raw({0x48, 0x8b, 0x84, 0x04}), a_.number(kFrame, 4);  // mov kFrame(%rsp,%rax), %rax
  leave_if_stub(rax);
  a_.store(payload(offsetof(shared::ReturnHead, return_ip)), rax);
}

// A return address on the stack may be that of a stub, and what the program has made of it. rsi is free here.
void Recorder::leave_if_stub(Gpr value) {
  if (fast_.agent_text_bytes == 0) return;
  a_.move(rsi, value);
  a_.op(0x2b, 8, rsi, labels_.agent_text);  // sub agent_text(%rip), %rsi
  a_.op(0x81, 8, 7, rsi), a_.number(fast_.agent_text_bytes, 4);
  a_.jump_if(kBelow, leave_);
}

// rax = the stack pointer or the instruction pointer after the return.
void Recorder::load_returned(Reg reg) {
  if (reg == Reg::ip) return a_.load(rax, payload(offsetof(shared::ReturnHead, return_ip)));
  a_.load(rax, {rsp, kCopyInFrame});
  a_.load4(rax, slot(rax, kExitMoves));
  add_application_sp();
}

void Recorder::load_app(Reg reg) {
  const Where where = where_is(reg);
  in_rax_ = !where.live;
  live_ = where.reg;
  if (where.live) return;
  if (where.slot >= 0) return a_.load(rax, {rsp, where.slot});
  if (fast_.is_return && (reg == Reg::sp || reg == Reg::ip)) return load_returned(reg);
  switch (reg) {
    case Reg::flags:
      return a_.load(rax, {rsp, kWholeFlags});
    case Reg::sp:
      return spec_.switches ? a_.load(rax, {rsp, kSwitchedSp}) : a_.lea(rax, {rsp, place(kFrame)});
    case Reg::ip:
      a_.load(rax, {rsp, kCopyInFrame});
      return a_.load(rax, slot(rax, kSlotAddress));
    case Reg::cs:
      return a_.raw({0x8c, 0xc8});  // mov %cs, %eax
    case Reg::ss:
      return a_.raw({0x8c, 0xd0});
    default:
      return a_.constant(rax, ~std::uint64_t{0});  // orig_ax, as outside of system calls
  }
}

Mem Recorder::pointer(std::uint64_t offset) { return {in_rax_ ? rax : live_, place(offset)}; }

void Recorder::shift_right(const shared::Insn& insn) {
  if (!in_rax_) a_.move(rax, live_);
  in_rax_ = true;
  a_.raw({0x48, 0xc1, 0xe8, static_cast<std::uint8_t>(insn.immediate)});  // shr, %rax
}

void Recorder::store_value(const shared::Insn& insn) {
  a_.store(payload(insn.offset), in_rax_ ? rax : live_, insn.size);
}

void Recorder::store_memory(const shared::Insn& insn) {
  const Mem from = pointer(insn.immediate);
  if (insn.count >= 4)
    a_.op(0x8b, insn.count, rax, from);
  else
    a_.op(insn.count == 2 ? 0x0fb7 : 0x0fb6, 4, rax, from);  // movzx
  if (shared::is_of_words(insn)) leave_if_stub(rax);
  a_.store(payload(insn.offset), rax, insn.count);
}

// Of the first string the place is known, and it waits for nothing but the string's end; until then another one's locator keeps
// it.
void Recorder::store_string(const shared::Insn& insn) {
  const bool is_first = std::exchange(no_string_yet_, false);
  const Mem locator = payload(insn.offset);
  a_.lea(rsi, pointer(insn.immediate));
  if (!is_first) a_.store(locator, rdx, 4);
  copy_string();
  a_.move(rax, rdx, 4);
  if (!is_first) a_.op(0x2b, 4, rax, locator);
  a_.raw({0xc1, 0xe0, 16});  // shl $16, %eax
  if (is_first)
    a_.raw({0x05}), a_.number(fast_.fixed_bytes - (fast_.fixed_bytes << 16), 4);  // add, %eax
  else
    a_.op(0x03, 4, rax, locator);
  a_.store(locator, rax, 4);
}

// Room for 24 more bytes of dynamic data, or the agent does it.
void Recorder::leave_if_long() {
  a_.op(0x81, 4, 7, rdx), a_.number(fast_.fixed_bytes + kMostDynamic - 24, 4);
  a_.jump_if(kAbove, leave_);
}

// From rsi to the payload's rdx, two words at a time; rdx ends after the NUL. Up to seven bytes more are written: the room
// allows it.
void Recorder::copy_string() {
  Label loop, second, first;
  a_.bind(loop);
  leave_if_long();
  a_.move(rax, rsi, 4);
  a_.raw({0x25}), a_.number(0xfff, 4);  // and, %eax
  a_.raw({0x3d}), a_.number(0xff0, 4);  // cmp, %eax: the words would cross into another page
  a_.jump_if(kAbove, leave_);
  copy_word(0, first);
  copy_word(8, second);
  a_.lea(rsi, {rsi, 16});
  a_.lea(rdx, {rdx, 16});
  a_.jump(loop);
  a_.bind(second);
  a_.lea(rdx, {rdx, 8});
  a_.bind(first);
  a_.raw({0xf3, 0x4d, 0x0f, 0xbc, 0xc0});  // rep bsf, %r8, %r8: tzcnt where there is one
  a_.raw({0x41, 0xc1, 0xe8, 3});           // shr $3, %r8d
  a_.raw({0x4a, 0x8d, 0x54, 0x02, 0x01});  // lea 1(%rdx,%r8), %rdx
}

// Zero bytes of the word: (word - ones) & ~word & highs; the first set bit is in the first zero byte.
void Recorder::copy_word(std::uint32_t at, Label& has_end) {
  a_.load(rax, {rsi, place(at)});
  a_.raw({0x48, 0x89, 0x84, 0x11}), a_.number(kHead + at, 4);  // mov %rax, kHead+at(%rcx,%rdx)
  a_.move(r8, rax);
  a_.op(0x2b, 8, r8, labels_.ones);
  a_.raw({0x48, 0xf7, 0xd0});  // not %rax
  a_.op(0x21, 8, rax, r8);     // and %rax, %r8
  a_.op(0x23, 8, r8, labels_.highs);
  a_.jump_if(kNotEqual, has_end);
}

void Recorder::argument(const shared::Insn& insn) {
  switch (insn.op) {
    case Op::load_register:
      load_app(static_cast<Reg>(insn.size));
      return leave_if_stub(in_rax_ ? rax : live_);
    case Op::load_constant:
      in_rax_ = true;
      return a_.constant(rax, insn.immediate);
    case Op::load_file_offset:
      in_rax_ = true;
      return a_.constant(rax, fast_.file_bias + insn.immediate);
    case Op::load_thread:
      return load_thread();
    case Op::dereference:
      a_.load(rax, pointer(insn.immediate));
      in_rax_ = true;
      return leave_if_stub(rax);
    case Op::add:
      a_.lea(rax, pointer(insn.immediate));
      in_rax_ = true;
      return;
    case Op::shift_right:
      return shift_right(insn);
    case Op::store_value:
      return store_value(insn);
    case Op::store_memory:
      return store_memory(insn);
    default:
      return store_string(insn);
  }
}

// With dynamic data eax = the record's length.
void Recorder::lengths() {
  const Mem length{rcx, offsetof(shared::RecordHead, length)}, bytes{rcx, offsetof(shared::RecordHead, payload_bytes)};
  if (!dynamic_) {
    a_.store_number(length, (kHead + fast_.fixed_bytes + 7) / 8 * 8);
    return a_.store_number(bytes, fast_.fixed_bytes);
  }
  a_.store(bytes, rdx, 4);
  a_.lea(rax, {rdx, kHead + 7}, 4);
  a_.raw({0x83, 0xe0, 0xf8});  // and $-8, %eax
  a_.store(length, rax, 4);
}

// rsi = the new `commit`; with dynamic data eax = the record's length.
void Recorder::next_commit() {
  if (!dynamic_) {
    a_.constant(rsi, std::uint64_t{most_bytes() / 8} << 32 | 1);
    return a_.op(0x01, 8, r8, rsi);  // add %r8, %rsi
  }
  a_.raw({0x48, 0xc1, 0xe0, 32 - 3});  // shl, %rax: the units
  a_.op(0x03, 8, rax, Mem{rdi, offsetof(Ring, commit)});
  a_.lea(rsi, {rax, 1});
}

void Recorder::commit() {
  a_.bind(commit_);
  static_assert(offsetof(Ring, commit) == 0);
  a_.store({rdi, 0}, rsi);
  a_.bind(labels_.section_end);
  if (spec_.switches) a_.store_number({rdi, offsetof(Ring, owner)}, 0);
}

void Recorder::all() {
  keep_flags();
  check_and_enter();
  announce_and_stamp();
  find_room();
  heads();
  for (const shared::Insn& insn : fast_.program) {
    if (insn.op == Op::end) break;
    if (insn.op != Op::begin) argument(insn);
  }
  if (filter_ == FilterPlace::record) filter_record();
  lengths();
  next_commit();
  commit();
  if (spec_.switches) return;
  if (dynamic_)
    unset_section();
  else
    unset_section_of_rdx();
}

}  // namespace

bool record_in_place(const BodySpec& spec, Assembler& a, BodyLabels& labels) {
  if (!is_supported(spec)) return false;
  Recorder(spec, a, labels).all();
  return true;
}

void fill_descriptor(Addr at, Assembler& a, BodyLabels& labels) {
  const auto descriptor = static_cast<unsigned>(labels.descriptor.at);
  const auto start = static_cast<unsigned>(labels.section.at), end = static_cast<unsigned>(labels.section_end.at);
  a.put(descriptor + 8, at.value + start, 8);
  a.put(descriptor + 16, end - start, 8);
  a.put(descriptor + 24, at.value + static_cast<unsigned>(labels.slow.at), 8);
  labels.may_fault.push_back(static_cast<unsigned>(labels.slow.at));
}

}  // namespace uprobe::arch
