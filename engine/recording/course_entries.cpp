// SPDX-License-Identifier: MIT
#include "engine/recording/course_entries.h"

#include <algorithm>

#include "engine/recording/words.h"

namespace uprobe::recording {

namespace {

using format::LossSoFar;
using format::ProcessEvent;

constexpr std::size_t kMostPath = 4096;       // PATH_MAX
constexpr std::size_t kMostEventName = 1024;  // of "GROUP/EVENT", more than a definition can have
constexpr std::uint32_t kMostCode = 255;      // of an exit, or a signal

constexpr std::size_t kMostBuildId = 64;      // digits
constexpr std::size_t kMappingsBytes = 8192;  // an entry ends once it has this size

void add_mapping(const format::MappedFile& file, Writer& writer) {
  writer.number(MappingHead{.begin = file.begin, .end = file.end, .offset = file.offset})
      .text(std::string_view(file.path).substr(0, kMostPath))
      .text(std::string_view(file.build_id).substr(0, kMostBuildId));
}

std::uint32_t word_of(const std::optional<int>& number) {
  return number ? static_cast<std::uint32_t>(*number) : kUnknown;
}

std::optional<int> number_of(std::uint32_t word) {
  return word == kUnknown ? std::nullopt : std::optional(static_cast<int>(word));
}

bool is_good(const ProcessEntry& entry) {
  const auto is_code = [](std::uint32_t word) { return word == kUnknown || word <= kMostCode; };
  return entry.kind >= 1 && entry.kind <= static_cast<std::uint32_t>(ProcessEvent::Kind::end) && entry.zero == 0 &&
         is_code(entry.exit) && is_code(entry.signal);
}

std::optional<CourseEvent> process_of(Parser& parser) {
  const auto entry = parser.number<ProcessEntry>();
  const std::string_view comm = parser.text(), exe = parser.text();
  if (!parser.is_at_end() || !is_good(entry) || comm.size() > kCommBytes || exe.size() > kMostPath) return std::nullopt;
  return ProcessEvent{.kind = static_cast<ProcessEvent::Kind>(entry.kind),
                      .pid = entry.pid,
                      .ns = entry.ns,
                      .parent = entry.parent,
                      .comm = std::string(comm),
                      .exe = std::string(exe),
                      .exit = number_of(entry.exit),
                      .signal = number_of(entry.signal)};
}

std::optional<CourseEvent> loss_of(Parser& parser) {
  const auto entry = parser.number<LossEntry>();
  const std::string_view name = parser.text();
  if (!parser.is_at_end() || name.size() > kMostEventName) return std::nullopt;
  return LossSoFar{.ns = entry.ns, .name = std::string(name), .hits = entry.hits, .returns = entry.returns};
}

}  // namespace

CourseItem course_item(const ProcessEvent& event) {
  Writer writer;
  writer
      .number(ProcessEntry{.ns = event.ns,
                           .kind = static_cast<std::uint32_t>(event.kind),
                           .pid = event.pid,
                           .parent = event.parent,
                           .exit = word_of(event.exit),
                           .signal = word_of(event.signal),
                           .zero = 0})
      .text(std::string_view(event.comm).substr(0, kCommBytes))
      .text(std::string_view(event.exe).substr(0, kMostPath));
  return {event.ns, EntryKind::process, std::string(writer.bytes())};
}

CourseItem course_item(const LossSoFar& loss) {
  Writer writer;
  writer.number(LossEntry{.ns = loss.ns, .hits = loss.hits, .returns = loss.returns})
      .text(std::string_view(loss.name).substr(0, kMostEventName));
  return {loss.ns, EntryKind::loss, std::string(writer.bytes())};
}

void add_course_items(const format::ProcessMappings& mappings, std::vector<CourseItem>& items) {
  std::size_t next = 0;
  do {
    Writer writer;
    const std::uint32_t flags = next == 0 && mappings.is_all ? kAllMappings : 0;
    writer.number(MappingsEntry{.ns = mappings.ns, .pid = mappings.pid, .flags = flags});
    while (next < mappings.files.size() && writer.bytes().size() < kMappingsBytes)
      add_mapping(mappings.files[next++], writer);
    items.push_back({mappings.ns, EntryKind::mappings, std::string(writer.bytes())});
  } while (next < mappings.files.size());
}

bool are_mappings(std::string_view bytes) {
  Parser parser(bytes);
  const auto entry = parser.number<MappingsEntry>();
  if (!parser.is_good() || (entry.flags & ~kAllMappings) != 0) return false;
  while (parser.is_good() && !parser.is_at_end()) {
    const auto head = parser.number<MappingHead>();
    const std::string_view path = parser.text(), build_id = parser.text();
    if (head.begin >= head.end || path.size() > kMostPath || build_id.size() > kMostBuildId) return false;
  }
  return parser.is_good();
}

std::uint64_t time_of(const CourseEvent& event) {
  return std::visit([](const auto& one) { return one.ns; }, event);
}

std::optional<CourseEvent> course_event(EntryKind kind, std::string_view bytes) {
  Parser parser(bytes);
  return kind == EntryKind::process ? process_of(parser) : loss_of(parser);
}

}  // namespace uprobe::recording
