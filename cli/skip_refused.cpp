// SPDX-License-Identifier: MIT
#include "cli/skip_refused.h"

#include "cli/text.h"

namespace uprobe::cli {

std::string skipped_line(const Error& error, const Context& context) {
  return "skipped " + context.place + ": '" + context.definition + "': " + error.text;
}

Status prepare_others(SessionOptions& options, std::vector<std::string>& places,
                      const std::function<Status(const SessionOptions&)>& prepare, const Diagnostics& diagnostics) {
  std::vector<Definition>& list = options.definitions;
  const std::size_t all = list.size();
  for (;;) {
    const Status prepared = prepare(options);
    const auto number = static_cast<std::size_t>(prepared ? 0 : prepared.error().definition);
    if (!prepared && number < list.size()) {
      diagnostics.line(skipped_line(prepared.error(), {places[number], list[number].text}));
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(number));
      places.erase(places.begin() + static_cast<std::ptrdiff_t>(number));
      if (!list.empty()) continue;
      return Error{.code = Code::usage,
                   .text = "no probe is left: " + counted(all, "definition", "definitions") + " skipped"};
    }
    if (list.size() != all)
      diagnostics.line(std::to_string(all - list.size()) + " of " + counted(all, "definition", "definitions") +
                       " skipped");
    return prepared;
  }
}

}  // namespace uprobe::cli
