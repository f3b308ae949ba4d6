// SPDX-License-Identifier: MIT
#include "engine/ipc/call_table.h"

#include <cstdint>

#include "engine/ipc/message.h"

namespace uprobe {
namespace {

// The numbers of a row, in the order in which they are sent; the self time is sent apart.
template <class Row, class Visit>
void each_number(Row& row, const Visit& visit) {
  for (auto* number : {&row.calls, &row.returns, &row.abandoned, &row.unfollowed, &row.untimed, &row.total_ns,
                       &row.mean_ns, &row.p50_ns, &row.p90_ns, &row.p99_ns, &row.max_ns})
    visit(*number);
}

}  // namespace

std::string encode(const std::vector<CallSummary>& rows) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(rows.size()));
  for (const CallSummary& row : rows) {
    put(bytes, row.event);
    put(bytes, row.place);
    put(bytes, row.process ? 1 : 0);
    put(bytes, row.process ? row.process->id : 0);
    put(bytes, row.process ? row.process->name : std::string());
    each_number(row, [&](std::uint64_t number) { put_long(bytes, number); });
    put(bytes, row.self_ns ? 1 : 0);
    put_long(bytes, row.self_ns.value_or(0));
  }
  return bytes;
}

std::optional<std::vector<CallSummary>> decode_calls(std::string_view bytes) {
  Parser parser(bytes);
  std::vector<CallSummary> rows;
  for (std::uint32_t left = parser.number(); left != 0 && parser.good(); --left) {
    CallSummary& row = rows.emplace_back();
    row.event = parser.text(), row.place = parser.text();
    const bool has_process = parser.number() != 0;
    CallSummary::Process process{.id = parser.number(), .name = parser.text()};
    if (has_process) row.process = std::move(process);
    each_number(row, [&](std::uint64_t& number) { number = parser.long_number(); });
    const bool has_self = parser.number() != 0;
    const std::uint64_t self = parser.long_number();
    if (has_self) row.self_ns = self;
  }
  if (!parser.is_done()) return std::nullopt;
  return rows;
}

}  // namespace uprobe
