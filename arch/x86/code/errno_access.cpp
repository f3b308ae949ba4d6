// SPDX-License-Identifier: MIT
#include "arch/code/errno_access.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>

#include "arch/code/instruction_bytes.h"

namespace uprobe::arch {
namespace {

// Reads a function instruction by instruction.
class Pattern {
 public:
  Pattern(Bytes code, Addr address) : code_(code), next_(address.value) {}

  // Whether these bytes come next, with `operand` bytes after them, which offset() then returns as a signed number.
  bool takes(std::initializer_list<std::uint8_t> bytes, std::size_t operand = 0) {
    const std::size_t length = bytes.size() + operand;
    if (code_.size() < length || !std::equal(bytes.begin(), bytes.end(), code_.begin())) return false;
    offset_ = operand == 0 ? 0 : operand == 1 ? static_cast<std::int8_t>(code_[bytes.size()]) : word(bytes.size());
    skip(length);
    return true;
  }
  void skip(std::size_t length) { code_ = code_.subspan(length), next_ += length; }

  Bytes code() const { return code_; }
  ErrnoAccess constant() const { return {false, static_cast<std::uint64_t>(offset_)}; }
  ErrnoAccess relative() const { return {true, next_ + static_cast<std::uint64_t>(offset_)}; }

 private:
  std::int64_t word(std::size_t at) const {
    std::int32_t value = 0;
    std::memcpy(&value, code_.data() + at, sizeof value);
    return value;
  }

  Bytes code_;
  std::uint64_t next_;
  std::int64_t offset_ = 0;
};

// add DISP(%rip),%rax; add $N,%rax; lea N(%rax),%rax
std::optional<ErrnoAccess> added(Pattern& code) {
  if (code.takes({0x48, 0x03, 0x05}, 4)) return code.relative();
  if (code.takes({0x48, 0x83, 0xc0}, 1) || code.takes({0x48, 0x05}, 4) || code.takes({0x48, 0x8d, 0x40}, 1) ||
      code.takes({0x48, 0x8d, 0x80}, 4))
    return code.constant();
  return std::nullopt;
}

// mov DISP(%rip),%rax; mov $N,%rax
std::optional<ErrnoAccess> loaded(Pattern& code) {
  if (code.takes({0x48, 0x8b, 0x05}, 4)) return code.relative();
  if (code.takes({0x48, 0xc7, 0xc0}, 4)) return code.constant();
  return std::nullopt;
}

}  // namespace

std::optional<ErrnoAccess> errno_access(Bytes code, Addr address) {
  Pattern rest(code, address);
  rest.skip(landing_pad_bytes(code));
  std::optional<ErrnoAccess> found;
  if (rest.takes({0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0})) {  // mov %fs:0,%rax
    found = added(rest);
  } else {
    found = loaded(rest);
    if (!rest.takes({0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0})) return std::nullopt;  // add %fs:0,%rax
  }
  return found && rest.takes({0xc3}) ? found : std::nullopt;
}

}  // namespace uprobe::arch
