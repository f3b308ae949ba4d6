// SPDX-License-Identifier: MIT
// The operands of a marker's arguments, as the assembler of this machine writes them: "%edi", "-16(%rbp)", "8(%rax,%rbx,4)",
// "$-1", "count+8(%rip)", "table(,%rax,8)". They come from a file's note, so anything may stand there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "arch/shared/registers.h"
#include "engine/base/result.h"

namespace uprobe::arch {

struct MarkerOperand {
  enum class Kind : std::uint8_t {
    constant,        // `value`
    general,         // the lowest `bytes` of register `base`, or its second byte
    vector,          // vector register number `vector`
    memory,          // at base + (index << scale) + value
    memory_of_name,  // at the address of `symbol` + base + (index << scale) + value
    address,         // the address of `symbol` + value
  };
  Kind kind = Kind::constant;
  std::optional<shared::Reg> base, index = {};
  std::uint8_t scale = 0;  // 0..3
  std::uint8_t bytes = 8;
  std::uint8_t vector = 0;
  bool is_second_byte = false;
  std::int64_t value = 0;
  std::string symbol = {};
};

// Code::refused: the text is no operand, or one that cannot be fetched (of a segment, of the procedure linkage, by the address of
// the instruction itself); the error's text says why.
Result<MarkerOperand> read_marker_operand(std::string_view text);

}  // namespace uprobe::arch
