// SPDX-License-Identifier: MIT
// Filters: the kernel's language for events/GROUP/EVENT/filter, compiled to the tests that the agent runs on a payload before
// it publishes it.
//
//   expression   or ; or = and {"||" and} ; and = not {"&&" not} ; not = {"!"} ("(" or ")" | term)
//   term         FIELD OPERATOR VALUE
//
// Fields are the event's arguments, __probe_ip (of a return __probe_func, __probe_ret_ip), cpu (CPU, common_cpu), comm (COMM)
// and the common_* fields. Refusals, the places of carets and accepted filters are as in the kernel (Linux 6.18,
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

// A filter by itself. `text` begins as it was given; the texts of the tests follow.
struct CompiledFilter {
  std::vector<shared::Test> tests;  // none: everything passes
  std::string text;
};
Result<CompiledFilter> compile_filter(const EventLayout& layout, std::string_view filter, const FilterContext& context,
                                      std::string text = {});

// Sets the program's filter, or removes it ("0"). On an error the program is unchanged: Error::where is the filter, err is the
// errno of write(2) to the kernel's file. If the kernel says only "Error: (0)", `help` says what is wrong.
Status set_filter(EventProgram& program, std::string_view text, const FilterContext& context);

// Adds to the program's filter: it drops all hits of this thread.
void leave_out_thread(EventProgram& program, std::uint32_t thread);

// For an event with a filter: the conditions of verify() (verify.h).
//   - every operation is known; the last one is an end, and every other leads to a later one
//   - numbers and locators lie inside the fixed part; texts and sets lie in the program's text
Status verify_filter(const EventProgram& program);

}  // namespace uprobe::program
