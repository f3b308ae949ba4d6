// SPDX-License-Identifier: MIT
// A process may have any mappings: its files are opened with the limits for files that a target names.
#include "engine/resolve/mapped_objects.h"

#include <algorithm>
#include <set>

#include "engine/base/process_paths.h"
#include "engine/base/procfs.h"
#include "engine/process/mapped_file.h"
#include "engine/proxy/memory.h"
#include "engine/target/maps.h"

namespace uprobe {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

struct Mapped {
  LoadedObject object;
  std::vector<std::string> needed;
  bool is_taken = false;
};

std::vector<Mapped> mapped_files(pid_t pid, const elf::Identity& program, plan::FileCache& files) {
  std::vector<Mapped> found;
  std::set<elf::Identity> known{program};
  for (const auto& [mapping, identity] : control::mapped_text(pid)) {
    if (found.size() >= kMostObjects) break;
    if (!known.insert(identity).second) continue;
    std::string path = mapping.path;
    if (control::identity_of(path) != identity) {
      auto name = control::mapped_name(pid, mapping, identity);
      if (!name) continue;
      path = name.take();
    }
    const auto file = files.open(path, elf::NamedBy::target);
    if (!file) continue;
    elf::LinkNames names = (*file)->link_names();
    found.push_back({{std::move(path), std::move(names.soname)}, std::move(names.needed)});
  }
  return found;
}

}  // namespace

bool has_replaced_mapping(pid_t pid, const std::string& path) {
  const auto maps = proxy::read_of(pid, procfs::path(pid, "maps"));
  if (!maps) return false;
  bool is_replaced = false;
  for (const target::Mapping& mapping : target::parse_maps(*maps)) {
    if (mapping.path == path) return false;
    is_replaced = is_replaced || mapping.path == path + std::string(kDeleted);
  }
  return is_replaced;
}

std::vector<LoadedObject> mapped_objects(pid_t pid, const std::string& program, plan::FileCache& files) {
  std::vector<LoadedObject> order;
  const std::string path = program == procfs::path(pid, "exe") ? program_of(pid).path : program;
  const auto first = files.open(path);
  if (!first) return order;
  std::vector<Mapped> mapped = mapped_files(pid, (*first)->identity(), files);
  elf::LinkNames names = (*first)->link_names();
  order.push_back({path, names.soname});
  std::vector<std::string> needed = std::move(names.needed);
  for (std::size_t i = 0; i < needed.size() && i < kMostObjects; ++i) {
    const std::string name = needed[i].substr(needed[i].rfind('/') + 1);
    const auto found = std::find_if(mapped.begin(), mapped.end(), [&](const Mapped& one) {
      return !one.is_taken && (one.object.soname == name || one.object.path.ends_with("/" + name));
    });
    if (found == mapped.end()) continue;
    found->is_taken = true;
    order.push_back(found->object);
    if (needed.size() < kMostObjects) needed.insert(needed.end(), found->needed.begin(), found->needed.end());
  }
  for (const Mapped& one : mapped)
    if (!one.is_taken) order.push_back(one.object);
  return order;
}

}  // namespace uprobe
