// SPDX-License-Identifier: MIT
#include "arch/code/window.h"

#include "arch/code/scan.h"

namespace uprobe::arch {
namespace {

constexpr std::size_t kJumpBack = 5;
constexpr std::size_t kMaxMarkOffset = 255;  // CopyMark::offset

Error refused(const char* reason) { return Error{Code::refused, reason}; }

bool is_branch_inside(const Scanned& insn, Addr from, std::size_t size) {
  const bool is_direct = insn.leads == Leads::jump || insn.leads == Leads::jump_if || insn.leads == Leads::call;
  return is_direct && insn.target > from.value && insn.target < from.value + size;
}

// A system call before others is one that a signal would restart at an address that is now inside a jump.
bool must_be_alone(const Scanned& insn) { return insn.leads == Leads::system_call; }
bool must_be_last(const Scanned& insn) { return insn.leads == Leads::call || insn.leads == Leads::call_indirect; }

const char* reason_against(const Scanned& insn, Bytes window, Addr from, std::size_t at) {
  const bool is_last = at + insn.length == window.size();
  if (is_branch_inside(insn, from, window.size())) return "a branch inside of the window";
  if (must_be_alone(insn) && insn.length != window.size()) return "a system call beside other instructions";
  if (must_be_last(insn) && !is_last) return "a call returns into the window";
  if (!insn.falls_through && !is_last) return "control does not reach the end of the window";
  return nullptr;
}

// Where a copy ends with a jump to the next one, which stands right after it, that goes.
bool drop_jump(Copy& copy, Addr next) {
  const CopyMark& last = copy.marks.back();
  if (copy.marks.size() < 2 || last.offset + kJumpBack != copy.bytes.size() || last.original != next) return false;
  copy.bytes.resize(last.offset);
  copy.marks.pop_back();
  return true;
}

Status append(Copy& whole, const Copy& part) {
  if (whole.bytes.size() + part.bytes.size() > kMaxMarkOffset) return refused("the copy is too long");
  for (const CopyMark& mark : part.marks)
    whole.marks.push_back({.offset = static_cast<std::uint8_t>(whole.bytes.size() + mark.offset),
                           .pushed = mark.pushed,
                           .original = mark.original});
  whole.bytes.insert(whole.bytes.end(), part.bytes.begin(), part.bytes.end());
  return ok();
}

// The copy at `to` of an instruction that is not the last: it goes on after itself.
Result<Copy> copy_part(Bytes insn, const Scanned& scanned, Addr from, Addr to) {
  const Addr next = from + scanned.length;
  Result<Copy> part = make_copy(insn, from, to, next);
  if (!part || drop_jump(*part, next)) return part;
  return make_copy(insn, from, to, to + part->bytes.size());
}

}  // namespace

Result<Copy> displace_window(Bytes window, Addr from, Addr to, Addr next) {
  Copy whole;
  if (window.empty() || window.size() > kMaxWindowBytes) return refused("no window");
  for (std::size_t at = 0; at < window.size();) {
    Scanned insn;
    if (!scan(window.subspan(at), from + at, insn)) return refused("the bytes are not an instruction");
    if (const char* reason = reason_against(insn, window, from, at)) return refused(reason);
    const Bytes code = window.subspan(at);
    const Addr here = to + whole.bytes.size();
    const bool is_last = insn.length == code.size();
    auto part = is_last ? make_copy(code, from + at, here, next) : copy_part(code, insn, from + at, here);
    if (!part) return part.error();
    RETURN_IF_ERROR(append(whole, *part));
    at += insn.length;
  }
  return whole;
}

}  // namespace uprobe::arch
