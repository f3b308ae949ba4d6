// SPDX-License-Identifier: MIT
// The values of a record as JSON: docs/output.md says how each kind is written.
#pragma once

#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"

namespace uprobe::format {

// Names of fields of which the text alone does not tell everything.
struct JsonMarks {
  std::vector<std::string_view> cut, escaped;
  void clear() { cut.clear(), escaped.clear(); }
};

// "name":value,"other":[1,2] for all fields that have a value. The marks refer to the event's names.
void add_json_fields(const KnownEvent& event, Values& values, const trace::EventRecord& record, Symbols* symbols,
                     JsonMarks& marks, Buffer& out);

}  // namespace uprobe::format
