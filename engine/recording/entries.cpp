// SPDX-License-Identifier: MIT
#include "engine/recording/entries.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/recording/file_format.h"
#include "engine/recording/words.h"
#include "engine/shared/session_area.h"

namespace uprobe::recording {

namespace {

using program::Kind;

// More than a definition can have.
constexpr std::uint32_t kMostFields = 256, kMostText = 65536, kMostFrames = 128;

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
  field.is_text = parser.number<std::uint32_t>() != 0, field.of_entry = parser.number<std::uint32_t>() != 0;
  if (!parser.is_good() || kind > static_cast<std::uint32_t>(Kind::floating) || size > 8) return std::nullopt;
  field.kind = static_cast<Kind>(kind), field.size = static_cast<std::uint8_t>(size);
  if (!has_good_size(field) || field.count > program::kMaxElements || (field.is_text && field.size != 1))
    return std::nullopt;
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
  const bool has_caller = layout.style != program::Style::function || !layout.fields.empty();
  return parser.is_at_end() && has_caller && std::max(layout.place.size(), layout.function.size()) <= kMostText
             ? std::optional(std::move(layout))
             : std::nullopt;
}

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Hands the entries of blocks on to a listener.
class Dispatcher {
 public:
  explicit Dispatcher(Listener& listener) : listener_(listener) {}

  // False: the entry is none that a recorder writes.
  bool take(EntryKind kind, std::string_view bytes) {
    if (has_ended_ || (kind == EntryKind::settings) == has_begun_) return false;
    switch (kind) {
      case EntryKind::settings:
        return take_settings(bytes);
      case EntryKind::event:
        return take_event(bytes);
      case EntryKind::hit:
        return take_hit(bytes);
      case EntryKind::symbols:
        return symbols_.take_names(bytes);
      case EntryKind::frames:
        return symbols_.take_frames(bytes);
      case EntryKind::totals:
        return take_totals(bytes);
      case EntryKind::clocks:
        return take_clocks(bytes);
    }
    return false;
  }
  bool take_block(std::string_view block) {
    while (!block.empty() && !is_satisfied_) {
      Parser parser(block);
      const auto head = parser.number<EntryHead>();
      const std::string_view bytes = parser.take(head.bytes);
      if (!parser.is_good() || !take(head.kind, bytes)) return false;
      block.remove_prefix(sizeof head + bytes.size());
    }
    symbols_.clear();  // the bytes go
    return true;
  }
  bool is_satisfied() const { return is_satisfied_; }
  bool has_ended() const { return has_ended_; }

 private:
  bool take_settings(std::string_view bytes) {
    Parser parser(bytes);
    Settings settings{.flags = parser.number<std::uint32_t>(), .string_limit = parser.number<std::uint32_t>()};
    settings.string_limit = std::min(settings.string_limit, shared::kMostString);
    has_begun_ = true;
    if (parser.is_at_end()) listener_.begin(settings, symbols_);
    return parser.is_at_end();
  }
  bool take_event(std::string_view bytes) {
    described_ += bytes.size();
    if (bytes.size() > kMostEventBytes || described_ > kMostDescribedBytes) return false;
    auto layout = layout_of(bytes);
    if (!layout || events_ == shared::kMaxEvents) return false;
    ++events_;
    listener_.event(std::move(*layout));
    return true;
  }
  bool take_hit(std::string_view bytes) {
    Parser parser(bytes);
    const auto hit = parser.number<HitHead>();
    const std::string_view payload = parser.take(hit.payload_bytes), stack = parser.take(hit.stack_bytes);
    if (!parser.is_at_end() || hit.type >= events_ || hit.comm_bytes > kCommBytes) return false;
    if (payload.size() > shared::kMostPayload || stack.size() > shared::kMaxStack) return false;
    is_satisfied_ = !listener_.hit({.ns = hit.ns,
                                    .tid = hit.tid,
                                    .pid = hit.pid,
                                    .cpu = hit.cpu,
                                    .type = hit.type,
                                    .flags = hit.flags,
                                    .payload = as_bytes(payload),
                                    .stack = as_bytes(stack)},
                                   {hit.comm.data(), hit.comm_bytes});
    symbols_.clear();
    return true;
  }
  bool take_clocks(std::string_view bytes) {
    Parser parser(bytes);
    const auto entry = parser.number<ClocksEntry>();
    if (parser.is_at_end()) listener_.clocks({entry.ns});
    return parser.is_at_end();
  }
  bool take_totals(std::string_view bytes) {
    Parser parser(bytes);
    std::vector<format::Total> totals;
    while (parser.is_good() && !parser.is_at_end()) {
      format::Total total{.name = std::string(parser.text())};
      total.lost = parser.number<std::uint64_t>(), total.missed = parser.number<std::uint64_t>();
      if (parser.is_good()) totals.push_back(std::move(total));
    }
    has_ended_ = parser.is_good();
    if (has_ended_) listener_.end(totals);
    return has_ended_;
  }

  Listener& listener_;
  SavedSymbols symbols_;
  std::uint32_t events_ = 0;
  std::uint64_t described_ = 0;  // bytes of their descriptions
  bool has_begun_ = false, has_ended_ = false, is_satisfied_ = false;
};

Error broken(const std::string& path, const std::string& text) {
  return Error{.code = Code::refused, .text = text, .where = path};
}

}  // namespace

bool SavedSymbols::take_names(std::string_view bytes) {
  Parser parser(bytes);
  names_.clear();
  while (parser.is_good() && !parser.is_at_end()) {
    Name name{.address = parser.number<std::uint64_t>(), .named = {}};
    name.named.distance = parser.number<std::uint64_t>(), name.named.size = parser.number<std::uint64_t>();
    name.named.name = parser.text();
    if (names_.size() == std::size_t{kMostFields} * program::kMaxElements) return false;
    names_.push_back(name);
  }
  return parser.is_good();
}

bool SavedSymbols::take_frames(std::string_view bytes) {
  Parser parser(bytes);
  frames_.clear(), places_.clear();
  while (parser.is_good() && !parser.is_at_end()) {
    format::StackFrame frame{.address = parser.number<std::uint64_t>()};
    frame.is_return = parser.number<std::uint32_t>() != 0;
    format::CodePlace place;
    place.distance = parser.number<std::uint64_t>(), place.size = parser.number<std::uint64_t>();
    place.offset = parser.number<std::uint64_t>();
    place.name = parser.text(), place.path = parser.text(), place.build_id = parser.text();
    if (frames_.size() == kMostFrames) return false;
    frames_.push_back(frame), places_.push_back(std::move(place));
  }
  return parser.is_good();
}

void SavedSymbols::clear() { names_.clear(), frames_.clear(), places_.clear(); }

format::NamedAddress SavedSymbols::name_of(const trace::EventRecord&, std::uint64_t address) {
  for (const Name& name : names_)
    if (name.address == address) return name.named;
  return {};
}

format::CodePlace SavedSymbols::place_of(const trace::EventRecord*, std::uint64_t address) {
  for (std::size_t i = 0; i < frames_.size(); ++i)
    if (frames_[i].address - (frames_[i].is_return ? 1 : 0) == address) return places_[i];
  return {};
}

Status read_recording(const Recording& recording, Listener& listener) {
  const std::string& path = recording.path;
  Blocks blocks(recording);
  Dispatcher dispatcher(listener);
  for (;;) {
    const auto block = blocks.next();
    if (!block) return block.error();
    if (!block->has_value()) break;
    if (!dispatcher.take_block(**block))
      return broken(path, "the recording is damaged: what is before the damage has been printed");
    if (dispatcher.is_satisfied()) return ok();
  }
  if (dispatcher.has_ended()) return ok();
  return broken(path,
                "the recording has no end: its tool was killed or its file was full; what is there has been printed");
}

}  // namespace uprobe::recording
