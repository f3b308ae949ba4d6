// SPDX-License-Identifier: MIT
// Actions: triggers that change the program. The kernel has none of them for uprobes.
//
//   return=VALUE[,errno=ENAME]   set %REGISTER=VALUE   set $retval=VALUE   delay=TIME   signal=NAME
//
//   call=NUMBER,ADDRESS,COOKIE     a callback of the program itself; the library writes it (library/uprobe/callback.h)
//
// A VALUE is a number as the kernel reads it, with a sign if wanted: 64 bits. A TIME is a whole number of us, ms or s.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "arch/shared/registers.h"
#include "engine/base/result.h"
#include "engine/shared/trigger.h"

namespace uprobe::program {

struct Action {
  std::uint64_t value = 0;                       // as shared::Trigger::value
  std::uint32_t error_number = 0;                // of return=; 0: errno is left as it is
  shared::Reg target = shared::kReturnRegister;  // of set
  bool is_of_return = false;                     // set $retval: at returns, else at entries and inside functions
  std::uint32_t callback = 0;                    // of call=: its number
  std::uint64_t cookie = 0;                      // of call=: CallbackGate::cookie; `value` is the gate's address
};

// The kind of the action that a trigger's first word begins; "set" is a word of its own, and what it sets is the next one.
std::optional<shared::TriggerKind> action_kind(std::string_view word);

// `word`: "return=-1,errno=EIO", "%di=0", "delay=10ms". Error::column counts from the word's beginning; Error::where is left empty.
Result<Action> parse_action(shared::TriggerKind kind, std::string_view word);

}  // namespace uprobe::program
