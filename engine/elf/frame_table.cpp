// SPDX-License-Identifier: MIT
#include "engine/elf/frame_table.h"

#include <unordered_map>

#include "arch/abi/elf.h"

namespace uprobe::elf {
namespace {

constexpr std::uint8_t kBaseMask = 0x70;
constexpr std::uint8_t kIndirect = 0x80;
constexpr std::uint8_t kPcRelative = 0x10;
constexpr std::uint64_t kMaxAugmentation = 16;
constexpr std::uint32_t kExtendedLength = 0xffffffff;
constexpr std::uint32_t kDebugForm = 0xffffffff;  // the id of a CIE in .debug_frame; in .eh_frame it is 0

}  // namespace

std::uint64_t take_format(Cursor& cursor, std::uint8_t format) {
  const auto widen = [](auto value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)); };
  switch (format) {
    case 0x00:
    case 0x04:
    case 0x0c:
      return cursor.take<std::uint64_t>();
    case 0x01:
      return cursor.uleb();
    case 0x02:
      return cursor.take<std::uint16_t>();
    case 0x03:
      return cursor.take<std::uint32_t>();
    case 0x09:
      return widen(cursor.sleb());
    case 0x0a:
      return widen(cursor.take<std::int16_t>());
    case 0x0b:
      return widen(cursor.take<std::int32_t>());
    default:
      cursor.skip(UINT64_MAX);
      return 0;
  }
}

std::optional<std::uint64_t> take_address(Cursor& cursor, std::uint8_t encoding, std::uint64_t field_address) {
  if (encoding == kOmitted || (encoding & kIndirect) != 0) return std::nullopt;
  const std::uint64_t value = take_format(cursor, encoding & kFormatMask);
  if (!cursor.good()) return std::nullopt;
  if ((encoding & kBaseMask) == kAbsolute) return value;
  if ((encoding & kBaseMask) == kPcRelative) return value + field_address;
  return std::nullopt;
}

namespace {

// From a CIE's augmentation data. An unknown letter hides the data after it.
std::optional<FrameForm> take_letters(Cursor& cursor, std::string_view letters) {
  FrameForm form{.has_augmentation = true};
  for (const char letter : letters) {
    if (letter == 'S') {
      form.is_signal = true;
    } else if (letter == 'R') {
      form.pointer = cursor.take<std::uint8_t>();
    } else if (letter == 'P') {
      const auto encoding = cursor.take<std::uint8_t>();
      if (encoding != kOmitted) take_format(cursor, encoding & kFormatMask);
    } else if (letter == 'L') {
      form.handlers = cursor.take<std::uint8_t>();
    } else if (letter != 'B') {
      return std::nullopt;
    }
    if (!cursor.good()) return std::nullopt;
  }
  return form;
}

// Nothing if it is not a CIE or cannot be understood. `at` is the place of its id.
std::optional<FrameForm> parse_form(BytesView record, std::uint64_t at, bool is_debug) {
  Cursor cursor(record, at);
  if (cursor.take<std::uint32_t>() != (is_debug ? kDebugForm : 0)) return std::nullopt;
  const auto version = cursor.take<std::uint8_t>();
  if (version != 1 && version != 3 && !(is_debug && version == 4)) return std::nullopt;
  const std::string_view augmentation = cursor.text(kMaxAugmentation);
  constexpr std::uint16_t kFlat64 = 8;  // size of an address, then that of a segment
  if (version == 4 && cursor.take<std::uint16_t>() != kFlat64) return std::nullopt;
  const std::uint64_t code_alignment = cursor.uleb();
  const std::int64_t data_alignment = cursor.sleb();
  const std::uint64_t return_column = version == 1 ? cursor.take<std::uint8_t>() : cursor.uleb();
  if (!cursor.good()) return std::nullopt;
  if (!augmentation.empty() && augmentation.front() != 'z') return std::nullopt;
  const std::uint64_t more = augmentation.empty() ? 0 : cursor.uleb();
  const std::uint64_t rules = cursor.at() + more;
  auto form = augmentation.empty() ? FrameForm{} : take_letters(cursor, augmentation.substr(1));
  if (!form) return form;
  form->code_alignment = code_alignment, form->data_alignment = data_alignment, form->return_column = return_column;
  form->rules = record.from(rules);
  return form;
}

class Walk {
 public:
  using Visit = std::function<void(const FrameForm&, const FrameEntry&)>;
  Walk(const FrameTable& table, const Visit& visit) : table_(table), visit_(visit) {}

  void run() {
    for (std::uint64_t at = 0; table_.bytes.holds(at, 4);) {
      Cursor cursor(table_.bytes, at);
      std::uint64_t length = cursor.take<std::uint32_t>();
      if (length == kExtendedLength) length = cursor.take<std::uint64_t>();
      if (!cursor.good() || !table_.bytes.holds(cursor.at(), length)) break;
      if (length == 0 && table_.ends_at_terminator) break;
      read_record(cursor.at(), cursor.at() + length);
      at = cursor.at() + length;
    }
  }

 private:
  // The place of the form for the record at `at`, by the word there; nothing: the record is a form.
  std::optional<std::uint64_t> form_place(std::uint64_t at, std::uint32_t word) const {
    if (table_.is_debug) return word == kDebugForm ? std::nullopt : std::optional<std::uint64_t>(word);
    return word == 0 || word > at ? std::nullopt : std::optional(at - word);
  }

  void read_record(std::uint64_t at, std::uint64_t end) {
    const BytesView record = table_.bytes.slice(0, end);
    Cursor cursor(record, at);
    const auto word = cursor.take<std::uint32_t>();
    const auto place = cursor.good() ? form_place(at, word) : std::nullopt;
    if (!place) return;
    const auto& form = form_at(*place);
    if (!form) return;
    const auto begin = take_address(cursor, form->pointer, table_.address + cursor.at());
    if (!begin) return;
    const std::uint64_t size = take_format(cursor, form->pointer & kFormatMask);
    if (!cursor.good()) return;
    const Cursor after = cursor;
    cursor.skip(form->has_augmentation ? cursor.uleb() : 0);
    const auto rules = cursor.good() ? std::optional(record.from(cursor.at())) : std::nullopt;
    visit_(*form, {.begin = *begin, .size = size, .rules = rules, .augmentation = after});
  }

  // `place` is where its length is.
  const std::optional<FrameForm>& form_at(std::uint64_t place) {
    const auto [known, is_new] = forms_.try_emplace(place);
    if (!is_new) return known->second;
    Cursor cursor(table_.bytes, place);
    std::uint64_t length = cursor.take<std::uint32_t>();
    if (length == kExtendedLength) length = cursor.take<std::uint64_t>();
    if (cursor.good() && table_.bytes.holds(cursor.at(), length))
      known->second = parse_form(table_.bytes.slice(0, cursor.at() + length), cursor.at(), table_.is_debug);
    return known->second;
  }

  const FrameTable& table_;
  const Visit& visit_;
  std::unordered_map<std::uint64_t, std::optional<FrameForm>> forms_;
};

}  // namespace

// Static programs may lack the header, files without section headers have nothing else.
std::optional<FrameTable> find_frame_table(const Image& image) {
  for (const std::uint32_t type : {std::uint32_t{SHT_PROGBITS}, arch::kUnwindSection}) {
    const Section* section = image.find_section(type, ".eh_frame");
    if (section == nullptr) continue;
    const BytesView bytes = image.bytes().slice(section->header.sh_offset, section->header.sh_size);
    if (!bytes.empty()) return FrameTable{bytes, section->header.sh_addr};
  }
  const auto header_address = image.eh_frame_header();
  if (!header_address) return std::nullopt;
  // version, encoding of the pointer, encoding of the count, encoding of the search table, pointer to .eh_frame
  Cursor header(image.bytes_at(*header_address));
  if (header.take<std::uint8_t>() != 1) return std::nullopt;
  const auto encoding = header.take<std::uint8_t>();
  header.skip(2);
  const auto address = take_address(header, encoding, *header_address + header.at());
  if (!address) return std::nullopt;
  return FrameTable{image.bytes_at(*address), *address, true};
}

// Compressed sections are ignored.
std::optional<FrameTable> find_debug_frame_table(const Image& image) {
  const Section* section = image.find_section(SHT_PROGBITS, ".debug_frame");
  if (section == nullptr || (section->header.sh_flags & SHF_COMPRESSED) != 0) return std::nullopt;
  const BytesView bytes = image.bytes().slice(section->header.sh_offset, section->header.sh_size);
  if (bytes.empty()) return std::nullopt;
  return FrameTable{.bytes = bytes, .is_debug = true};
}

void each_frame(const FrameTable& table, const std::function<void(const FrameForm&, const FrameEntry&)>& visit) {
  Walk(table, visit).run();
}

}  // namespace uprobe::elf
