// SPDX-License-Identifier: MIT
// From a parsed definition to a site in a file: which file, which offset, what instruction, and whether it can be probed.
// Pure: reads files, touches no process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arch/code/relocate.h"
#include "engine/base/result.h"
#include "engine/elf/elf_file.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::plan {

class Boundaries;
class FlowCache;

// Opens each file once, under whatever path it is named.
class FileCache {
 public:
  FileCache();
  ~FileCache();
  // By what the path leads to now (/proc/PID/exe changes).
  Result<std::shared_ptr<const elf::ElfFile>> open(const std::string& path, elf::NamedBy whom = elf::NamedBy::user);
  // A file that was opened elsewhere: every path to it leads to this object.
  void know(std::shared_ptr<const elf::ElfFile> file);
  // The next open() of a path to this file reads it again.
  void forget(const std::shared_ptr<const elf::ElfFile>& file);
  // Where instructions of the file start. `flows`: outlives this; the same one at each call.
  Boundaries& boundaries_of(const std::shared_ptr<const elf::ElfFile>& file, FlowCache& flows);

 private:
  void drop_unused();

  std::map<elf::Identity, std::shared_ptr<const elf::ElfFile>> by_identity_;
  std::map<const elf::ElfFile*, std::unique_ptr<Boundaries>> boundaries_;
};

// Where a definition goes.
struct Site {
  std::shared_ptr<const elf::ElfFile> file;
  std::uint64_t offset = 0;        // in the file
  std::uint64_t address = 0;       // link time
  std::vector<std::uint8_t> insn;  // the displaced instruction's bytes
  std::string symbol;              // nearest "name+0x4", empty if none
  bool is_ifunc = false;           // `offset` is the resolver's: the place is the function that it chooses
};

struct ResolveOptions {
  bool force = false;  // accept an offset inside an instruction, and in data
};

// The place that a definition names, whatever is there.
struct Found {
  std::shared_ptr<const elf::ElfFile> file;
  std::uint64_t offset = 0;   // in the file
  std::uint64_t address = 0;  // link time
  bool is_ifunc = false;
};

// Fails with Code::not_found (file, symbol; help: near misses), Code::usage (ambiguous symbol, offset outside). `where`
// and `column` point into the definition.
Result<Found> look_up(const spec::ProbeSpec& spec, FileCache& files);

// Whether an instruction is shown to start at the link-time address. `flows`: as for FileCache::boundaries_of().
Status check_start(const std::shared_ptr<const elf::ElfFile>& file, std::uint64_t address, FileCache& files,
                   FlowCache& flows);

// Fails with Code::not_found (file, symbol; help: near misses), Code::usage (ambiguous symbol, offset outside),
// Code::refused (inside an instruction, perhaps in data, not displaceable). `where` and `column` point into the definition.
Result<Site> resolve(const spec::ProbeSpec& spec, FileCache& files, FlowCache& flows, const ResolveOptions& options);

// The site at a file offset that is known to be the start of an instruction (an IFUNC's choice, a hook of our own).
Result<Site> site_at(std::shared_ptr<const elf::ElfFile> file, std::uint64_t offset);
// The same without its symbol, for which all names of the file are read and sorted.
Result<Site> nameless_site_at(std::shared_ptr<const elf::ElfFile> file, std::uint64_t offset);

// "name+0x4" for a link-time address, empty if no symbol is near.
std::string symbol_near(const elf::ElfFile& file, std::uint64_t address);

// The same as the kprobe tracer of 2009 wrote it, "name+4"; the address where no symbol is near. `symbol` is symbol_near()'s.
std::string place_of_2009(const std::string& symbol, std::uint64_t address);

}  // namespace uprobe::plan
