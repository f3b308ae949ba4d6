// SPDX-License-Identifier: MIT
// Thunks, and the frame of a body: what comes before and after recording. What records is in trampoline_record.cpp.
//
// Frame, from rsp up, as jump.S expects it: flags, r8, rdi, rsi, rdx, rcx, rax, return address; then the red zone, then the
// application's stack. rbx, rbp, r9..r15 keep the application's values throughout.
//
// pushf and popf cost more than all else together. What the recording changes are the six arithmetic flags, so they alone
// are kept: ax as lahf and seto make it, in the place of the flags. Only for jump.S the whole word is put there.
#include "arch/code/trampoline.h"

#include <cassert>
#include <type_traits>

#include "arch/code/trampoline_record.h"
#include "arch/code/trampoline_support.h"
#include "engine/shared/trampoline.h"

namespace uprobe::arch {
namespace {

// SF ZF AF PF CF, and OF: 1 + 0x7f overflows a signed byte, 0 + 0x7f does not.
void restore_flags(Assembler& a) {
  a.raw({0x04, 0x7f});  // add $0x7f, %al
  a.raw({0x9e});        // sahf
}

class Maker {
 public:
  explicit Maker(const BodySpec& spec) : spec_(spec), a_(spec.at) {}

  Body make();

 private:
  shared::u16 here() const { return static_cast<shared::u16>(a_.size()); }
  void literals();
  void save();
  void restore();
  void finish();
  void leave_to_agent();
  void finish_head();

  const BodySpec& spec_;
  Assembler a_;
  Body made_;
  BodyLabels labels_;
  shared::BodyHead head_{};
};

constexpr Gpr kSaved[] = {rax, rcx, rdx, rsi, rdi, r8};
static_assert(kFrame == shared::kFullDepth && kFrame == shared::kCalledDepth + 8 * std::size(kSaved) + 8);
static_assert(kCopyInFrame == offsetof(shared::TrampolineFrame, copy));

// The head is filled in at the end.
void Maker::literals() {
  a_.zeros(sizeof(shared::BodyHead));
  while (a_.size() % 32 != 0) a_.raw({0});
  a_.bind(labels_.descriptor);  // struct rseq_cs: version and flags, start, length, abort
  a_.zeros(32);
  a_.bind(labels_.ones);
  a_.number(0x0101010101010101, 8);
  a_.bind(labels_.highs);
  a_.number(0x8080808080808080, 8);
  a_.bind(labels_.jump_entry);
  a_.number(spec_.jump_entry.value, 8);
  a_.bind(labels_.agent_text);
  a_.number(spec_.fast ? spec_.fast->agent_text.value : 0, 8);
}

void Maker::save() {
  for (const Gpr reg : kSaved) a_.push(reg);
  a_.raw({0x9f, 0x0f, 0x90, 0xc0});  // lahf; seto %al
  a_.push(rax);
}

// Over the red zone; or only back to the thunk, which knows the stack.
void Maker::finish() {
  if (spec_.switches) return a_.raw({0xc3});
  a_.raw({0xc2}), a_.number(shared::kSkippedRedZone, 2);
}

void Maker::restore() {
  a_.bind(labels_.out);
  a_.pop(rax);
  restore_flags(a_);
  for (unsigned i = std::size(kSaved); i-- != 0;) a_.pop(kSaved[i]);
  finish();
}

// The label `slow` is where the kernel continues an interrupted section, so the signature stands before it: as the
// displacement of a ud1, as everywhere.
void Maker::leave_to_agent() {
  head_.slow = here();
  Label call;
  a_.bind(labels_.faulted);
  const unsigned switched = spec_.switches ? kSwitchedHit : 0;
  a_.constant(rsi, switched | kFaultedHit);
  a_.jump(call);
  a_.raw({0x0f, 0xb9, 0x3d});
  a_.number(shared::kRseqSignature, 4);
  a_.bind(labels_.slow);
  a_.constant(rsi, switched);
  a_.bind(call);
  load_flags(a_);
  a_.store({rsp, 0}, rax);
  head_.whole_flags = here();
  a_.load(rdi, {rsp, kCopyInFrame});
  a_.lea(rdi, {rdi, slot_from_return(spec_)});
  a_.op(0xff, 4, 2, labels_.jump_entry);  // call *jump_entry(%rip)
  head_.called = here();
  a_.load(rax, {rsp, 0});
  a_.raw({0x86, 0xc4});     // xchg %al, %ah
  a_.raw({0xc0, 0xe8, 3});  // shr $3, %al
  a_.raw({0x24, 1});        // and $1, %al: OF
  a_.store({rsp, 0}, rax);
  head_.short_flags = here();
  a_.jump(labels_.out);
}

void Maker::finish_head() {
  shared::BodyHead& head = head_;
  head.mark = shared::kBodyMagic ^ spec_.at.value;
  head.bytes = here();
  head.code = kBodyEntry;
  head.out = static_cast<shared::u16>(labels_.out.at);
  head.recorded = made_.records ? static_cast<shared::u16>(labels_.section_end.at) : head.out;
  if (spec_.switches) head.claimed = made_.records ? static_cast<shared::u16>(labels_.claimed.at) : head.recorded;
  if (spec_.switches && made_.records) head.unclaim = static_cast<shared::u16>(labels_.unclaim.at);
  const auto to = static_cast<shared::u16>(labels_.faulted.at);
  std::size_t used = 0;
  for (const unsigned insn : labels_.may_fault) head.faults[used++] = {static_cast<shared::u16>(insn), to};
  made_.bytes = a_.take();
  // Bodies are compared as bytes, and padding differs.
  static_assert(std::has_unique_object_representations_v<shared::BodyHead>);
  std::memcpy(made_.bytes.data(), &head, sizeof head);
}

Body Maker::make() {
  literals();
  a_.align(16);
  assert(a_.size() == kBodyEntry);
  save();
  made_.records = spec_.fast && record_in_place(spec_, a_, labels_);
  if (!made_.records) a_.jump(labels_.slow);
  restore();
  leave_to_agent();
  if (made_.records && !spec_.switches) fill_descriptor(spec_.at, a_, labels_);
  finish_head();
  return std::move(made_);
}

}  // namespace

Body make_body(const BodySpec& spec) {
  Body made = Maker(spec).make();
  if (made.bytes.size() <= shared::kMaxBodyBytes) return made;
  BodySpec plain = spec;
  plain.fast.reset();
  return Maker(plain).make();
}

Body longest_body(const BodySpec& spec) {
  constexpr Addr kFar{0x7fff00000000};  // takes all eight bytes of a constant
  BodySpec somewhere = spec;
  somewhere.at = somewhere.block = kFar;
  if (somewhere.fast) somewhere.fast->area = kFar, somewhere.fast->file_bias = kFar.value;
  return make_body(somewhere);
}

Status append_thunk(std::vector<std::uint8_t>& bytes, Addr at, Addr entry) {
  Assembler a(at);
  a.lea(rsp, {rsp, -static_cast<std::int32_t>(shared::kSkippedRedZone)});
  a.call(entry);
  if (!a.in_reach()) return Error{Code::refused, "the code that records is too far from its displaced copy"};
  const auto thunk = a.take();
  bytes.insert(bytes.end(), thunk.begin(), thunk.end());
  return ok();
}

Status append_switched_thunk(std::vector<std::uint8_t>& bytes, Addr at, Addr entry) {
  Assembler a(at);
  for (const std::uint8_t byte : shared::kSwitchedNop) a.raw({byte});
  a.call(entry);
  a.raw({0x5c});  // pop %rsp
  if (!a.in_reach()) return Error{Code::refused, "the code that records is too far from its displaced copy"};
  const auto thunk = a.take();
  bytes.insert(bytes.end(), thunk.begin(), thunk.end());
  return ok();
}

std::vector<std::uint8_t> make_switch(Addr at, Addr thunk) {
  Assembler a(at);
  for (const std::uint8_t byte : shared::kSwitch) a.raw({byte});
  a.jump(thunk + shared::kSwitchedCall);
  while (a.size() < shared::kSwitchBytes) a.raw({0xcc});
  return a.take();
}

}  // namespace uprobe::arch
