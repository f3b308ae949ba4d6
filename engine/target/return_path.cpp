// SPDX-License-Identifier: MIT
#include "engine/target/return_path.h"

#include <cerrno>

namespace uprobe::target {
namespace {

using arch::ReturnFrame;

constexpr std::uint64_t kDistance = 1024;  // below the stack pointer; the kernel has mapped far more

ReturnFrame frame_of(const user_regs_struct& r, std::uint64_t mask) {
  ReturnFrame f{};
  f.uc_flags = arch::kRestoreStackSegment;
  f.stack_flags = arch::kNoAlternateStack;
  f.r8 = r.r8, f.r9 = r.r9, f.r10 = r.r10, f.r11 = r.r11, f.r12 = r.r12, f.r13 = r.r13, f.r14 = r.r14, f.r15 = r.r15;
  f.di = r.rdi, f.si = r.rsi, f.bp = r.rbp, f.bx = r.rbx, f.dx = r.rdx, f.ax = r.rax, f.cx = r.rcx;
  f.sp = r.rsp, f.ip = r.rip, f.flags = r.eflags;
  f.cs = static_cast<std::uint16_t>(r.cs), f.ss = static_cast<std::uint16_t>(r.ss);
  f.mask = mask;
  return f;
}

Result<Addr> find_vdso(const ProcessFiles& files) {
  const auto maps = files.maps();
  if (!maps) return maps.error();
  if (maps->empty()) return system_error("the program's mappings", ESRCH);  // it has been killed
  for (const Mapping& m : *maps)
    if (m.path == "[vdso]") return m.begin;
  return Error{.code = Code::refused, .text = "the program has no vDSO to make system calls in (vdso=0?)"};
}

}  // namespace

Status ReturnPath::build(const ProcessFiles& files, const user_regs_struct& registers, std::uint64_t mask) {
  if (registers.cs != arch::kLongModeCodeSegment) return Error{.code = Code::refused, .text = "is a 32-bit program"};
  const auto vdso = find_vdso(files);
  if (!vdso) return vdso.error();
  code_ = *vdso + arch::kElfPadding;
  frame_ = Addr{(registers.rsp - kDistance) & ~std::uint64_t{15}};
  const ReturnFrame frame = frame_of(registers, mask);
  if (Status s = files.read(below_frame(), stack_before_.data(), stack_before_.size()); !s) return s;
  if (Status s = files.write(frame_, &frame, sizeof frame); !s) return s;
  if (Status s = files.read(code_, code_before_.data(), code_before_.size()); !s) return s;
  return files.write(code_, arch::kCallAndReturn.data(), arch::kCallAndReturn.size());
}

Status ReturnPath::set_mask(const ProcessFiles& files, std::uint64_t mask) {
  return files.write(frame_ + offsetof(ReturnFrame, mask), &mask, sizeof mask);
}

void ReturnPath::set_out(user_regs_struct& r) const {
  r.rip = code_.value;
  r.rsp = frame_.value;
  r.orig_rax = ~0ull;  // no restart logic of the execve that we stopped in
}

void ReturnPath::turn_back(user_regs_struct& r) const {
  set_out(r);
  r.rip = (code_ + arch::kReturnOffset).value;
}

void ReturnPath::erase(const ProcessFiles& files) const {
  static_cast<void>(files.write(code_, code_before_.data(), code_before_.size()));
  static_cast<void>(files.write(below_frame(), stack_before_.data(), stack_before_.size()));
}

}  // namespace uprobe::target
