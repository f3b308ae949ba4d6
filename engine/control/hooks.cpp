#include "engine/control/hooks.h"

#include <algorithm>

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

}  // namespace

Result<std::string> add_library_hook(pid_t pid, plan::FileCache& files, ProbeSet& probes) {
  const std::string proc = "/proc/" + std::to_string(pid);
  auto program = files.open(proc + "/exe");
  if (!program) return program.error();
  const std::string interpreter = (*program)->interpreter();
  Status added = ok();
  if (interpreter.empty()) {
    if (wants_ifunc(probes)) added = add_hook(*program, "__libc_setup_tls", probes);
    return added ? std::string() : "IFUNC probes in a static program need its symbols: " + added.error().text;
  }
  auto loader = files.open(proc + "/root" + interpreter);
  if (!loader) return loader.error();
  added = add_hook(*loader, "_dl_debug_state", probes);
  return added ? std::string() : "libraries cannot be followed: " + added.error().text;
}

}  // namespace uprobe::control
