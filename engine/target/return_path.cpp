// SPDX-License-Identifier: MIT
#include "engine/target/return_path.h"

#include <cerrno>

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

}  // namespace uprobe::target
