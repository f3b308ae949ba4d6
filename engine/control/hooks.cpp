#include "engine/control/hooks.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "engine/base/fd.h"
#include "engine/target/target.h"

namespace uprobe::control {
namespace {

bool wants_ifunc(const ProbeSet& probes) {
  return std::any_of(probes.files().begin(), probes.files().end(),
                     [](const FilePoints& f) { return !f.ifuncs.empty(); });
}

Status add_hook(std::shared_ptr<const elf::ElfFile> file, const std::string& symbol, ProbeSet& probes) {
  const auto found = file->find_any(symbol);
  const auto offset = found ? file->offset_of_address(found->address) : std::nullopt;
  if (!offset) return Error{.code = Code::not_found, .text = "no " + symbol + " in " + file->path()};
  auto site = plan::site_at(std::move(file), *offset);
  if (!site) return site.error();
  probes.add_hook(site.take());
  return ok();
}

// Where the kernel mapped the program's interpreter; 0: it has none.
Addr interpreter_base(pid_t pid) {
  const auto vector = read_file("/proc/" + std::to_string(pid) + "/auxv");
  std::uint64_t entry[2] = {};
  for (std::size_t at = 0; vector && at + sizeof entry <= vector->size(); at += sizeof entry) {
    std::memcpy(entry, vector->data() + at, sizeof entry);
    if (entry[0] == AT_BASE) return Addr{entry[1]};
  }
  return {};
}

// Its path as the kernel resolved it: the one that the program names may lead through links of another root.
Result<std::string> interpreter_of(pid_t pid) {
  const Addr base = interpreter_base(pid);
  if (!base) return std::string();
  const auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  const auto maps = files->maps();
  if (!maps) return maps.error();
  for (const target::Mapping& m : *maps)
    if (m.begin == base && m.is_file()) return m.path;
  return std::string();
}

Result<std::string> add_static_hook(const std::string& program, plan::FileCache& files, ProbeSet& probes) {
  if (!wants_ifunc(probes)) return std::string();
  auto file = files.open_now(program);
  const Status added = file ? add_hook(*file, "__libc_setup_tls", probes) : Status(file.error());
  return added ? std::string() : "IFUNC probes in a static program need its symbols: " + added.error().text;
}

}  // namespace

Result<std::string> add_library_hook(pid_t pid, plan::FileCache& files, ProbeSet& probes) {
  const std::string proc = "/proc/" + std::to_string(pid);
  auto interpreter = interpreter_of(pid);
  if (!interpreter) return interpreter.error();
  if (interpreter->empty()) return add_static_hook(proc + "/exe", files, probes);
  auto loader = files.open_now(proc + "/root" + *interpreter);
  if (!loader) return loader.error();
  const Status added = add_hook(*loader, "_dl_debug_state", probes);
  return added ? std::string() : "libraries cannot be followed: " + added.error().text;
}

}  // namespace uprobe::control
