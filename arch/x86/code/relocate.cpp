// SPDX-License-Identifier: MIT
// The bytes of a copy, by form. Every form has one size whatever the addresses are.
#include "arch/code/relocate.h"

#include <algorithm>

#include "arch/code/classify.h"
#include "arch/code/emitter.h"
#include "arch/code/fast_scan.h"

namespace uprobe::arch {
namespace {

constexpr unsigned kJumpBytes = 5;
constexpr unsigned kSystemCallBytes = 2;
constexpr const char* kOutOfReach = "a target or operand is out of reach of the copy";

struct Job {
  const Decoded& insn;
  Addr from;
  Addr next;  // where control goes when it falls through
  Emitter& out;
  std::vector<CopyMark>& marks;

  void mark(Addr original, unsigned pushed = 0) const {
    marks.push_back({static_cast<std::uint8_t>(out.size()), static_cast<std::uint8_t>(pushed), original});
  }
  Addr end() const { return from + insn.length; }
};

// The instruction's bytes; the displacement of a rip-relative operand changes by what the distance to it changes.
// Trailing immediates count: the displacement is relative to the end of the instruction.
void emit_adjusted(const Job& job, Bytes bytes, unsigned disp_offset) {
  if (job.insn.base != Base::rip && job.insn.base != Base::eip) return job.out.raw(bytes);
  const Addr operand = job.end() + static_cast<std::uint64_t>(job.insn.disp);
  const auto rest = bytes.subspan(disp_offset + 4);
  const auto after = static_cast<unsigned>(rest.size());
  job.out.raw(bytes.first(disp_offset));
  if (job.insn.base == Base::rip)
    job.out.distance(operand, after);
  else
    job.out.distance_in_32_bits(operand, after);
  job.out.raw(rest);
}

Bytes own_bytes(const Decoded& insn) { return Bytes(insn.bytes).first(insn.length); }

// The jump that ends a copy. The instruction is done there, so the thread stands after it.
void emit_jump_back(const Job& job) {
  job.mark(job.end());
  job.out.jmp(job.next);
}

void emit_plain(const Job& job) {
  emit_adjusted(job, own_bytes(job.insn), job.insn.disp_offset);
  emit_jump_back(job);
}

// jcc rel8 and jcc rel32 both carry the condition in the low bits of the opcode. Branch hints are dropped.
void emit_jump_if(const Job& job) {
  job.out.number(0x800fU | (job.insn.opcode & 0x0fU) << 8U, 2);
  job.out.distance(job.insn.target);
  emit_jump_back(job);
}

// The own bytes up to the 8-bit distance, prefixes included: 67 makes ecx of rcx.
void emit_loop(const Job& job) {
  job.out.raw(own_bytes(job.insn).first(job.insn.target_offset));
  job.out.byte(kJumpBytes);
  emit_jump_back(job);
  job.mark(job.insn.target);
  job.out.jmp(job.insn.target);
}

// An abort restores every register and goes straight to the original fallback.
void emit_transaction(const Job& job) {
  job.out.number(0xf8c7, 2);
  job.out.distance(job.insn.target);
  emit_jump_back(job);
}

// One push of a literal, so that no thread or signal ever sees half a return address. After it the state is as the callee
// expects it.
void emit_call(const Job& job) {
  job.out.push_literal(kJumpBytes);
  job.mark(job.insn.target);
  job.out.jmp(job.insn.target);
  job.out.literal(job.end().value);
}

// The processor leaves its return address in rcx: the lea makes the original's of it, without touching a flag or the
// stack. Every thread that comes out of the call executes it, a child on a stack of its own or on its parent's included. An
// interrupted call is restarted inside the copy: the kernel goes two bytes back, after a prefix if there is one.
void emit_system_call(const Job& job) {
  const auto bytes = own_bytes(job.insn);
  job.out.raw(bytes.first(bytes.size() - kSystemCallBytes));
  if (bytes.size() > kSystemCallBytes) job.mark(job.end() - kSystemCallBytes);
  job.out.raw(bytes.last(kSystemCallBytes));
  job.mark(job.end());
  job.out.number(0x0d8d48, 3);  // lea rcx, [rip + distance]
  job.out.distance(job.end());
  job.out.jmp(job.next);
}

struct IndirectJump {
  std::array<std::uint8_t, kMaxInsnBytes + 4> bytes = {};
  unsigned size = 0;
  unsigned disp_offset = 0;
};

// Replaces the displacement of an rsp-based operand by one that is 8 higher, in 32 bits where 8 do not hold it.
void raise_displacement(const Decoded& insn, IndirectJump& jump) {
  const std::int64_t raised = insn.disp + 8;
  const bool is_short = raised <= INT8_MAX && insn.disp_bytes < 4;
  std::uint8_t& modrm = jump.bytes[insn.modrm_offset];
  modrm = static_cast<std::uint8_t>((modrm & 0x3f) | (is_short ? 0x40 : 0x80));
  // ModRM and SIB are all that precedes the displacement of a call.
  const unsigned at = insn.modrm_offset + 2U;
  const unsigned bytes = is_short ? 1 : 4;
  for (unsigned i = 0; i < bytes; ++i) jump.bytes[at + i] = static_cast<std::uint8_t>(raised >> (8 * i));
  jump.size = at + bytes;
}

// call /2 becomes `group` (push /6, jmp /4) of the same opcode, prefixes and operand.
std::uint8_t with_group(std::uint8_t modrm, unsigned group) {
  return static_cast<std::uint8_t>((modrm & ~0x38U) | group << 3U);
}

// rsp is 8 lower when the jmp reads the operand.
IndirectJump jump_of_call(const Decoded& insn) {
  IndirectJump jump;
  std::copy_n(insn.bytes.begin(), insn.length, jump.bytes.begin());
  jump.size = insn.length;
  jump.disp_offset = insn.disp_offset;
  jump.bytes[insn.modrm_offset] = with_group(insn.bytes[insn.modrm_offset], 4);
  if (insn.base == Base::rsp) raise_displacement(insn, jump);
  return jump;
}

constexpr bool changes_address(std::uint8_t prefix) { return prefix == 0x64 || prefix == 0x65 || prefix == 0x67; }

struct Cmov {
  std::array<std::uint8_t, kMaxInsnBytes + 3> bytes = {};
  unsigned size = 0;
  unsigned disp_offset = 0;
};

// cmov operand, %rax: of the operand of a call.
Cmov cmov_of_call(const Decoded& insn, std::uint8_t opcode) {
  Cmov cmov;
  const auto append = [&cmov](std::uint8_t byte) { cmov.bytes[cmov.size++] = byte; };
  const unsigned before = insn.modrm_offset - 1U;
  for (const std::uint8_t prefix : Bytes(insn.bytes).first(before))
    if (changes_address(prefix)) append(prefix);
  const std::uint8_t last = before == 0 ? 0 : insn.bytes[before - 1];
  append((last & 0xf0) == 0x40 ? 0x48 | (last & 3) : 0x48);
  append(0x0f), append(opcode);
  cmov.disp_offset = cmov.size + insn.disp_offset - insn.modrm_offset;
  append(with_group(insn.bytes[insn.modrm_offset], 0));
  for (unsigned i = insn.modrm_offset + 1U; i < insn.length; ++i) append(insn.bytes[i]);
  return cmov;
}

// Reads the operand of a call and changes nothing, neither a register nor a flag nor the stack: a cmov reads also where it does not
// move.
void emit_touch(const Job& job) {
  constexpr std::uint8_t kIfOverflow = 0x40, kIfNoOverflow = 0x41, kShortJump = 2;
  const auto emit_cmov = [&job](const Cmov& cmov) {
    emit_adjusted(job, Bytes(cmov.bytes).first(cmov.size), cmov.disp_offset);
  };
  const Cmov if_overflow = cmov_of_call(job.insn, kIfOverflow), if_none = cmov_of_call(job.insn, kIfNoOverflow);
  job.out.byte(0x70);  // jo
  job.out.byte(if_overflow.size + kShortJump);
  emit_cmov(if_overflow);
  job.out.byte(0xeb);
  job.out.byte(if_none.size);
  emit_cmov(if_none);
}

// A call whose operand cannot be read has pushed nothing: so that is found out first. A fault of the jmp (a target that is no
// address) is a fault of the call as well: hence the mark.
void emit_call_indirect(const Job& job) {
  if (job.insn.has_memory) emit_touch(job);
  const IndirectJump jump = jump_of_call(job.insn);
  job.out.push_literal(jump.size);
  job.mark(job.from, 8);
  emit_adjusted(job, Bytes(jump.bytes).first(jump.size), jump.disp_offset);
  job.out.literal(job.end().value);
}

// The operand may lie anywhere, also in the eight bytes that the return address will overwrite: it is read by the first
// instruction, into those eight bytes, and from there put out of the way. What the call would leave untouched stays so: the
// target waits in the eight bytes below the caller's red zone, which are the last ones of the callee's, so that no signal
// handler reaches them before the jmp.
//
//   rsp   -8: target, then return address   -128: end of the red zone   -136: target   -144: return address on its way
void emit_call_on_stack(const Job& job) {
  auto bytes = job.insn.bytes;
  bytes[job.insn.modrm_offset] = with_group(bytes[job.insn.modrm_offset], 6);
  job.out.raw(Bytes(bytes).first(job.insn.length));  // push operand
  job.mark(job.from, 8);
  job.out.number(0x8824648d48, 5);  // lea -120(%rsp), %rsp
  job.mark(job.from, 128);
  job.out.number(0x782474ff, 4);  // push 120(%rsp)
  job.mark(job.from, 136);
  constexpr unsigned kPopLeaJump = 7 + 8 + 4;
  job.out.push_literal(kPopLeaJump);
  job.mark(job.from, 144);
  job.out.number(0x8024848f, 7);  // pop 128(%rsp), where rsp is 8 higher already
  job.mark(job.from, 136);
  job.out.number(0x8024a48d48, 8);  // lea 128(%rsp), %rsp
  job.mark(job.from, 8);
  job.out.number(0x802464ff, 4);  // jmp *-128(%rsp)
  job.out.literal(job.end().value);
}

void emit(Form form, const Job& job) {
  job.mark(job.from);
  switch (form) {
    case Form::plain:
      return emit_plain(job);
    case Form::last:
      return emit_adjusted(job, own_bytes(job.insn), job.insn.disp_offset);
    case Form::jump:
      return job.out.jmp(job.insn.target);
    case Form::jump_if:
      return emit_jump_if(job);
    case Form::loop:
      return emit_loop(job);
    case Form::call:
      return emit_call(job);
    case Form::call_indirect:
      return emit_call_indirect(job);
    case Form::call_on_stack:
      return emit_call_on_stack(job);
    case Form::transaction:
      return emit_transaction(job);
    case Form::system_call:
      return emit_system_call(job);
  }
}

// Limits of the encoding that only the form knows.
const char* encoding_reason(Form form, const Decoded& insn) {
  if (form != Form::call_indirect || insn.base != Base::rsp) return nullptr;
  if (insn.disp + 8 > INT32_MAX) return "a call operand too far from the stack pointer";
  return jump_of_call(insn).size > kMaxInsnBytes ? "a call with too many prefixes" : nullptr;
}

struct Judged {
  Decoded insn;
  Form form;
};

Result<Judged> judge(Bytes bytes, Addr from) {
  const auto decoded = decode_fully(bytes, from);
  if (!decoded) return Error{Code::refused, "the bytes are not an instruction"};
  const auto form = classify(*decoded);
  if (!form) return form.error();
  if (const char* reason = encoding_reason(*form, *decoded)) return Error{Code::refused, reason};
  return Judged{*decoded, *form};
}

// The copy, and whether all its distances fit.
bool build(const Judged& judged, Addr from, Addr to, Addr next, Copy& copy) {
  Emitter out(to);
  emit(judged.form, Job{judged.insn, from, next, out, copy.marks});
  copy.bytes = out.take();
  return out.in_reach();
}

// What compilers mostly write needs no decoder: the same bytes, and the jump back. The tables of fast_scan() have nothing that
// the allow-list has not, but for int3: their test asks for each.
std::optional<Copy> usual_copy(Bytes insn, Addr from, Addr to, Addr next) {
  std::array<std::uint8_t, kBytesLookedAt> bytes{};
  std::copy_n(insn.begin(), std::min(insn.size(), bytes.size()), bytes.begin());
  Scanned scanned;
  if (!fast_scan(bytes, from, scanned) || scanned.length > insn.size()) return std::nullopt;
  if (scanned.leads != Leads::on || !scanned.falls_through || scanned.is_ip_relative) return std::nullopt;
  const Addr end = from + scanned.length;
  const auto distance = static_cast<std::int64_t>((next ? next : end) - (to + scanned.length + kJumpBytes));
  if (distance != static_cast<std::int32_t>(distance)) return std::nullopt;
  bytes[scanned.length] = 0xe9;
  for (unsigned i = 0; i < 4; ++i)
    bytes[scanned.length + 1 + i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(distance) >> (8 * i));
  Copy copy;
  copy.bytes.assign(bytes.begin(), bytes.begin() + scanned.length + kJumpBytes);
  copy.marks = {{0, 0, from}, {scanned.length, 0, end}};
  return copy;
}

}  // namespace

Result<Copy> make_copy(Bytes insn, Addr from, Addr to, Addr next) {
  if (auto usual = usual_copy(insn, from, to, next)) return std::move(*usual);
  const auto judged = judge(insn, from);
  if (!judged) return judged.error();
  Copy copy;
  if (!build(*judged, from, to, next ? next : from + judged->insn.length, copy))
    return Error{Code::refused, kOutOfReach};
  return copy;
}

Result<std::vector<std::uint8_t>> displace(Bytes insn, Addr from, Addr to) {
  auto copy = make_copy(insn, from, to);
  if (!copy) return copy.error();
  return std::move(copy->bytes);
}

// See usual_copy().
Status can_displace(Bytes insn, Addr from) {
  Scanned scanned;
  const bool is_usual = fast_scan(insn, from, scanned) && (scanned.falls_through || !scanned.is_padding);
  if (is_usual) return ok();
  const auto judged = judge(insn, from);
  return judged ? ok() : Status(judged.error());
}

Result<std::size_t> copy_bytes(Bytes insn, Addr from) {
  const auto judged = judge(insn, from);
  if (!judged) return judged.error();
  Copy copy;
  build(*judged, from, from, from, copy);
  return copy.bytes.size();
}

}  // namespace uprobe::arch
