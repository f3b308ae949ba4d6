// SPDX-License-Identifier: MIT
// The entries of the course of a session (engine/output/course.h): how a recording has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/output/course.h"
#include "engine/output/mappings.h"
#include "engine/recording/file_format.h"

namespace uprobe::recording {

struct CourseItem {
  std::uint64_t ns;
  EntryKind kind;
  std::string bytes;
};
CourseItem course_item(const format::ProcessEvent& event);
CourseItem course_item(const format::LossSoFar& loss);

// As many entries as are needed; each is small.
void add_course_items(const format::ProcessMappings& mappings, std::vector<CourseItem>& items);
// Whether the bytes are such an entry.
bool are_mappings(std::string_view bytes);

using CourseEvent = std::variant<format::ProcessEvent, format::LossSoFar>;
inline bool is_of_course(EntryKind kind) { return kind == EntryKind::process || kind == EntryKind::loss; }
std::uint64_t time_of(const CourseEvent& event);
// Nothing: the bytes are not such an entry.
std::optional<CourseEvent> course_event(EntryKind kind, std::string_view bytes);

}  // namespace uprobe::recording
