// SPDX-License-Identifier: MIT
#include "engine/target/return_path.h"

#include <elf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "engine/base/procfs.h"

namespace uprobe::target {
namespace {

using arch::ReturnFrame;

constexpr std::uint64_t kDistance = 1024;  // below the stack pointer; the kernel has mapped far more

}  // namespace

Result<Mapping> find_vdso(const std::vector<Mapping>& maps) {
  if (maps.empty()) return system_error("the program's mappings", ESRCH);  // it has been killed
  for (const Mapping& m : maps)
    if (m.path == "[vdso]") return m;
  return Error{.code = Code::refused, .text = "the program has no vDSO to make system calls in (vdso=0?)"};
}

Status ReturnPath::build(const ProcessFiles& files, const std::vector<Mapping>& maps,
                         const arch::ThreadRegisters& registers, std::uint64_t mask) {
  if (!arch::runs_native_code(registers)) return Error{.code = Code::refused, .text = "is a 32-bit program"};
  const auto vdso = find_vdso(maps);
  if (!vdso) return vdso.error();
  code_ = vdso->begin + arch::kElfPadding;
  frame_ = Addr{(arch::stack_pointer(registers) - kDistance) & ~std::uint64_t{15}};
  const ReturnFrame frame = arch::make_return_frame(registers, mask);
  RETURN_IF_ERROR(files.read(below_frame(), stack_before_.data(), stack_before_.size()));
  RETURN_IF_ERROR(files.write(frame_, &frame, sizeof frame));
  RETURN_IF_ERROR(files.read(code_, code_before_.data(), code_before_.size()));
  return files.write(code_, arch::kCallAndReturn.data(), arch::kCallAndReturn.size());
}

Status ReturnPath::set_mask(const ProcessFiles& files, std::uint64_t mask) {
  return files.write(frame_ + offsetof(ReturnFrame, mask), &mask, sizeof mask);
}

void ReturnPath::set_out(arch::ThreadRegisters& r) const {
  arch::set_instruction_pointer(r, code_.value);
  arch::set_stack_pointer(r, frame_.value);
  arch::forget_call(r);  // no restart logic of the execve that we stopped in
}

void ReturnPath::turn_back(arch::ThreadRegisters& r) const {
  set_out(r);
  arch::set_instruction_pointer(r, (code_ + arch::kReturnOffset).value);
}

void ReturnPath::erase(const ProcessFiles& files) const {
  static_cast<void>(files.write(code_, code_before_.data(), code_before_.size()));
  static_cast<void>(files.write(below_frame(), stack_before_.data(), stack_before_.size()));
}

namespace {

using arch::ListedCall;

// A security module may mediate a signal that a process sends itself; one that does not confine it says so, or nothing.
bool may_be_confined(pid_t pid) {
  static const auto own = procfs::read(::getpid(), "attr/current");
  if (!own && own.error().err == EINVAL) return false;  // the kernel has no module that labels processes
  const auto label = procfs::read(pid, "attr/current");
  return label && !label->empty() && label->rfind("unconfined", 0) != 0;
}

Result<Addr> place_of_code(const ProcessFiles& files, const Mapping& vdso) {
  std::uint64_t offset = 0;
  RETURN_IF_ERROR(files.read(vdso.begin + offsetof(Elf64_Ehdr, e_shoff), &offset, sizeof offset));
  const std::uint64_t bytes = vdso.end - vdso.begin;
  const bool has_room = offset >= sizeof(Elf64_Ehdr) && offset < bytes && bytes - offset >= arch::kListedCalls.size();
  return has_room ? Result<Addr>(vdso.begin + offset)
                  : Error{.code = Code::refused, .text = "the program's vDSO has no room for a list of calls"};
}

}  // namespace

Status ListedCalls::build(const ProcessFiles& files, const Mapping& vdso, Addr stack) {
  if (may_be_confined(files.pid())) return Error{.code = Code::refused, .text = "the program is confined"};
  const auto code = place_of_code(files, vdso);
  if (!code) return code.error();
  list_ = Addr{(stack.value - kListBytes - kScratchBytes) & ~std::uint64_t{15}};
  stack_before_.resize(kListBytes + kScratchBytes);
  RETURN_IF_ERROR(files.read(list_, stack_before_.data(), stack_before_.size()));
  RETURN_IF_ERROR(files.write(list_, stack_before_.data(), stack_before_.size()));
  RETURN_IF_ERROR(files.read(*code, code_before_.data(), code_before_.size()));
  RETURN_IF_ERROR(files.write(*code, arch::kListedCalls.data(), arch::kListedCalls.size()));
  code_ = *code;
  return ok();
}

Status ListedCalls::begin(const ProcessFiles& files, std::span<const SystemCall> calls,
                          std::span<const SystemCall> earlier, arch::ThreadRegisters& r) const {
  std::vector<ListedCall> list;
  list.reserve(calls.size() + kOwn);
  const auto place_of = [&](std::size_t index) { return list_ + index * sizeof(ListedCall); };
  const auto add = [&](const SystemCall& call, bool takes) {
    const Addr at = place_of(list.size()), own = at + offsetof(ListedCall, take);
    const Addr to = at + offsetof(ListedCall, arguments) + 8 * static_cast<std::uint64_t>(takes ? call.takes : 0);
    list.push_back({.number = static_cast<std::uint64_t>(call.number),
                    .arguments = call.arguments,
                    .take = takes ? place_of(call.from - earlier.size()).value : own.value,
                    .put = takes ? to.value : own.value});
  };
  for (SystemCall call : calls) {
    const bool takes = call.takes != SystemCall::kTakesNone, is_known = takes && call.from < earlier.size();
    if (is_known) call.arguments.at(call.takes) = static_cast<std::uint64_t>(earlier[call.from].result);
    add(call, takes && !is_known);
  }
  add({.number = SYS_gettid, .arguments = {}}, false);
  const std::size_t thread = earlier.size() + calls.size();
  add({.number = SYS_tkill, .arguments = {0, kEnd}, .takes = 0, .from = thread}, true);
  arch::set_listed_calls(r, code_.value, list_.value, list.size());
  return files.write(list_, list.data(), list.size() * sizeof(ListedCall));
}

Status ListedCalls::end(const ProcessFiles& files, std::span<SystemCall> calls) const {
  std::vector<ListedCall> list(calls.size());
  RETURN_IF_ERROR(files.read(list_, list.data(), list.size() * sizeof(ListedCall)));
  for (std::size_t i = 0; i < calls.size(); ++i) calls[i].result = static_cast<std::int64_t>(list[i].number);
  return ok();
}

void ListedCalls::erase(const ProcessFiles& files) const {
  if (!is_built()) return;
  static_cast<void>(files.write(code_, code_before_.data(), code_before_.size()));
  static_cast<void>(files.write(list_, stack_before_.data(), stack_before_.size()));
}

}  // namespace uprobe::target
