// Walks .eh_frame:
//
//   CIE  length, 0, version, augmentation, alignments, return column, augmentation data (pointer encodings)
//   FDE  length, distance back to its CIE, first address and size of the code (encoded as the CIE says), ...
#include "engine/elf/eh_frame.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace uprobe::elf {
namespace {

// Pointer encodings (DW_EH_PE_*): the low half is the format, the high half what the value is relative to.
constexpr std::uint8_t kFormatMask = 0x0f;
constexpr std::uint8_t kBaseMask = 0x70;
constexpr std::uint8_t kIndirect = 0x80;
constexpr std::uint8_t kOmitted = 0xff;
constexpr std::uint8_t kAbsolute = 0x00;
constexpr std::uint8_t kPcRelative = 0x10;
constexpr std::uint64_t kMaxAugmentation = 16;
constexpr std::uint32_t kExtendedLength = 0xffffffff;

// The table's bytes and where they are loaded.
struct Table {
  BytesView bytes;
  std::uint64_t address = 0;
  bool ends_at_terminator = false;  // its size is not known otherwise
};

// A value without what it is relative to; an unknown format leaves the cursor in a failed state.
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

// An address that is in the file as it will be in memory: indirect and text- or function-relative ones are not.
std::optional<std::uint64_t> take_address(Cursor& cursor, std::uint8_t encoding, std::uint64_t field_address) {
  if (encoding == kOmitted || (encoding & kIndirect) != 0) return std::nullopt;
  const std::uint64_t value = take_format(cursor, encoding & kFormatMask);
  if (!cursor.good()) return std::nullopt;
  if ((encoding & kBaseMask) == kAbsolute) return value;
  if ((encoding & kBaseMask) == kPcRelative) return value + field_address;
  return std::nullopt;
}

// How the FDEs of a CIE are written.
struct Encodings {
  std::int64_t data_alignment = 0;
  BytesView rules;  // that its FDEs begin with
  std::uint8_t pointer = kAbsolute;
  std::uint8_t handlers = kOmitted;
  bool has_augmentation = false;
  bool is_signal = false;
};

// From a CIE's augmentation data. A letter that is not known hides what comes after it.
std::optional<Encodings> take_encodings(Cursor& cursor, std::string_view letters) {
  Encodings encodings{.has_augmentation = true};
  for (const char letter : letters) {
    if (letter == 'S') {
      encodings.is_signal = true;
    } else if (letter == 'R') {
      encodings.pointer = cursor.take<std::uint8_t>();
    } else if (letter == 'P') {
      const auto encoding = cursor.take<std::uint8_t>();
      if (encoding != kOmitted) take_format(cursor, encoding & kFormatMask);
    } else if (letter == 'L') {
      encodings.handlers = cursor.take<std::uint8_t>();
    } else if (letter != 'B') {
      return std::nullopt;
    }
    if (!cursor.good()) return std::nullopt;
  }
  return encodings;
}

// Nothing if the CIE is not one or cannot be understood. `at` is the place of its id.
std::optional<Encodings> parse_cie(BytesView record, std::uint64_t at) {
  Cursor cursor(record, at);
  if (cursor.take<std::uint32_t>() != 0) return std::nullopt;
  const auto version = cursor.take<std::uint8_t>();
  if (version != 1 && version != 3) return std::nullopt;
  const std::string_view augmentation = cursor.text(kMaxAugmentation);
  cursor.uleb();  // code alignment
  const std::int64_t data_alignment = cursor.sleb();
  if (version == 1)
    cursor.skip(1);
  else
    cursor.uleb();
  if (!cursor.good()) return std::nullopt;
  if (!augmentation.empty() && augmentation.front() != 'z') return std::nullopt;
  const std::uint64_t more = augmentation.empty() ? 0 : cursor.uleb();
  const std::uint64_t rules = cursor.at() + more;
  auto encodings = augmentation.empty() ? Encodings{} : take_encodings(cursor, augmentation.substr(1));
  if (encodings) encodings->data_alignment = data_alignment, encodings->rules = record.from(rules);
  return encodings;
}

// What the rules of a frame (DWARF 5, section 6.4.2) say of its first instruction.
class FirstRow {
 public:
  explicit FirstRow(std::int64_t data_alignment) : data_alignment_(data_alignment) {}

  // False: behind the row, or at a rule that is not understood.
  bool run(BytesView rules) {
    Cursor cursor(rules);
    while (cursor.at() < rules.size())
      if (!step(cursor)) return false;
    return cursor.good();
  }
  bool is_at_call() const {
    constexpr std::uint64_t kRsp = 7;
    return is_known_ && register_ == kRsp && offset_ == 8 && return_address_ == -8 && !saved_;
  }

 private:
  enum : std::uint8_t { kAdvance = 0x40, kOffset = 0x80, kRestore = 0xc0, kOperand = 0x3f };
  static constexpr std::uint64_t kReturnAddress = 16;

  bool step(Cursor& cursor) {
    const auto code = cursor.take<std::uint8_t>();
    const auto high = static_cast<std::uint8_t>(code & kRestore);
    if (high == kOffset) return save(code & kOperand, cursor);
    if (high == kAdvance || (code >= 0x01 && code <= 0x04)) return false;  // DW_CFA_advance_loc..., set_loc
    switch (code) {
      case 0x00:  // nop
      case 0x0a:  // remember_state
        return true;
      case 0x08:  // same_value
      case 0x2e:  // GNU_args_size
        cursor.uleb();
        return true;
      case 0x0c:  // def_cfa
        register_ = cursor.uleb();
        offset_ = cursor.uleb();
        return true;
      case 0x0d:  // def_cfa_register
        register_ = cursor.uleb();
        return true;
      case 0x0e:  // def_cfa_offset
        offset_ = cursor.uleb();
        return true;
      default:
        return is_known_ = false;
    }
  }
  bool save(std::uint64_t reg, Cursor& cursor) {
    const std::int64_t at = static_cast<std::int64_t>(cursor.uleb()) * data_alignment_;
    if (reg == kReturnAddress)
      return_address_ = at;
    else
      saved_ = true;
    return true;
  }

  std::int64_t data_alignment_;
  std::uint64_t register_ = 0, offset_ = 0;
  std::int64_t return_address_ = 0;
  bool saved_ = false, is_known_ = true;
};

bool begins_at_call(const Encodings& cie, BytesView rules) {
  FirstRow row(cie.data_alignment);
  if (!row.run(cie.rules)) return false;
  row.run(rules);
  return row.is_at_call();
}

class Walk {
 public:
  Walk(const Image& image, const Table& table) : image_(image), table_(table) {}

  // The frames of functions, or those of signal handlers' callers.
  std::vector<Frame> run(bool signals) {
    for (std::uint64_t at = 0; table_.bytes.holds(at, 4);) {
      Cursor cursor(table_.bytes, at);
      std::uint64_t length = cursor.take<std::uint32_t>();
      if (length == kExtendedLength) length = cursor.take<std::uint64_t>();
      if (!cursor.good() || !table_.bytes.holds(cursor.at(), length)) break;
      if (length == 0 && table_.ends_at_terminator) break;
      read_record(cursor.at(), cursor.at() + length);
      at = cursor.at() + length;
    }
    return std::move(signals ? signal_frames_ : frames_);
  }

 private:
  void read_record(std::uint64_t at, std::uint64_t end) {
    const BytesView record = table_.bytes.slice(0, end);
    Cursor cursor(record, at);
    const std::uint64_t distance = cursor.take<std::uint32_t>();
    if (!cursor.good() || distance == 0 || distance > at) return;
    const auto encodings = encodings_of(at - distance);
    if (!encodings) return;
    const auto begin = take_address(cursor, encodings->pointer, table_.address + cursor.at());
    if (!begin) return;
    const std::uint64_t size = take_format(cursor, encodings->pointer & kFormatMask);
    if (!cursor.good()) return;
    Frame frame;
    frame.is_signal = encodings->is_signal;
    if (const auto rules = rules_behind(cursor, *encodings); rules <= end)
      frame.begins_at_call = begins_at_call(*encodings, record.from(rules));
    if (encodings->has_augmentation && encodings->handlers != kOmitted) read_handlers(cursor, *encodings, frame);
    add(*begin, size, frame);
  }

  static std::uint64_t rules_behind(Cursor cursor, const Encodings& encodings) {
    const std::uint64_t more = encodings.has_augmentation ? cursor.uleb() : 0;
    return cursor.at() + more;
  }

  // The augmentation data: its length, then the address of the language's table. A zero means that there is none,
  // whatever it is relative to.
  void read_handlers(Cursor cursor, const Encodings& encodings, Frame& frame) {
    cursor.uleb();
    Cursor raw = cursor;
    const bool is_none = take_format(raw, encodings.handlers & kFormatMask) == 0 && raw.good();
    if (is_none) return;
    const auto handlers = take_address(cursor, encodings.handlers, table_.address + cursor.at());
    frame.handlers = handlers.value_or(0);
    frame.handlers_known = handlers.has_value();
  }

  // `cie` is where the CIE's length is.
  std::optional<Encodings> encodings_of(std::uint64_t cie) {
    const auto [known, is_new] = encodings_.try_emplace(cie);
    if (!is_new) return known->second;
    Cursor cursor(table_.bytes, cie);
    std::uint64_t length = cursor.take<std::uint32_t>();
    if (length == kExtendedLength) length = cursor.take<std::uint64_t>();
    if (!cursor.good() || !table_.bytes.holds(cursor.at(), length)) return std::nullopt;
    known->second = parse_cie(table_.bytes.slice(0, cursor.at() + length), cursor.at());
    return known->second;
  }

  // The linker leaves the FDEs of discarded functions in place, at address 0.
  void add(std::uint64_t begin, std::uint64_t size, Frame frame) {
    const Segment* segment = image_.executable_at(begin);
    if (segment == nullptr || size == 0) return;
    const std::uint64_t room = segment->address + segment->file_bytes - begin;
    frame.code = Range{begin, begin + std::min(size, room)};
    (frame.is_signal ? signal_frames_ : frames_).push_back(frame);
  }

  const Image& image_;
  Table table_;
  std::unordered_map<std::uint64_t, std::optional<Encodings>> encodings_;
  std::vector<Frame> frames_, signal_frames_;
};

// Static programs may lack the header, files without section headers have nothing else.
std::optional<Table> find_table(const Image& image) {
  for (const std::uint32_t type : {std::uint32_t{SHT_PROGBITS}, std::uint32_t{SHT_X86_64_UNWIND}}) {
    const Section* section = image.find_section(type, ".eh_frame");
    if (section == nullptr) continue;
    const BytesView bytes = image.bytes().slice(section->header.sh_offset, section->header.sh_size);
    if (!bytes.empty()) return Table{bytes, section->header.sh_addr};
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
  return Table{image.bytes_at(*address), *address, true};
}

}  // namespace

std::vector<Frame> frames_of(const Image& image) {
  const std::optional<Table> table = find_table(image);
  if (!table) return {};
  return Walk(image, *table).run(false);
}

std::vector<Range> signal_frame_ranges(const Image& image) {
  const std::optional<Table> table = find_table(image);
  std::vector<Range> ranges;
  if (!table) return ranges;
  for (const Frame& frame : Walk(image, *table).run(true)) ranges.push_back(frame.code);
  return ranges;
}

std::vector<Range> frame_ranges(const Image& image) {
  std::vector<Range> ranges;
  for (const Frame& frame : frames_of(image)) ranges.push_back(frame.code);
  return ranges;
}

// The table (Itanium C++ ABI's exception handling, as gcc and clang write it for every language): the landing pads' base,
// the types, then the call sites: begin, length, landing pad (0: none), action.
std::optional<std::vector<std::uint64_t>> landing_pads(const Image& image, const Frame& frame, std::size_t most) {
  std::vector<std::uint64_t> pads;
  if (!frame.handlers_known) return std::nullopt;
  if (frame.handlers == 0) return pads;
  Cursor cursor(image.bytes_at(frame.handlers));
  std::uint64_t base = frame.code.begin;
  if (const auto encoding = cursor.take<std::uint8_t>(); encoding != kOmitted) {
    const auto given = take_address(cursor, encoding, frame.handlers + cursor.at());
    if (!given) return std::nullopt;
    base = *given;
  }
  if (cursor.take<std::uint8_t>() != kOmitted) cursor.uleb();  // the types, and where their table ends
  const auto format = static_cast<std::uint8_t>(cursor.take<std::uint8_t>() & kFormatMask);
  const std::uint64_t length = cursor.uleb();
  const std::uint64_t begin = cursor.at();
  for (std::size_t entries = 0; cursor.good() && cursor.at() - begin < length; ++entries) {
    if (entries == most) return std::nullopt;
    take_format(cursor, format);
    take_format(cursor, format);
    const std::uint64_t pad = take_format(cursor, format);
    cursor.uleb();
    if (pad != 0) pads.push_back(base + pad);
  }
  if (!cursor.good()) return std::nullopt;
  return pads;
}

}  // namespace uprobe::elf
