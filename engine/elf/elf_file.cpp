// SPDX-License-Identifier: MIT
// The facade: reads the file, gathers symbols and ranges on demand, answers questions about them.
#include "engine/elf/elf_file.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <tuple>

#include "engine/base/regular_file.h"
#include "engine/elf/debug_names.h"
#include "engine/elf/eh_frame.h"
#include "engine/elf/file_bytes.h"
#include "engine/elf/image.h"
#include "engine/elf/link_names.h"
#include "engine/elf/name_index.h"
#include "engine/elf/relocations.h"
#include "engine/elf/rseq_sections.h"
#include "engine/elf/symbol_tables.h"
#include "engine/facts/kept_facts.h"

namespace uprobe::elf {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{2} << 30;
constexpr std::size_t kMaxFunctions = std::size_t{8} << 20;

// Of a file that a target has named no more than this is kept in memory, holes not counted. A file of root or of the tool's own
// user that not everyone can write may have more: a target cannot have made it, unless it has their rights.
constexpr std::uint64_t kMostOfTarget = std::uint64_t{48} << 20;
constexpr std::uint64_t kMostOfInstalled = std::uint64_t{256} << 20;

bool is_installed(const struct stat& status) {
  return (status.st_uid == 0 || status.st_uid == ::geteuid()) && (status.st_mode & S_IWOTH) == 0;
}

// Whether the file system may say of a file what a user likes: a FUSE server does, and so does an overlay over one, which anybody may mount in a
// user namespace. The overlay that this process lives in is no such one.
bool may_be_untrue(const Fd& file, const struct stat& status) {
  struct statfs system {};
  struct stat root {};
  if (::fstatfs(file.get(), &system) != 0) return true;
  const auto kind = static_cast<std::uint32_t>(system.f_type);
  if (kind != OVERLAYFS_SUPER_MAGIC) return kind == FUSE_SUPER_MAGIC;
  return ::stat("/", &root) != 0 || root.st_dev != status.st_dev;
}

// Whether it is worth while to keep facts about a file from run to run, and no other user can have a say in them.
bool may_be_kept(const Fd& file, const struct stat& status) {
  constexpr off_t kLeast = 256 << 10;
  return status.st_size >= kLeast && is_installed(status) && (status.st_mode & S_IWGRP) == 0 &&
         !may_be_untrue(file, status);
}

// Of the file's functions; with more, it counts as having none.
constexpr std::size_t kMostFunctionsOfTarget = std::size_t{512} << 10;
constexpr std::uint64_t kMostNamesOfTarget = std::uint64_t{32} << 20;

std::uint64_t most_of(const Fd& file, const struct stat& status, NamedBy whom) {
  if (whom == NamedBy::user) return kMaxFileBytes;
  return is_installed(status) && !may_be_untrue(file, status) ? kMostOfInstalled : kMostOfTarget;
}

bool can_be_code(const RawSymbol& raw) {
  return raw.type == STT_GNU_IFUNC || raw.type == STT_FUNC || raw.type == STT_NOTYPE;
}

bool is_code(const RawSymbol& raw, const Image& image) {
  return can_be_code(raw) && image.executable_at(raw.address) != nullptr;
}

bool is_data(const RawSymbol& raw, const Image&) { return raw.type == STT_OBJECT && raw.size != 0; }

Symbol make_symbol(const RawSymbol& raw, const Image& image) {
  return Symbol{.name = std::string(raw.name),
                .version = std::string(raw.version),
                .default_version = raw.default_version,
                .address = raw.address,
                .size = raw.size,
                .binding = raw.binding,
                .is_function = is_code(raw, image),
                .is_label = raw.type == STT_NOTYPE,
                .is_ifunc = raw.type == STT_GNU_IFUNC,
                .dynamic = raw.dynamic,
                .is_of_debug_file = raw.is_of_debug_file};
}

// Equal symbols become neighbours; the one with the most information comes first.
bool before(const RawSymbol& a, const RawSymbol& b) {
  if (a.address != b.address) return a.address < b.address;
  const auto key = [](const RawSymbol& s) {
    return std::tuple(s.name, s.version.empty(), s.version, s.type == STT_NOTYPE, s.size == 0, s.is_of_debug_file,
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

// By address, then name; each once.
std::vector<Symbol> symbols_of(std::vector<RawSymbol> found, const Image& image) {
  std::sort(found.begin(), found.end(), before);
  merge_equal(found);
  std::vector<Symbol> symbols;
  symbols.reserve(found.size());
  for (const RawSymbol& raw : found) symbols.push_back(make_symbol(raw, image));
  return symbols;
}

bool begins_before(const Range& a, const Range& b) { return a.begin < b.begin; }

// The ranges by the sizes of symbols, the largest of several at one address: an alias may cover only a part.
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

// The bodies of functions.
struct Bodies {
  std::vector<Range> frames;  // by begin
  std::vector<Range> ranges;
  std::vector<std::uint64_t> reach;  // by range: the largest end of it and all before it
};

// Of ranges with one begin the symbol's is kept, or else the first FDE's.
Bodies bodies_of(const std::vector<Symbol>& functions, const Image& image) {
  Bodies found{.frames = frame_ranges(image), .ranges = {}, .reach = {}};
  auto& [frames, ranges, reach] = found;
  std::stable_sort(frames.begin(), frames.end(), begins_before);
  const std::vector<Range> named = ranges_of(functions, image);
  ranges.reserve(named.size() + frames.size());
  std::merge(named.begin(), named.end(), frames.begin(), frames.end(), std::back_inserter(ranges), begins_before);
  const auto same_begin = [](const Range& a, const Range& b) { return a.begin == b.begin; };
  ranges.erase(std::unique(ranges.begin(), ranges.end(), same_begin), ranges.end());
  reach.reserve(ranges.size());
  for (const Range& range : ranges) reach.push_back(std::max(range.end, reach.empty() ? 0 : reach.back()));
  return found;
}

struct BodiesForm {
  using Facts = Bodies;
  static void pack(facts::Packer& to, const Bodies& bodies) {
    to.put(bodies.frames);
    to.put(bodies.ranges);
    to.put(bodies.reach);
  }
  static std::optional<Bodies> unpack(facts::Unpacker& from) {
    Bodies bodies;
    const bool is_whole = from.take(bodies.frames) && from.take(bodies.ranges) && from.take(bodies.reach) &&
                          bodies.reach.size() == bodies.ranges.size();
    return is_whole ? std::optional(std::move(bodies)) : std::nullopt;
  }
};

struct AddressesForm {
  using Facts = std::vector<std::uint64_t>;
  static void pack(facts::Packer& to, const Facts& addresses) { to.put(addresses); }
  static std::optional<Facts> unpack(facts::Unpacker& from) {
    Facts addresses;
    return from.take(addresses) ? std::optional(std::move(addresses)) : std::nullopt;
  }
};

}  // namespace

struct ElfFile::Data {
  std::string path;
  Identity identity;
  NamedBy whom = NamedBy::user;
  bool may_be_kept = false;
  FileBytes bytes;
  Image image;
  SymbolTables tables;

  std::once_flag functions_once;
  std::vector<Symbol> functions;
  std::once_flag data_once;
  std::vector<Symbol> data;
  std::once_flag debug_once;
  std::unique_ptr<const DebugNames> debug;
  std::once_flag names_once;
  std::vector<Symbol> more_functions;  // with those of `debug`; empty: there are none
  std::unique_ptr<NameIndex> names;
  std::atomic<int> looks{0};  // of own_functions()
  std::once_flag relocated_once;
  std::vector<std::uint64_t> relocated;
  std::once_flag bodies_once;
  Bodies bodies;
  std::once_flag signals_once;
  std::vector<Range> signals;
  std::once_flag key_once;
  std::optional<facts::ContentKey> key;
  std::once_flag rseq_once;
  std::vector<RseqSection> rseq;

  Data(std::string file_path, Identity file_identity, FileBytes file_bytes, Image file_image)
      : path(std::move(file_path)),
        identity(file_identity),
        bytes(std::move(file_bytes)),
        image(std::move(file_image)),
        tables(image) {}

  static Result<ElfFile> make(std::string path, Identity identity, Result<FileBytes> bytes, NamedBy whom);
  std::vector<Symbol> read_functions(const DebugNames* further) const;
  std::vector<Symbol> read_symbols(bool (*is_wanted)(const RawSymbol&, const Image&), const DebugNames* further) const;
  template <class IsWanted>
  std::vector<Symbol> own_functions(std::string_view beginning, const IsWanted& is_wanted);
  std::span<const Symbol> named() const { return more_functions.empty() ? functions : more_functions; }
  void add_initialisers(std::vector<std::uint64_t>& starts) const;
  std::vector<std::uint64_t> known_starts(const ElfFile& file) const;
};

// The bytes keep their address when they change owners, so the image's views stay valid.
Result<ElfFile> ElfFile::Data::make(std::string path, Identity identity, Result<FileBytes> bytes, NamedBy whom) {
  if (!bytes) return bytes.error();
  Result<Image> image = Image::parse(BytesView(bytes->span()));
  if (!image) {
    Error error = image.error();
    error.where = path;
    return error;
  }
  auto data = std::make_unique<Data>(std::move(path), identity, bytes.take(), image.take());
  data->whom = whom;
  return ElfFile(std::move(data));
}

// Sorted as views: each name is copied once, into its final place.
std::vector<Symbol> ElfFile::Data::read_symbols(bool (*is_wanted)(const RawSymbol&, const Image&),
                                                const DebugNames* further) const {
  std::vector<RawSymbol> found;
  const std::size_t most = whom == NamedBy::user ? kMaxFunctions : kMostFunctionsOfTarget;
  std::uint64_t name_bytes = 0;
  const auto take = [&](const RawSymbol& raw) {
    name_bytes += raw.name.size();
    if (found.size() < most && is_wanted(raw, image)) found.push_back(raw);
  };
  tables.for_each(take);
  if (further != nullptr)
    further->for_each([&](RawSymbol raw) {
      raw.is_of_debug_file = true;
      take(raw);
    });
  if (whom == NamedBy::target && (found.size() == most || name_bytes > kMostNamesOfTarget)) found.clear();
  return symbols_of(std::move(found), image);
}

std::vector<Symbol> ElfFile::Data::read_functions(const DebugNames* further) const {
  return read_symbols(is_code, further);
}

// Relocations fill the arrays of a position-independent file: the caller's check skips their zeros.
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

Result<ElfFile> ElfFile::open(const std::string& path, NamedBy whom) {
  const auto file = open_regular(path);
  if (!file) return file.error();
  const struct stat& status = file->about;
  if (static_cast<std::uint64_t>(status.st_size) > kMaxFileBytes)
    return Error{.code = Code::limit, .text = "is larger than 2 GiB", .where = path};
  auto bytes =
      FileBytes::read(file->fd, static_cast<std::uint64_t>(status.st_size), most_of(file->fd, status, whom), path);
  auto made = Data::make(path, Identity{status.st_dev, status.st_ino}, std::move(bytes), whom);
  if (made) made->data_->may_be_kept = may_be_kept(file->fd, status);
  return made;
}

Result<ElfFile> ElfFile::parse(std::string path, std::span<const std::uint8_t> bytes) {
  Result<FileBytes> copy = FileBytes::copy_of(bytes, path);
  return Data::make(std::move(path), Identity{}, std::move(copy), NamedBy::user);
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
LinkNames ElfFile::link_names() const { return elf::link_names(data_->image); }
std::span<const std::uint8_t> ElfFile::bytes() const { return data_->bytes.span(); }
std::span<const std::uint8_t> ElfFile::section(std::string_view name) const {
  return data_->image.section_bytes(name).span();
}
bool ElfFile::has_names() const { return data_->tables.has_symtab() || debug_names() != nullptr; }

std::optional<std::uint64_t> ElfFile::address_of_offset(std::uint64_t offset) const {
  return data_->image.address_of_offset(offset);
}
std::optional<std::uint64_t> ElfFile::offset_of_address(std::uint64_t address) const {
  return data_->image.offset_of_address(address);
}
bool ElfFile::is_executable_offset(std::uint64_t offset) const { return data_->image.is_executable_offset(offset); }

std::span<const Symbol> ElfFile::functions() const {
  std::call_once(data_->functions_once, [this] { data_->functions = data_->read_functions(nullptr); });
  return data_->functions;
}

std::span<const Symbol> ElfFile::data_symbols() const {
  std::call_once(data_->data_once, [this] { data_->data = data_->read_symbols(is_data, nullptr); });
  return data_->data;
}

// Bytes in memory have no place on disk beside which a debug file could lie.
const DebugNames* ElfFile::debug_names() const {
  std::call_once(data_->debug_once, [this] {
    const std::uint64_t most = data_->whom == NamedBy::user ? kMostOfInstalled : kMostOfTarget;
    if (!data_->tables.has_symtab() && data_->identity.inode != 0) data_->debug = DebugNames::find(*this, most);
  });
  return data_->debug.get();
}

std::span<const Symbol> ElfFile::named_functions() const {
  functions();
  std::call_once(data_->names_once, [this] {
    if (const DebugNames* further = debug_names()) data_->more_functions = data_->read_functions(further);
    data_->names = std::make_unique<NameIndex>(data_->named());
  });
  return data_->named();
}

std::span<const Symbol> ElfFile::functions_from(std::uint64_t address) const {
  const auto all = functions();
  return {std::lower_bound(all.begin(), all.end(), address,
                           [](const Symbol& symbol, std::uint64_t a) { return symbol.address < a; }),
          all.end()};
}

// Used for a few names only, hence no index.
std::optional<Symbol> ElfFile::find_any(std::string_view name) const {
  const auto rank = [](const RawSymbol& s) {
    return std::tuple(s.binding == Binding::local, !s.default_version, s.binding, s.address, !s.dynamic);
  };
  const WantedName wanted = WantedName::parse(name);
  std::optional<RawSymbol> best;
  data_->tables.for_each(wanted.name, [&](const RawSymbol& symbol) {
    if (symbol.name != wanted.name || !wanted.allows(symbol.version, symbol.default_version)) return;
    if (!best || rank(symbol) < rank(*best)) best = symbol;
  });
  if (!best) return std::nullopt;
  return make_symbol(*best, data_->image);
}

// Of several versions only the default one counts, as for the dynamic linker.
std::vector<std::uint64_t> ElfFile::addresses_of(std::string_view name) const {
  const WantedName wanted = WantedName::parse(name);
  std::set<std::uint64_t> found, not_default;
  data_->tables.for_each(wanted.name, [&](const RawSymbol& symbol) {
    if (symbol.name != wanted.name || !wanted.allows(symbol.version, symbol.default_version)) return;
    (symbol.default_version ? found : not_default).insert(symbol.address);
  });
  if (found.empty()) found.swap(not_default);
  const DebugNames* further = found.empty() ? debug_names() : nullptr;
  if (further != nullptr)
    further->for_each([&](const RawSymbol& symbol) {
      if (symbol.name == wanted.name && wanted.version.empty()) found.insert(symbol.address);
    });
  return {found.begin(), found.end()};
}

// Those of the functions that named_functions() has which are wanted, without a look at all others, where that is as good: after a few
// looks an index costs less. Empty: it is not as good, or there are none. Of a function without a size a debug file may know more.
template <class IsWanted>
std::vector<Symbol> ElfFile::Data::own_functions(std::string_view beginning, const IsWanted& is_wanted) {
  constexpr int kMostLooks = 16;
  std::vector<RawSymbol> found;
  if (whom == NamedBy::target || ++looks > kMostLooks) return {};
  tables.for_each(beginning, [&](const RawSymbol& raw) {
    if (is_wanted(raw) && is_code(raw, image)) found.push_back(raw);
  });
  const auto is_whole = [](const RawSymbol& raw) { return raw.type != STT_NOTYPE && raw.size != 0; };
  return std::ranges::all_of(found, is_whole) ? symbols_of(std::move(found), image) : std::vector<Symbol>();
}

std::optional<Symbol> ElfFile::function_before(std::uint64_t address) const {
  const auto own = data_->own_functions("", [&](const RawSymbol& raw) { return raw.address == address; });
  if (!own.empty()) return own.back();
  const auto functions = named_functions();
  auto next = std::upper_bound(functions.begin(), functions.end(), address,
                               [](std::uint64_t a, const Symbol& s) { return a < s.address; });
  if (next == functions.begin()) return std::nullopt;
  auto found = next - 1;
  for (auto same = found; same->is_of_debug_file && same != functions.begin() && (same - 1)->address == found->address;)
    if (!(--same)->is_of_debug_file) found = same;
  return *found;
}

std::vector<Symbol> ElfFile::find_functions(std::string_view name) const {
  const WantedName wanted = WantedName::parse(name);
  std::vector<Symbol> found =
      data_->own_functions(wanted.name, [&](const RawSymbol& raw) { return raw.name == wanted.name; });
  const auto is_other = [&](const Symbol& s) { return !wanted.allows(s.version, s.default_version); };
  if (found.empty()) {
    const auto symbols = named_functions();
    for (const std::uint32_t index : data_->names->find(wanted.name)) found.push_back(symbols[index]);
  }
  std::erase_if(found, is_other);
  const auto is_default = [](const Symbol& s) { return s.default_version && !s.version.empty(); };
  if (wanted.version.empty() && std::any_of(found.begin(), found.end(), is_default))
    std::erase_if(found, [](const Symbol& s) { return !s.default_version; });
  const auto is_own = [](const Symbol& s) { return !s.is_of_debug_file; };
  if (std::any_of(found.begin(), found.end(), is_own)) std::erase_if(found, std::not_fn(is_own));
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
  named_functions();
  return data_->names->close_to(WantedName::parse(name).name, most);
}

std::span<const Range> ElfFile::function_ranges() const {
  std::call_once(data_->bodies_once, [this] {
    const auto look = [this] { return functions(), bodies_of(data_->functions, data_->image); };
    data_->bodies = facts::kept_or_found<BodiesForm>(facts_key(), "bodies", look);
  });
  return data_->bodies.ranges;
}

// A body contains few others. A file may claim millions, which each look-up would go through.
constexpr unsigned kMostNested = 1 << 14;

std::optional<Range> ElfFile::range_at(std::uint64_t address) const {
  const auto ranges = function_ranges();
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                      [](std::uint64_t value, const Range& range) { return value < range.begin; });
  unsigned left = kMostNested;
  for (auto i = static_cast<std::size_t>(after - ranges.begin());
       i-- > 0 && data_->bodies.reach[i] > address && left-- != 0;)
    if (ranges[i].end > address) return ranges[i];
  return std::nullopt;
}

bool ElfFile::is_signal_return(std::uint64_t address) const {
  std::call_once(data_->signals_once, [this] { data_->signals = signal_frame_ranges(data_->image); });
  constexpr std::ptrdiff_t kMost = 64;  // a libc has one or two
  const auto& ranges = data_->signals;
  return std::any_of(ranges.begin(), ranges.begin() + std::min(std::ssize(ranges), kMost),
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
  return facts::kept_or_found<AddressesForm>(facts_key(), "starts", [this] { return data_->known_starts(*this); });
}

std::vector<std::uint64_t> ElfFile::Data::known_starts(const ElfFile& file) const {
  file.function_ranges();
  std::vector<std::uint64_t> starts, others{file.entry()}, all;
  add_initialisers(others);
  std::erase_if(others, [this](std::uint64_t address) { return image.executable_at(address) == nullptr; });
  std::sort(others.begin(), others.end());
  for (const Symbol& symbol : file.functions())
    if (!symbol.is_label) starts.push_back(symbol.address);
  const auto middle = static_cast<std::ptrdiff_t>(starts.size());
  for (const Range& range : bodies.frames) starts.push_back(range.begin);
  std::inplace_merge(starts.begin(), starts.begin() + middle, starts.end());
  std::merge(starts.begin(), starts.end(), others.begin(), others.end(), std::back_inserter(all));
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// What is found in a file depends on its bytes, and on how much of it is looked at.
std::optional<facts::ContentKey> ElfFile::facts_key() const {
  if (!data_->may_be_kept) return std::nullopt;
  std::call_once(data_->key_once,
                 [this] { data_->key = facts::key_of_file(bytes(), static_cast<std::uint64_t>(data_->whom)); });
  return data_->key;
}

std::span<const RseqSection> ElfFile::rseq_sections() const {
  std::call_once(data_->rseq_once, [this] { data_->rseq = elf::rseq_sections(*this); });
  return data_->rseq;
}

}  // namespace uprobe::elf
