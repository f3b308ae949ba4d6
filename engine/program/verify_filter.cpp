// SPDX-License-Identifier: MIT
// The verifier of filters: one look at each test, independent of how the tests are made.
#include <algorithm>

#include "engine/program/filter.h"

namespace uprobe::program {
namespace {

using shared::Test;
using shared::TestOp;

constexpr std::uint32_t kCpuBytes = 4;

Error fail(std::size_t at, const char* what) {
  return Error{.code = Code::damaged, .text = "test " + std::to_string(at) + ": " + what};
}

bool is_inside(const EventProgram& program, std::uint64_t offset, std::uint64_t bytes) {
  return offset + bytes <= program.layout.fixed_bytes;
}

bool has_text(const EventProgram& program, const Test& test) {
  const std::uint64_t place = test.value & UINT32_MAX, size = shared::text_bytes_of(test);
  return place + size <= program.text.size();
}

bool is_string(const EventProgram& program, const Test& test) {
  const std::uint32_t characters = shared::characters_of(test);
  return std::ranges::any_of(program.layout.fields, [&](const Field& field) {
    if (field.offset != test.offset) return false;
    return characters == 0 ? field.kind == Kind::string && field.size == kLocatorBytes
                           : field.is_text && field.count == characters;
  });
}

const char* fault_of(const EventProgram& program, const Test& test) {
  if (shared::is_text_test(test.op)) {
    if (test.size >= shared::kTextMatchCount) return "an unknown comparison of texts";
    if (test.offset != shared::kTestName && !is_string(program, test)) return "a text where there is none";
    return has_text(program, test) ? nullptr : "a text outside of its pool";
  }
  if (!shared::is_number_test(test.op) && !shared::is_set_test(test.op)) return "an unknown operation";
  if (test.size != 1 && test.size != 2 && test.size != 4 && test.size != 8) return "a number of an impossible size";
  const bool is_cpu = test.offset == shared::kTestCpu;
  if (is_cpu ? test.size != kCpuBytes : !is_inside(program, test.offset, test.size))
    return "a number outside of the record";
  return shared::is_number_test(test.op) || has_text(program, test) ? nullptr : "a set outside of its pool";
}

}  // namespace

Status verify_filter(const EventProgram& program) {
  const auto& tests = program.filter;
  const auto is_end = [](const Test& test) { return test.op == TestOp::pass || test.op == TestOp::drop; };
  if (tests.empty()) return ok();
  if (tests.size() > UINT16_MAX) return fail(tests.size(), "the filter is too long");
  if (!is_end(tests.back())) return fail(tests.size() - 1, "the filter has no end");
  for (std::size_t at = 0; at < tests.size(); ++at) {
    const Test& test = tests[at];
    if (is_end(test)) continue;
    if (test.target <= at || test.target >= tests.size()) return fail(at, "a way that does not lead forward");
    if (test.op == TestOp::go_on) continue;
    if (const char* fault = fault_of(program, test)) return fail(at, fault);
  }
  return ok();
}

}  // namespace uprobe::program
