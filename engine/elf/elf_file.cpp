// The facade: reads the file, gathers symbols and ranges on demand, answers questions about them.
#include "engine/elf/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <tuple>

#include "engine/base/fd.h"
#include "engine/elf/eh_frame.h"
#include "engine/elf/file_bytes.h"
#include "engine/elf/image.h"
#include "engine/elf/name_index.h"
#include "engine/elf/relocations.h"
#include "engine/elf/rseq_sections.h"
#include "engine/elf/symbol_tables.h"

namespace uprobe::elf {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{2} << 30;
constexpr std::size_t kMaxFunctions = std::size_t{8} << 20;

Error error_of(Code code, std::string text, const std::string& path, int err = 0) {
  return Error{.code = code, .text = std::move(text), .where = path, .err = err};
}

Error open_error(const std::string& path, int err) {
  if (err == ENOENT || err == ENOTDIR) return error_of(Code::not_found, std::strerror(err), path, err);
  return error_of(Code::system, std::string("cannot be opened: ") + std::strerror(err), path, err);
}

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "is a directory";
  if (S_ISFIFO(mode)) return "is a fifo";
  if (S_ISSOCK(mode)) return "is a socket";
  return "is a device";
}

Status check_file(const struct stat& status, const std::string& path) {
  if (!S_ISREG(status.st_mode)) return error_of(Code::refused, kind_of(status.st_mode), path, EINVAL);
  if (static_cast<std::uint64_t>(status.st_size) > kMaxFileBytes)
    return error_of(Code::limit, "is larger than 2 GiB", path);
  return ok();
}

bool can_be_code(const RawSymbol& raw) {
  return raw.type == STT_GNU_IFUNC || raw.type == STT_FUNC || raw.type == STT_NOTYPE;
}

Symbol make_symbol(const RawSymbol& raw, const Image& image) {
  return Symbol{.name = std::string(raw.name),
                .version = std::string(raw.version),
                .default_version = raw.default_version,
                .address = raw.address,
                .size = raw.size,
                .binding = raw.binding,
                .is_function = can_be_code(raw) && image.executable_at(raw.address) != nullptr,
                .is_label = raw.type == STT_NOTYPE,
                .is_ifunc = raw.type == STT_GNU_IFUNC,
                .dynamic = raw.dynamic};
}

// Equal symbols become neighbours; of those the one that knows most comes first.
bool before(const RawSymbol& a, const RawSymbol& b) {
  if (a.address != b.address) return a.address < b.address;
  const auto key = [](const RawSymbol& s) {
    return std::tuple(s.name, s.version.empty(), s.version, s.type == STT_NOTYPE, s.size == 0,
                      s.binding == Binding::local, s.binding, !s.dynamic, s.size);
  };
  return key(a) < key(b);
}

// One symbol is often in both tables, and a versioned one is in .symtab without its version.
void merge_equal(std::vector<RawSymbol>& symbols) {
  std::size_t kept = 0;
  for (const RawSymbol& symbol : symbols) {
    RawSymbol* last = kept == 0 ? nullptr : &symbols[kept - 1];
    const bool same_name = last != nullptr && last->address == symbol.address && last->name == symbol.name;
    if (same_name && (symbol.version.empty() || last->version == symbol.version))
      last->dynamic |= symbol.dynamic;
    else
      symbols[kept++] = symbol;
  }
  symbols.resize(kept);
}

bool begins_before(const Range& a, const Range& b) { return a.begin < b.begin; }

// What the sizes of symbols say, the largest of several at one address: an alias may cover only a part.
std::vector<Range> ranges_of(const std::vector<Symbol>& functions, const Image& image) {
  std::vector<Range> found;
  for (const Symbol& symbol : functions) {
    const Segment* segment = image.executable_at(symbol.address);
    if (symbol.size == 0 || segment == nullptr) continue;
    const std::uint64_t room = segment->address + segment->file_bytes - symbol.address;
    const std::uint64_t end = symbol.address + std::min(symbol.size, room);
    if (!found.empty() && found.back().begin == symbol.address)
      found.back().end = std::max(found.back().end, end);
    else
      found.push_back(Range{symbol.address, end});
  }
  return found;
}

}  // namespace

struct ElfFile::Data {
  std::string path;
  Identity identity;
  FileBytes bytes;
  Image image;
  SymbolTables tables;

  std::once_flag functions_once;
  std::vector<Symbol> functions;
  std::unique_ptr<NameIndex> names;
  std::once_flag relocated_once;
  std::vector<std::uint64_t> relocated;
  std::once_flag ranges_once;
  std::vector<Range> frames;  // by begin
  std::vector<Range> ranges;
  std::vector<std::uint64_t> reach;  // by range: the largest end of it and all before it
  std::once_flag rseq_once;
  std::vector<RseqSection> rseq;

  Data(std::string file_path, Identity file_identity, FileBytes file_bytes, Image file_image)
      : path(std::move(file_path)),
        identity(file_identity),
        bytes(std::move(file_bytes)),
        image(std::move(file_image)),
        tables(image) {}

  static Result<ElfFile> make(std::string path, Identity identity, Result<FileBytes> bytes);
  void gather_functions();
  void gather_ranges();
  void add_initialisers(std::vector<std::uint64_t>& starts) const;
};

// The bytes stay where they are when they change hands, so the image's views stay good.
Result<ElfFile> ElfFile::Data::make(std::string path, Identity identity, Result<FileBytes> bytes) {
  if (!bytes) return bytes.error();
  Result<Image> image = Image::parse(BytesView(bytes->span()));
  if (!image) {
    Error error = image.error();
    error.where = path;
    return error;
  }
  return ElfFile(std::make_unique<Data>(std::move(path), identity, bytes.take(), image.take()));
}

// Sorted as views: names are copied once, into their place.
void ElfFile::Data::gather_functions() {
  std::vector<RawSymbol> found;
  tables.for_each([&](const RawSymbol& raw) {
    if (found.size() >= kMaxFunctions || !can_be_code(raw) || image.executable_at(raw.address) == nullptr) return;
    found.push_back(raw);
  });
  std::sort(found.begin(), found.end(), before);
  merge_equal(found);
  functions.reserve(found.size());
  for (const RawSymbol& raw : found) functions.push_back(make_symbol(raw, image));
  names = std::make_unique<NameIndex>(functions);
}

// Of those with one begin the symbol's is kept, or the first FDE's.
void ElfFile::Data::gather_ranges() {
  frames = frame_ranges(image);
  std::stable_sort(frames.begin(), frames.end(), begins_before);
  const std::vector<Range> named = ranges_of(functions, image);
  ranges.reserve(named.size() + frames.size());
  std::merge(named.begin(), named.end(), frames.begin(), frames.end(), std::back_inserter(ranges), begins_before);
  const auto same_begin = [](const Range& a, const Range& b) { return a.begin == b.begin; };
  ranges.erase(std::unique(ranges.begin(), ranges.end(), same_begin), ranges.end());
  reach.reserve(ranges.size());
  for (const Range& range : ranges) reach.push_back(std::max(range.end, reach.empty() ? 0 : reach.back()));
}

// The arrays of a position-independent file are filled by relocations: their zeros are left out by the caller's check.
void ElfFile::Data::add_initialisers(std::vector<std::uint64_t>& starts) const {
  for (const std::int64_t tag : {DT_INIT, DT_FINI})
    if (const auto address = image.dynamic(tag)) starts.push_back(*address);
  constexpr std::pair<std::int64_t, std::int64_t> kArrays[] = {{DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
                                                               {DT_FINI_ARRAY, DT_FINI_ARRAYSZ}};
  for (const auto& [array, size] : kArrays) {
    const auto address = image.dynamic(array);
    const auto bytes_wanted = image.dynamic(size);
    if (!address || !bytes_wanted) continue;
    const BytesView entries = image.bytes_at(*address).slice(0, *bytes_wanted);
    for (std::uint64_t at = 0; entries.holds(at, 8); at += 8) starts.push_back(*entries.read<std::uint64_t>(at));
  }
}

Result<ElfFile> ElfFile::open(const std::string& path) {
  struct stat status {};
  // Before opening, because opening a device may already do something.
  if (::stat(path.c_str(), &status) != 0) return open_error(path, errno);
  if (const Status checked = check_file(status, path); !checked) return checked.error();
  // The path may name something else by now, hence O_NONBLOCK and the second look.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return open_error(path, errno);
  if (::fstat(fd.get(), &status) != 0) return open_error(path, errno);
  if (const Status checked = check_file(status, path); !checked) return checked.error();
  return Data::make(path, Identity{status.st_dev, status.st_ino},
                    FileBytes::read(fd, static_cast<std::uint64_t>(status.st_size), path));
}

Result<ElfFile> ElfFile::parse(std::string path, std::span<const std::uint8_t> bytes) {
  Result<FileBytes> copy = FileBytes::copy_of(bytes, path);
  return Data::make(std::move(path), Identity{}, std::move(copy));
}

ElfFile::ElfFile(std::unique_ptr<Data> data) : data_(std::move(data)) {}
ElfFile::ElfFile(ElfFile&&) noexcept = default;
ElfFile& ElfFile::operator=(ElfFile&&) noexcept = default;
ElfFile::~ElfFile() = default;

const std::string& ElfFile::path() const { return data_->path; }
Identity ElfFile::identity() const { return data_->identity; }
std::span<const std::uint8_t> ElfFile::build_id() const { return data_->image.build_id(); }
std::span<const Segment> ElfFile::segments() const { return data_->image.segments(); }
std::uint64_t ElfFile::entry() const { return data_->image.entry(); }
bool ElfFile::is_position_independent() const { return data_->image.is_position_independent(); }
bool ElfFile::is_program() const {
  const Image& image = data_->image;
  return !image.is_position_independent() || (image.dynamic(DT_FLAGS_1).value_or(0) & DF_1_PIE) != 0;
}
const std::string& ElfFile::interpreter() const { return data_->image.interpreter(); }
std::span<const std::uint8_t> ElfFile::bytes() const { return data_->bytes.span(); }
bool ElfFile::has_symtab() const { return data_->tables.has_symtab(); }

std::optional<std::uint64_t> ElfFile::address_of_offset(std::uint64_t offset) const {
  return data_->image.address_of_offset(offset);
}
std::optional<std::uint64_t> ElfFile::offset_of_address(std::uint64_t address) const {
  return data_->image.offset_of_address(address);
}
bool ElfFile::is_executable_offset(std::uint64_t offset) const { return data_->image.is_executable_offset(offset); }

std::span<const Symbol> ElfFile::functions() const {
  std::call_once(data_->functions_once, [this] { data_->gather_functions(); });
  return data_->functions;
}

std::span<const Symbol> ElfFile::functions_from(std::uint64_t address) const {
  const auto all = functions();
  return {std::lower_bound(all.begin(), all.end(), address,
                           [](const Symbol& symbol, std::uint64_t a) { return symbol.address < a; }),
          all.end()};
}

// Asked for a few names only, hence no index.
std::optional<Symbol> ElfFile::find_any(std::string_view name) const {
  const auto rank = [](const RawSymbol& s) {
    return std::tuple(s.binding == Binding::local, !s.default_version, s.binding, s.address, !s.dynamic);
  };
  const WantedName wanted = WantedName::parse(name);
  std::optional<RawSymbol> best;
  data_->tables.for_each([&](const RawSymbol& symbol) {
    if (symbol.name != wanted.name || !wanted.allows(symbol.version, symbol.default_version)) return;
    if (!best || rank(symbol) < rank(*best)) best = symbol;
  });
  if (!best) return std::nullopt;
  return make_symbol(*best, data_->image);
}

// Of versions the default one counts alone, as for the dynamic linker.
std::vector<std::uint64_t> ElfFile::addresses_of(std::string_view name) const {
  const WantedName wanted = WantedName::parse(name);
  std::set<std::uint64_t> found, not_default;
  data_->tables.for_each([&](const RawSymbol& symbol) {
    if (symbol.name != wanted.name || !wanted.allows(symbol.version, symbol.default_version)) return;
    (symbol.default_version ? found : not_default).insert(symbol.address);
  });
  if (found.empty()) found.swap(not_default);
  return {found.begin(), found.end()};
}

std::vector<Symbol> ElfFile::find_functions(std::string_view name) const {
  const auto symbols = functions();
  const WantedName wanted = WantedName::parse(name);
  std::vector<Symbol> found;
  for (const std::uint32_t index : data_->names->find(wanted.name)) {
    const Symbol& symbol = symbols[index];
    if (wanted.allows(symbol.version, symbol.default_version)) found.push_back(symbol);
  }
  const auto is_default = [](const Symbol& s) { return s.default_version && !s.version.empty(); };
  if (wanted.version.empty() && std::any_of(found.begin(), found.end(), is_default))
    std::erase_if(found, [](const Symbol& s) { return !s.default_version; });
  // By address; of several names of one function a global one with the default version.
  const auto key = [](const Symbol& s) {
    return std::tuple(s.address, s.is_label, !s.default_version, s.binding == Binding::local, s.binding);
  };
  std::stable_sort(found.begin(), found.end(), [&](const Symbol& a, const Symbol& b) { return key(a) < key(b); });
  const auto same_place = [](const Symbol& a, const Symbol& b) { return a.address == b.address; };
  found.erase(std::unique(found.begin(), found.end(), same_place), found.end());
  return found;
}

std::vector<std::string> ElfFile::close_names(std::string_view name, std::size_t most) const {
  functions();
  return data_->names->close_to(WantedName::parse(name).name, most);
}

std::span<const Range> ElfFile::function_ranges() const {
  functions();
  std::call_once(data_->ranges_once, [this] { data_->gather_ranges(); });
  return data_->ranges;
}

std::optional<Range> ElfFile::range_at(std::uint64_t address) const {
  const auto ranges = function_ranges();
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                      [](std::uint64_t value, const Range& range) { return value < range.begin; });
  for (auto i = static_cast<std::size_t>(after - ranges.begin()); i-- > 0 && data_->reach[i] > address;)
    if (ranges[i].end > address) return ranges[i];
  return std::nullopt;
}

bool ElfFile::is_signal_return(std::uint64_t address) const {
  const auto ranges = signal_frame_ranges(data_->image);
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& range) { return address >= range.begin && address < range.end; });
}

bool ElfFile::is_relocated_code(std::uint64_t address, std::uint64_t size) const {
  std::call_once(data_->relocated_once, [this] { data_->relocated = relocated_code_of(*this); });
  constexpr std::uint64_t kWidest = 8;
  const auto first =
      std::lower_bound(data_->relocated.begin(), data_->relocated.end(), address < kWidest ? 0 : address - kWidest + 1);
  return first != data_->relocated.end() && *first < address + size;
}

// Three lists in order, of which only the shortest has to be sorted.
std::vector<std::uint64_t> ElfFile::known_starts() const {
  function_ranges();
  std::vector<std::uint64_t> starts, others{entry()}, all;
  data_->add_initialisers(others);
  std::erase_if(others, [this](std::uint64_t address) { return data_->image.executable_at(address) == nullptr; });
  std::sort(others.begin(), others.end());
  for (const Symbol& symbol : functions())
    if (!symbol.is_label) starts.push_back(symbol.address);
  const auto middle = static_cast<std::ptrdiff_t>(starts.size());
  for (const Range& range : data_->frames) starts.push_back(range.begin);
  std::inplace_merge(starts.begin(), starts.begin() + middle, starts.end());
  std::merge(starts.begin(), starts.end(), others.begin(), others.end(), std::back_inserter(all));
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::span<const RseqSection> ElfFile::rseq_sections() const {
  std::call_once(data_->rseq_once, [this] { data_->rseq = elf::rseq_sections(*this); });
  return data_->rseq;
}

}  // namespace uprobe::elf
