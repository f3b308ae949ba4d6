// SPDX-License-Identifier: MIT
#include "arch/code/remote_call.h"

#include <sys/syscall.h>

#include <cstring>
#include <initializer_list>

namespace uprobe::arch {
namespace {

class Writer {
 public:
  explicit Writer(RemoteCallCode& code) : code_(code) {}

  void put(std::initializer_list<std::uint8_t> bytes) {
    for (const std::uint8_t byte : bytes) code_[at_++] = byte;
  }
  // An instruction that ends with its distance to a field of the data.
  void put_field(std::initializer_list<std::uint8_t> opcode, std::size_t field) {
    put(opcode);
    const auto distance = static_cast<std::uint32_t>(kRemoteCallData + field - (at_ + 4));
    for (unsigned i = 0; i < 4; ++i) code_[at_++] = static_cast<std::uint8_t>(distance >> (8 * i));
  }

 private:
  RemoteCallCode& code_;
  std::size_t at_ = 0;
};

// mov field(%rip), %reg for each register but rsp.
struct Load {
  std::uint8_t rex, modrm;
  std::size_t field;
};
constexpr Load kLoads[] = {
    {0x48, 0x05, offsetof(RemoteCallReturn, ax)},  {0x48, 0x1d, offsetof(RemoteCallReturn, bx)},
    {0x48, 0x0d, offsetof(RemoteCallReturn, cx)},  {0x48, 0x15, offsetof(RemoteCallReturn, dx)},
    {0x48, 0x35, offsetof(RemoteCallReturn, si)},  {0x48, 0x3d, offsetof(RemoteCallReturn, di)},
    {0x48, 0x2d, offsetof(RemoteCallReturn, bp)},  {0x4c, 0x05, offsetof(RemoteCallReturn, r8)},
    {0x4c, 0x0d, offsetof(RemoteCallReturn, r9)},  {0x4c, 0x15, offsetof(RemoteCallReturn, r10)},
    {0x4c, 0x1d, offsetof(RemoteCallReturn, r11)}, {0x4c, 0x25, offsetof(RemoteCallReturn, r12)},
    {0x4c, 0x2d, offsetof(RemoteCallReturn, r13)}, {0x4c, 0x35, offsetof(RemoteCallReturn, r14)},
    {0x4c, 0x3d, offsetof(RemoteCallReturn, r15)},
};

}  // namespace

// As the kernel would do it (arch/x86/kernel/signal.c, arch_do_signal_or_restart).
RemoteCallReturn return_to(const ThreadRegisters& r, std::uint64_t mask, Restart restart) {
  RemoteCallReturn to{};
  to.flags = r.eflags & ~kTrapFlag, to.sp = r.rsp, to.mask = mask, to.ip = r.rip;
  to.ax = r.rax, to.bx = r.rbx, to.cx = r.rcx, to.dx = r.rdx, to.si = r.rsi, to.di = r.rdi, to.bp = r.rbp;
  to.r8 = r.r8, to.r9 = r.r9, to.r10 = r.r10, to.r11 = r.r11;
  to.r12 = r.r12, to.r13 = r.r13, to.r14 = r.r14, to.r15 = r.r15;
  if (restart == Restart::none) return to;
  to.ip = call_place(r);
  to.ax = restart == Restart::again ? r.orig_rax : static_cast<std::uint64_t>(SYS_restart_syscall);
  return to;
}

RemoteCallCode make_remote_call(const RemoteCallReturn& to) {
  RemoteCallCode code;
  code.fill(0xcc);
  Writer w(code);
  w.put({0x0f, 0x05});
  w.put_field({0x48, 0x8d, 0x25}, offsetof(RemoteCallReturn, flags));  // lea, %rsp
  w.put({0x9d});                                                       // popf
  w.put_field({0x48, 0x8b, 0x25}, offsetof(RemoteCallReturn, sp));     // mov, %rsp
  w.put({0xb8, 14, 0, 0, 0});                                          // mov $14, %eax
  w.put({0xbf, 2, 0, 0, 0});                                           // mov $2, %edi
  w.put_field({0x48, 0x8d, 0x35}, offsetof(RemoteCallReturn, mask));   // lea, %rsi
  w.put({0xba, 0, 0, 0, 0});                                           // mov $0, %edx
  w.put({0x41, 0xba, 8, 0, 0, 0});                                     // mov $8, %r10d
  w.put({0x0f, 0x05});
  for (const Load& load : kLoads) w.put_field({load.rex, 0x8b, load.modrm}, load.field);
  w.put_field({0xff, 0x25}, offsetof(RemoteCallReturn, ip));  // jmp *
  std::memcpy(code.data() + kRemoteCallData, &to, sizeof to);
  return code;
}

}  // namespace uprobe::arch
