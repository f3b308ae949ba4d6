// SPDX-License-Identifier: MIT
// Converts the engine's values to those of the installed interface.
#pragma once

#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/ipc/event_info.h"
#include "engine/program/layout.h"
#include "engine/trace/event_record.h"
#include "engine/types.h"
#include "library/uprobe/session.h"

namespace libuprobe {

Event event_of(const uprobe::trace::EventRecord& record, const uprobe::program::EventLayout& layout,
               std::string_view task);
Error error_of(const uprobe::Error& error);
std::vector<EventInfo> infos_of(std::vector<uprobe::EventInfo> events);
Counts counts_of(const uprobe::ProbeSummary& probe);

// Both interfaces have the same errors; the value of the engine's result is dropped.
template <class T>
Status status_of(const uprobe::Result<T>& result) {
  if (!result) return error_of(result.error());
  return Nothing{};
}

}  // namespace libuprobe
