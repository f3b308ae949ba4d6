// SPDX-License-Identifier: MIT
#include "engine/resolve/go_arguments.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace uprobe {
namespace {

// Each program of Go has this variable of its runtime.
constexpr std::string_view kOfGo = "runtime.buildVersion";

// "main.work", "net/http.(*Server).Serve"; but not what C compilers make of a function ("work.part.0", "work.cold").
bool is_name_of_go(std::string_view symbol) {
  const std::size_t dot = symbol.find('.');
  if (dot == 0 || dot == std::string_view::npos || symbol.starts_with("_Z")) return false;
  const std::string_view after = symbol.substr(dot + 1);
  return std::ranges::none_of(std::to_array<std::string_view>({"part.", "cold", "constprop.", "isra.", "lto_priv."}),
                              [&](std::string_view suffix) { return after.starts_with(suffix); });
}

bool asks_by_number(const spec::Argument& argument) {
  return argument.body.find("$arg") != std::string::npos || argument.body.find("$entry_arg") != std::string::npos;
}

}  // namespace

Status check_go_arguments(const spec::ProbeSpec& spec, const plan::Found& place) {
  const auto asking = std::ranges::find_if(spec.arguments, asks_by_number);
  const std::string& symbol = spec.place.symbol;
  if (asking == spec.arguments.end() || !is_name_of_go(symbol) || !place.file->find_any(kOfGo)) return ok();
  return at_column(spec, asking->column,
                   Error{.code = Code::refused,
                         .text = "'" + symbol + "' is a function of Go, whose arguments are in other registers",
                         .help = "give their names without parentheses; --vars='" + symbol + "' lists them"});
}

}  // namespace uprobe
