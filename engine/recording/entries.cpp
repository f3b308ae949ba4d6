// SPDX-License-Identifier: MIT
#include "engine/recording/entries.h"

#include <algorithm>
#include <optional>

#include "engine/recording/file_format.h"
#include "engine/recording/lane.h"
#include "engine/recording/words.h"
#include "engine/shared/session_area.h"

namespace uprobe::recording {

namespace {

using program::Kind;

// More than a definition can have.
constexpr std::uint32_t kMostFields = 256, kMostText = 65536;
constexpr std::size_t kMostClocks = std::size_t{1} << 21;  // of 24 days; later ones add nothing

bool has_good_size(const program::Field& field) {
  switch (field.kind) {
    case Kind::character:
      return field.size == 1;
    case Kind::string:
      return field.size == program::kLocatorBytes;
    case Kind::floating:
      return field.size == 4 || field.size == 8;
    case Kind::symbol:
    case Kind::unsigned_decimal:
    case Kind::signed_decimal:
    case Kind::hex:
      return field.size == 1 || field.size == 2 || field.size == 4 || field.size == 8;
  }
  return false;
}

std::optional<program::Field> field_of(Parser& parser) {
  program::Field field{.name = std::string(parser.text()), .declared = std::string(parser.text())};
  const auto kind = parser.number<std::uint32_t>(), size = parser.number<std::uint32_t>();
  field.offset = parser.number<std::uint32_t>(), field.count = parser.number<std::uint32_t>();
  const auto form = parser.number<std::uint32_t>();
  field.is_text = (form & kIsText) != 0, field.is_wide = (form & kIsWide) != 0,
  field.of_entry = parser.number<std::uint32_t>() != 0;
  if (!parser.is_good() || kind > static_cast<std::uint32_t>(Kind::floating) || size > 8) return std::nullopt;
  field.kind = static_cast<Kind>(kind), field.size = static_cast<std::uint8_t>(size);
  if (!has_good_size(field) || field.count > program::kMaxElements || (field.is_text && field.size != 1))
    return std::nullopt;
  if (form > kIsWide || (field.is_wide && !spec::can_be_wide(field.kind, field.size, field.count))) return std::nullopt;
  if (field.offset > shared::kMostPayload || field.name.size() > kMostText) return std::nullopt;
  return field;
}

std::optional<program::EventLayout> layout_of(std::string_view bytes) {
  Parser parser(bytes);
  program::EventLayout layout{.group = std::string(parser.text()), .event = std::string(parser.text())};
  layout.place = parser.text(), layout.function = parser.text();
  layout.is_return = parser.number<std::uint32_t>() != 0;
  const auto style = parser.number<std::uint32_t>();
  layout.fixed_bytes = parser.number<std::uint32_t>();
  const auto fields = parser.number<std::uint32_t>();
  if (!parser.is_good() || style > static_cast<std::uint32_t>(program::Style::function) || fields > kMostFields)
    return {};
  layout.style = static_cast<program::Style>(style);
  if (layout.fixed_bytes > shared::kMostPayload || layout.group.size() + layout.event.size() > kMostText) return {};
  for (std::uint32_t i = 0; i < fields; ++i) {
    auto field = field_of(parser);
    if (!field) return {};
    layout.fields.push_back(std::move(*field));
  }
  if (parser.is_good() && !parser.is_at_end()) layout.print_format = parser.text();
  const bool has_caller = layout.style != program::Style::function || !layout.fields.empty();
  return parser.is_at_end() && has_caller &&
                 std::max({layout.place.size(), layout.function.size(), layout.print_format.size()}) <= kMostText
             ? std::optional(std::move(layout))
             : std::nullopt;
}

// What lane 0 has besides hits.
class Contents {
 public:
  // False: the entry is none that a recorder writes.
  bool take(EntryKind kind, std::string_view bytes) {
    if (has_ended_ || (kind == EntryKind::settings) == has_begun_) return false;
    switch (kind) {
      case EntryKind::settings:
        return take_settings(bytes);
      case EntryKind::event:
        return take_event(bytes);
      case EntryKind::totals:
        return take_totals(bytes);
      case EntryKind::clocks:
        return take_clocks(bytes);
      case EntryKind::hits:
      case EntryKind::symbols:
      case EntryKind::frames:
        return true;
      case EntryKind::process:
      case EntryKind::loss:
      case EntryKind::mappings:
      case EntryKind::packed:
        return false;
    }
    return false;
  }
  bool take_block(std::string_view block) {
    while (!block.empty()) {
      Parser parser(block);
      const auto head = parser.number<EntryHead>();
      const std::string_view bytes = parser.take(head.bytes);
      if (!parser.is_good() || !take(head.kind, bytes)) return false;
      block.remove_prefix(sizeof head + bytes.size());
    }
    return true;
  }

  bool has_begun() const { return has_begun_; }
  bool has_ended() const { return has_ended_; }
  const Settings& settings() const { return settings_; }
  const std::vector<program::EventLayout>& events() const { return events_; }
  const std::vector<trace::ClockReading>& clocks() const { return clocks_; }
  const std::vector<format::Total>& totals() const { return totals_; }

 private:
  bool take_settings(std::string_view bytes) {
    Parser parser(bytes);
    settings_ = {.flags = parser.number<std::uint32_t>(), .string_limit = parser.number<std::uint32_t>()};
    settings_.string_limit = std::min(settings_.string_limit, shared::kMostString);
    has_begun_ = parser.is_at_end();
    return has_begun_;
  }
  bool take_event(std::string_view bytes) {
    described_ += bytes.size();
    if (bytes.size() > kMostEventBytes || described_ > kMostDescribedBytes) return false;
    auto layout = layout_of(bytes);
    if (!layout || events_.size() == shared::kMaxEvents) return false;
    events_.push_back(std::move(*layout));
    return true;
  }
  bool take_clocks(std::string_view bytes) {
    Parser parser(bytes);
    const auto entry = parser.number<ClocksEntry>();
    if (parser.is_at_end() && clocks_.size() < kMostClocks) clocks_.push_back({entry.ns});
    return parser.is_at_end();
  }
  bool take_totals(std::string_view bytes) {
    Parser parser(bytes);
    while (parser.is_good() && !parser.is_at_end()) {
      format::Total total{.name = std::string(parser.text())};
      total.lost = parser.number<std::uint64_t>(), total.missed = parser.number<std::uint64_t>();
      if (parser.is_good()) totals_.push_back(std::move(total));
    }
    has_ended_ = parser.is_good();
    return has_ended_;
  }

  Settings settings_;
  std::vector<program::EventLayout> events_;
  std::uint64_t described_ = 0;  // bytes of their descriptions
  std::vector<trace::ClockReading> clocks_;
  std::vector<format::Total> totals_;
  bool has_begun_ = false, has_ended_ = false;
};

// The blocks from the first one on that cannot be read do not count.
Contents contents_of(Blocks& blocks) {
  Contents contents;
  std::string entries;
  const auto lane = blocks.lanes().find(0);
  if (lane == blocks.lanes().end()) return contents;
  for (const BlockPlace& place : lane->second) {
    if (blocks.read(0, place, entries) && contents.take_block(entries)) continue;
    blocks.end_at(place.at);
    break;
  }
  return contents;
}

// Merges the lanes.
class Merge {
 public:
  Merge(const Blocks& blocks, std::uint32_t events, SavedSymbols& symbols) {
    lanes_.reserve(blocks.lanes().size());
    for (const auto& [number, places] : blocks.lanes()) lanes_.emplace_back(blocks, number, places, events, symbols);
  }
  // True: the listener wants no more. Fails where a block is not whole, after all that is before it.
  Result<bool> run(Listener& listener) {
    for (Lane& lane : lanes_) advance(lane);
    while (!heap_.empty()) {
      std::ranges::pop_heap(heap_, is_later);
      Lane& lane = *heap_.back();
      heap_.pop_back();
      if (lane.course() != nullptr)
        listener.course(*lane.course());
      else if (!listener.hit(lane.record(), lane.comm()))
        return true;
      advance(lane);
    }
    if (damage_) return *damage_;
    return false;
  }

 private:
  static bool is_later(const Lane* a, const Lane* b) {
    if (a->time() != b->time()) return a->time() > b->time();
    const bool is_course = a->course() != nullptr, other_is = b->course() != nullptr;
    return is_course != other_is ? other_is : a->place() > b->place();
  }
  void advance(Lane& lane) {
    const auto has_next = lane.next();
    if (!has_next) return end_at(lane.place(), has_next.error());
    if (!*has_next) return;
    heap_.push_back(&lane);
    std::ranges::push_heap(heap_, is_later);
  }
  // The blocks from this place on do not count.
  void end_at(std::uint64_t place, const Error& why) {
    for (Lane& lane : lanes_) lane.end_at(place);
    damage_ = why;
  }

  std::vector<Lane> lanes_;
  std::vector<Lane*> heap_;  // that have a hit
  std::optional<Error> damage_;
};

Error endless(const std::string& path) {
  return Error{
      .code = Code::refused,
      .text = "the recording has no end: its tool was killed or its file was full; what is there has been printed",
      .where = path};
}

}  // namespace

Status read_recording(const Recording& recording, Listener& listener) {
  auto blocks = Blocks::of(recording);
  if (!blocks) return blocks.error();
  const Contents contents = contents_of(*blocks);
  if (contents.has_begun()) {
    SavedSymbols symbols;
    RETURN_IF_ERROR(listener.begin(contents.settings(), contents.events(), contents.clocks(), symbols));
    Merge merge(*blocks, static_cast<std::uint32_t>(contents.events().size()), symbols);
    const auto is_satisfied = merge.run(listener);
    if (!is_satisfied) return is_satisfied.error();
    if (*is_satisfied) return ok();
  }
  if (blocks->end()) return *blocks->end();
  if (!contents.has_ended()) return endless(recording.path);
  listener.end(contents.totals());
  return ok();
}

}  // namespace uprobe::recording
