// SPDX-License-Identifier: MIT
#include "engine/service/loader_events.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/process/mapped_file.h"
#include "engine/proxy/memory.h"

namespace uprobe::control {
namespace {

bool wants_ifunc(const ProbeSet& probes) {
  return std::any_of(probes.files().begin(), probes.files().end(),
                     [](const FilePoints& f) { return !f.ifuncs.empty(); });
}

// Each program can name a loader of its own, and the probe set keeps them all, so their number is limited.
bool has_room_for(const elf::ElfFile& loader, const ProbeSet& probes) {
  constexpr std::ptrdiff_t kMost = 64;
  const auto is_hooked = [](const FilePoints& file) {
    return std::any_of(file.points.begin(), file.points.end(),
                       [](const PlannedPoint& point) { return point.role == shared::PointRole::library_hook; });
  };
  const auto& files = probes.files();
  return std::count_if(files.begin(), files.end(), is_hooked) < kMost ||
         std::any_of(files.begin(), files.end(),
                     [&](const FilePoints& file) { return file.file->identity() == loader.identity(); });
}

Status add_hook(std::shared_ptr<const elf::ElfFile> file, const std::string& symbol, ProbeSet& probes) {
  if (!has_room_for(*file, probes))
    return Error{.code = Code::limit, .text = "more than 64 dynamic loaders are in use"};
  const auto found = file->find_any(symbol);
  const auto offset = found ? file->offset_of_address(found->address) : std::nullopt;
  if (!offset) return Error{.code = Code::not_found, .text = "no " + symbol + " in " + file->path()};
  auto site = plan::nameless_site_at(std::move(file), *offset);
  if (!site) return site.error();
  probes.add_hook(site.take());
  return ok();
}

// Where the kernel mapped the program's interpreter; 0: it has none.
Addr interpreter_base(pid_t pid) {
  const auto vector = proxy::read_of(pid, procfs::path(pid, "auxv"));
  std::uint64_t entry[2] = {};
  for (std::size_t at = 0; vector && at + sizeof entry <= vector->size(); at += sizeof entry) {
    std::memcpy(entry, vector->data() + at, sizeof entry);
    if (entry[0] == AT_BASE) return Addr{entry[1]};
  }
  return {};
}

// The file that is mapped there. The name in the program may lead through links of another root.
Result<std::shared_ptr<const elf::ElfFile>> open_interpreter(target::Target& target, Addr base,
                                                             plan::FileCache& files) {
  const pid_t pid = target.pid();
  const auto maps = target.maps();
  if (!maps) return maps.error();
  const auto mapped =
      std::find_if(maps->begin(), maps->end(), [&](const target::Mapping& m) { return m.begin == base; });
  if (mapped == maps->end()) return Error{.code = Code::not_found, .text = "the dynamic loader is not mapped"};
  const auto identity = mapped_identity(pid, *mapped);
  if (!identity) return Error{.code = Code::not_found, .text = "cannot be reached from here", .where = mapped->path};
  const auto name = mapped_name(pid, *mapped, *identity);
  if (!name) return name.error();
  return files.open(*name, elf::NamedBy::target);
}

Result<std::string> add_static_hook(const std::string& program, plan::FileCache& files, ProbeSet& probes) {
  if (!wants_ifunc(probes)) return std::string();
  auto file = files.open(program, elf::NamedBy::target);
  const Status added = file ? add_hook(*file, "__libc_setup_tls", probes) : Status(file.error());
  return added ? std::string() : "IFUNC probes in a static program need the program's symbols: " + added.error().text;
}

}  // namespace

Result<std::string> add_library_hook(target::Target& target, plan::FileCache& files, ProbeSet& probes) {
  const Addr base = interpreter_base(target.pid());
  if (!base) return add_static_hook(procfs::path(target.pid(), "exe"), files, probes);
  auto loader = open_interpreter(target, base, files);
  if (!loader) return loader.error();
  const Status added = add_hook(*loader, "_dl_debug_state", probes);
  return added ? std::string() : "libraries cannot be followed: " + added.error().text;
}

}  // namespace uprobe::control
