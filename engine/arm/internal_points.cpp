// SPDX-License-Identifier: MIT
#include "engine/arm/internal_points.h"

#include <algorithm>

#include "engine/flow/followed_calls.h"
#include "engine/plan/unwinder_signs.h"
#include "engine/process/mapped_file.h"

namespace uprobe::control {
namespace {

bool is_libunwind(const std::string& path) { return path.compare(path.rfind('/') + 1, 9, "libunwind") == 0; }

}  // namespace

// The file of a mapping, if the agent may need points in it.
std::shared_ptr<const elf::ElfFile> InternalPoints::file_of(const target::Target& target, const target::Mapping& m,
                                                            const FileVersion& version) {
  for (const FilePoints& probed : probes_.files())
    if (probed.version == version) return probed.file;
  const auto name = mapped_name(target.pid(), m, version.identity);
  if (name && !is_libunwind(*name) && !plan::may_have_followed_calls(*name, m.offset, m.end - m.begin) && !fears(*name))
    return nullptr;
  auto file = name ? elf::ElfFile::open(*name, elf::NamedBy::target) : Result<elf::ElfFile>(name.error());
  if (!file || file->identity() != version.identity) {
    const std::string why = file ? "it has changed since it was mapped" : file.error().text;
    notes_.insert(m.path + ": its system calls are not followed: " + why);
    return nullptr;
  }
  return std::make_shared<const elf::ElfFile>(file.take());
}

// If a probe is on the call itself, it has to be hit before the agent makes the call, so the internal point goes there as well.
plan::SystemCallSite InternalPoints::beside_probes(const elf::ElfFile& file, plan::SystemCallSite site) const {
  if (site.role != shared::PointRole::open_call) return site;
  const std::uint64_t call = site.offset + shared::kBeforeOpen;
  const auto is_call = [call](const PlannedPoint& point) { return point.site.offset == call; };
  for (const FilePoints& probed : probes_.files())
    if (probed.file.get() == &file && std::any_of(probed.points.begin(), probed.points.end(), is_call))
      return {call, shared::PointRole::system_call};
  return site;
}

bool InternalPoints::fears(const std::string& path) const {
  return probes_.wants_stubs() && !wishes_.insists_on_stubs && plan::may_unwind_by_itself(path);
}

// glibc's loader brings a libc that has these points.
//
// nongnu libunwind wants to write to the place where a return address is stored, and a stub's caller has no such place. It may
// be part of another file.
void InternalPoints::add_unwinders(FilePoints& own) {
  own.fears_stubs = own.file->find_any("__libunwind_Unwind_RaiseException").has_value() || fears(own.file->path());
  const auto loader = own.file->find_any("_rtld_global");
  own.finds_objects = loader && loader->dynamic;
  if (wishes_.is_preloaded) return;
  using shared::PointRole;
  for (const auto& [name, role] :
       {std::pair("_dl_find_object", PointRole::find_object), {"dl_iterate_phdr", PointRole::iterate_objects}}) {
    const auto symbol = own.file->find_any(name);
    const auto offset = symbol ? own.file->offset_of_address(symbol->address) : std::nullopt;
    auto site = offset ? plan::nameless_site_at(own.file, *offset) : Result<plan::Site>(Error{});
    if (!site) continue;
    own.points.push_back({.site = site.take(), .consumers = {}, .role = role});
    own.finds_objects = true;
  }
}

bool InternalPoints::is_probed(const elf::ElfFile& file) const {
  return std::any_of(probes_.files().begin(), probes_.files().end(),
                     [&](const FilePoints& probed) { return probed.file.get() == &file; });
}

void InternalPoints::trim() {
  constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
  constexpr std::size_t kMostParts = 16384;
  std::uint64_t bytes = 0;
  for (const auto& [file, own] : by_file_)
    if (!is_probed(*file)) bytes += file->bytes().size();
  if (bytes <= kMostBytes && known_.size() <= kMostParts) return;
  known_.clear();
  std::erase_if(by_file_, [this](const auto& one) { return !is_probed(*one.first); });
}

const FilePoints& InternalPoints::in(const std::shared_ptr<const elf::ElfFile>& file) {
  const auto [entry, is_new] = by_file_.try_emplace(file.get());
  FilePoints& own = entry->second;
  if (!is_new) return own;
  own.file = file;
  const auto sites = plan::system_call_sites(*file, wishes_.ends_too);
  if (!sites) notes_.insert(file->path() + ": its system calls are not followed: " + sites.error().text);
  for (const plan::SystemCallSite& any : sites ? *sites : std::vector<plan::SystemCallSite>()) {
    const plan::SystemCallSite found = beside_probes(*file, any);
    auto site = plan::nameless_site_at(file, found.offset);
    if (!site) continue;
    own.has_signal_return = own.has_signal_return || found.is_signal_return;
    own.maps_memory = own.maps_memory || found.maps_memory;
    own.points.push_back({.site = site.take(), .consumers = {}, .role = found.role});
  }
  if (probes_.wants_stubs()) add_unwinders(own);
  std::sort(own.points.begin(), own.points.end(),
            [](const PlannedPoint& a, const PlannedPoint& b) { return a.site.offset < b.site.offset; });
  return own;
}

const FilePoints& InternalPoints::in(const target::Target& target, const target::Mapping& m,
                                     const FileVersion& version) {
  const auto [entry, is_new] = known_.try_emplace({version, m.offset, m.end - m.begin}, &none_);
  if (!is_new) return *entry->second;
  if (const auto file = file_of(target, m, version)) entry->second = &in(file);
  return *entry->second;
}

}  // namespace uprobe::control
