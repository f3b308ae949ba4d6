// SPDX-License-Identifier: MIT
#include "engine/plan/resolve.h"

#include <sys/stat.h>

#include <algorithm>

#include "engine/base/text.h"
#include "engine/elf/debug_files.h"
#include "engine/elf/rseq_sections.h"
#include "engine/flow/boundary.h"

namespace uprobe::plan {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// "; PATH has the build id of another file"
std::string wrong_debug_files(const elf::ElfFile& file) {
  std::string text;
  for (const std::string& wrong : elf::find_debug_file(file).wrong) text += "; " + wrong;
  return text;
}

Error no_such_function(const spec::ProbeSpec& spec, const elf::ElfFile& file) {
  Error error{.code = Code::not_found, .text = "no function '" + spec.place.symbol + "' in " + spec.place.path};
  const auto close = file.close_names(spec.place.symbol);
  if (!close.empty())
    error.help = "close: " + join(close);
  else if (!file.has_names())
    error.help = "the file is stripped: only its dynamic symbols are known, PATH:OFFSET works for every instruction" +
                 wrong_debug_files(file);
  return error;
}

Error ambiguous(const spec::ProbeSpec& spec, const std::vector<elf::Symbol>& found, const elf::ElfFile& file) {
  std::vector<std::string> candidates;
  for (const elf::Symbol& s : found) {
    const auto offset = file.offset_of_address(s.address);
    candidates.push_back(s.name + (s.version.empty() ? "" : "@" + s.version) + " at " +
                         hex(offset.value_or(s.address)));
  }
  return Error{.code = Code::usage,
               .text = "'" + spec.place.symbol + "' is ambiguous in " + spec.place.path,
               .help = "candidates: " + join(candidates) + " (use PATH:OFFSET)"};
}

// The link-time address that the place means; the symbol found, if it names one.
struct Meant {
  std::uint64_t address = 0;
  bool is_ifunc = false;
};

Result<Meant> meaning_of(const spec::ProbeSpec& spec, const elf::ElfFile& file) {
  const spec::Place& place = spec.place;
  if (place.found) return Meant{place.found->address, place.found->is_ifunc};
  if (place.is_address) {
    if (file.offset_of_address(place.offset)) return Meant{place.offset};
    return Error{.code = Code::usage,
                 .text = "address " + hex(place.offset) + " is in no mapped part of " + place.path,
                 .help = "addresses are the file's own, as nm prints them; an offset is PATH:OFFSET"};
  }
  if (place.symbol.empty()) {
    const auto address = file.address_of_offset(place.offset);
    if (!address)
      return Error{.code = Code::usage,
                   .text = "offset " + hex(place.offset) + " is in no mapped part of " + place.path,
                   .help = "offsets are counted in the file, as in /proc/PID/maps"};
    return Meant{*address};
  }
  const auto found = file.find_functions(place.symbol);
  if (found.empty()) return no_such_function(spec, file);
  if (found.size() > 1) return ambiguous(spec, found, file);
  if (found[0].is_ifunc && place.offset != 0)
    return Error{.code = Code::refused,
                 .text = "'" + place.symbol + "' is chosen at run time (IFUNC): no offset from it has a meaning",
                 .help = "probe the implementation by its own name"};
  return Meant{found[0].address + place.offset, found[0].is_ifunc};
}

// An int3 inside makes the kernel go to the abort handler instead of telling us, and a copy is not inside.
Status check_critical_sections(const elf::ElfFile& file, std::uint64_t address, std::uint64_t length) {
  const auto sections = file.rseq_sections();
  const auto section = std::find_if(sections.begin(), sections.end(),
                                    [&](const elf::RseqSection& s) { return s.touches(address, address + length); });
  if (section == sections.end()) return ok();
  const std::string offset = hex(file.offset_of_address(address).value_or(address));
  if (section->is_likeness)
    return Error{.code = Code::refused,
                 .text = "the instruction at " + offset +
                         " may be inside an rseq critical section: what looks like a descriptor of one names it",
                 .help = "probe the functions that call it, or the code after it"};
  if (section->is_exact)
    return Error{.code = Code::refused,
                 .text = "the instruction at " + offset + " is inside an rseq critical section",
                 .help = "probe the function that contains it, or the code after it"};
  return Error{.code = Code::refused,
               .text = "the instruction at " + offset +
                       " may be inside an rseq critical section: its function has one whose "
                       "descriptor is not in the file",
               .help = "probe the functions that call it"};
}

}  // namespace

Status check_start(const std::shared_ptr<const elf::ElfFile>& file, std::uint64_t address, FileCache& files,
                   FlowCache& flows) {
  const Boundary boundary = files.boundaries_of(file, flows).find(address);
  const auto offset = [&](std::uint64_t a) { return hex(file->offset_of_address(a).value_or(a)); };
  if (!boundary.known)
    return Error{.code = Code::refused,
                 .text = "cannot show that an instruction starts at " + offset(address),
                 .help = std::string(boundary.reason) + "; --force insists"};
  if (boundary.is_start) return ok();
  return Error{.code = Code::refused,
               .text = offset(address) + " is byte " + std::to_string(address - boundary.before + 1) +
                       " of the instruction at " + offset(boundary.before) + " (nearest: " + offset(boundary.before) +
                       ", " + offset(boundary.after) + ")",
               .help = "--force insists"};
}

FileCache::FileCache() = default;
FileCache::~FileCache() = default;

Result<std::shared_ptr<const elf::ElfFile>> FileCache::open(const std::string& path, elf::NamedBy whom) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0)
    if (const auto known = by_identity_.find({status.st_dev, status.st_ino}); known != by_identity_.end())
      return known->second;
  if (whom == elf::NamedBy::target) drop_unused();
  auto file = elf::ElfFile::open(path, whom);
  if (!file) return file.error();
  const elf::Identity identity = file->identity();
  auto& shared = by_identity_[identity];
  if (!shared) shared = std::make_shared<const elf::ElfFile>(file.take());
  return shared;
}

// Targets bring new files all the time: those without references must not fill the memory.
void FileCache::drop_unused() {
  std::erase_if(by_identity_, [](const auto& known) { return known.second.use_count() == 1; });
}

void FileCache::know(std::shared_ptr<const elf::ElfFile> file) {
  const elf::Identity identity = file->identity();
  by_identity_[identity] = std::move(file);
}

void FileCache::forget(const std::shared_ptr<const elf::ElfFile>& file) {
  boundaries_.erase(file.get());
  by_identity_.erase(file->identity());
}

Boundaries& FileCache::boundaries_of(const std::shared_ptr<const elf::ElfFile>& file, FlowCache& flows) {
  auto& known = boundaries_[file.get()];
  if (!known) known = std::make_unique<Boundaries>(file, flows);
  return *known;
}

std::string symbol_near(const elf::ElfFile& file, std::uint64_t address) {
  const auto symbol = file.function_before(address);
  if (!symbol) return {};
  const std::uint64_t distance = address - symbol->address;
  if (distance != 0 && distance >= symbol->size) return {};
  return distance == 0 ? symbol->name : symbol->name + "+" + hex(distance);
}

std::string place_of_2009(const std::string& symbol, std::uint64_t address) {
  const std::size_t plus = symbol.rfind("+0x");
  if (symbol.empty()) return hex(address) + "+0";
  if (plus == std::string::npos) return symbol + "+0";
  return symbol.substr(0, plus + 1) + std::to_string(std::stoull(symbol.substr(plus + 1), nullptr, 16));
}

Result<Site> site_at(std::shared_ptr<const elf::ElfFile> file, std::uint64_t offset) {
  auto site = nameless_site_at(std::move(file), offset);
  if (site) site->symbol = symbol_near(*site->file, site->address);
  return site;
}

Result<Site> nameless_site_at(std::shared_ptr<const elf::ElfFile> file, std::uint64_t offset) {
  const auto address = file->address_of_offset(offset);
  if (!address || !file->is_executable_offset(offset))
    return Error{.code = Code::refused,
                 .text = "offset " + hex(offset) + " is not in an executable part of " + file->path()};
  const auto code = file->bytes().subspan(offset);
  const auto insn = arch::decode(code, Addr{*address});
  if (!insn)
    return Error{.code = Code::refused,
                 .text = "the bytes at " + hex(offset) + " are no instruction: " + insn.error().text};
  if (Status can = arch::can_displace(code, Addr{*address}); !can)
    return Error{.code = Code::refused,
                 .text = "the instruction at " + hex(offset) + " (" + arch::disassemble(code, Addr{*address}) +
                         ") cannot be probed: " + can.error().text};
  if (file->is_relocated_code(*address, insn->length))
    return Error{.code = Code::refused,
                 .text = "the dynamic loader changes the instruction at " + hex(offset) + " (a text relocation)"};
  RETURN_IF_ERROR(check_critical_sections(*file, *address, insn->length));
  Site site;
  site.offset = offset;
  site.address = *address;
  site.insn.assign(code.begin(), code.begin() + insn->length);
  site.file = std::move(file);
  return site;
}

Result<Found> look_up(const spec::ProbeSpec& spec, FileCache& files) {
  auto file = files.open(spec.place.path);
  if (!file) {
    Error error = file.error();
    error.text = spec.place.path + ": " + error.text;  // its `where` becomes the definition
    return at_column(spec, spec.place.path_column, std::move(error));
  }
  auto meant = meaning_of(spec, **file);
  if (!meant) return at_column(spec, spec.place.place_column, meant.error());
  const auto offset = (*file)->offset_of_address(meant->address);
  if (!offset)
    return at_column(spec, spec.place.place_column,
                     Error{.code = Code::usage, .text = "the place is outside of " + spec.place.path});
  return Found{file.take(), *offset, meant->address, meant->is_ifunc};
}

Result<Site> resolve(const spec::ProbeSpec& spec, FileCache& files, FlowCache& flows, const ResolveOptions& options) {
  auto found = look_up(spec, files);
  if (!found) return found.error();
  // First where the instruction starts: an offset inside one would be called an odd instruction otherwise.
  if (!options.force && found->file->is_executable_offset(found->offset))
    if (const Status start = check_start(found->file, found->address, files, flows); !start)
      return at_column(spec, spec.place.place_column, start.error());
  auto site = site_at(found->file, found->offset);
  if (!site) return at_column(spec, spec.place.place_column, site.error());
  site->is_ifunc = found->is_ifunc;
  return site;
}

}  // namespace uprobe::plan
