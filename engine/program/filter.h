// SPDX-License-Identifier: MIT
// Filters: the kernel's language for events/GROUP/EVENT/filter, compiled to the tests that the agent runs on a payload before
// it publishes it.
//
//   expression   or ; or = and {"||" and} ; and = not {"&&" not} ; not = {"!"} ("(" or ")" | term)
//   term         FIELD OPERATOR VALUE
//
// Fields are the event's arguments, __probe_ip (of a return __probe_func, __probe_ret_ip), cpu (CPU, common_cpu), comm (COMM)
// and the common_* fields. What is refused, where the caret stands, and what passes is as in the kernel (Linux 6.18,
// kernel/trace/trace_events_filter.c), which also takes an expression that ends with an operator.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/program/layout.h"

namespace uprobe::program {

struct FilterContext {
  unsigned id = 1;    // of the event, as in its format file: common_type
  unsigned cpus = 1;  // numbers of CPUs are smaller
};

// How many numbers of CPUs this machine has.
unsigned possible_cpus();

// A filter by itself. `text` holds what its tests compare with, behind what it began with.
struct CompiledFilter {
  std::vector<shared::Test> tests;  // none: everything passes
  std::string text;
};
Result<CompiledFilter> compile_filter(const EventLayout& layout, std::string_view filter, const FilterContext& context,
                                      std::string text = {});

// Sets the program's filter, or takes it away ("0"). On an error the program is as before: Error::where is the filter, err
// what write(2) to the kernel's file says. Where the kernel tells nothing but "Error: (0)", `help` says what it is about.
Status set_filter(EventProgram& program, std::string_view text, const FilterContext& context);

// What the thread hits passes the program's filter no more; what others hit passes as before.
void leave_out_thread(EventProgram& program, std::uint32_t thread);

// Of an event that has a filter: what verify() (verify.h) asks of it.
//   - every operation is known; the last one is an end, and every other leads to a later one
//   - numbers and locators lie inside the fixed part; texts and sets lie in the program's text
Status verify_filter(const EventProgram& program);

}  // namespace uprobe::program
