// SPDX-License-Identifier: MIT
#include "engine/arm/internal_points.h"

#include <algorithm>
#include <utility>

#include "engine/arm/process_arming.h"
#include "engine/plan/unwinder_signs.h"
#include "engine/process/credentials.h"
#include "engine/process/mapped_file.h"

namespace uprobe::control {
namespace {

FileSearch::Owner owner_of(pid_t pid) {
  const auto its = credentials_of(pid);
  return its ? FileSearch::Owner{its->uids[0], its->permitted, its->user_namespace} : FileSearch::Owner{};
}

}  // namespace

LookOrder InternalPoints::order_for(const target::Target& target, const target::Mapping& m,
                                    const FileVersion& version) const {
  LookOrder order{.part = {version, m.offset, m.end - m.begin},
                  .name = {},
                  .shown = m.path,
                  .probed = nullptr,
                  .fears_unwinders = fears_unwinders(),
                  .ends_too = wishes_.ends_too};
  for (const FilePoints& probed : probes_.files())
    if (probed.version == version) order.probed = probed.file;
  if (auto name = mapped_name(target.pid(), m, version.identity)) order.name = name.take();
  return order;
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
  return fears_unwinders() && plan::may_unwind_by_itself(path);
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

void InternalPoints::trim(const Room& room) {
  std::uint64_t bytes = 0;
  for (const auto& [file, own] : by_file_)
    if (!is_probed(*file)) bytes += file->bytes().size();
  if (bytes <= room.bytes && known_.size() <= room.parts) return;
  known_.clear();
  std::erase_if(by_file_, [this](const auto& one) { return !is_probed(*one.first); });
}

const FilePoints& InternalPoints::in(const std::shared_ptr<const elf::ElfFile>& file) {
  const auto known = by_file_.find(file.get());
  return known != by_file_.end() ? known->second : keep(look_into(file, wishes_.ends_too));
}

const FilePoints& InternalPoints::keep(FileLook look) {
  if (!look.why.empty()) notes_.insert(look.why);
  if (!look.file) return none_;
  const auto [entry, is_new] = by_file_.try_emplace(look.file.get());
  FilePoints& own = entry->second;
  if (!is_new) return own;
  own.file = std::move(look.file);
  for (const plan::SystemCallSite& any : look.sites) {
    const plan::SystemCallSite found = beside_probes(*own.file, any);
    auto site = plan::nameless_site_at(own.file, found.offset);
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

bool InternalPoints::may_look(const LookOrder& order) {
  if (!search_) return true;
  const std::uint64_t work = work_of(order);
  has_put_off_ = has_put_off_ || work > left_;
  if (work > left_) return false;
  left_ -= work;
  return true;
}

const FilePoints* InternalPoints::known_in(const target::Mapping& m, const FileVersion& version) const {
  const auto known = known_.find({version, m.offset, m.end - m.begin});
  return known != known_.end() ? known->second : nullptr;
}

const FilePoints& InternalPoints::in(const target::Target& target, const target::Mapping& m,
                                     const FileVersion& version) {
  if (const FilePoints* known = known_in(m, version)) return *known;
  const MappedPart part{version, m.offset, m.end - m.begin};
  const LookOrder order = order_for(target, m, version);
  return may_look(order) ? *(known_[part] = &keep(look_into(order))) : none_;
}

void InternalPoints::search_apart(std::function<void()> tell) { search_.emplace(std::move(tell)); }

bool InternalPoints::search(const FileSearch::Owner& owner, const LookOrder& order, FileSearch::Jobs& jobs) {
  const auto known = searched_.find(order.part);
  if (known == searched_.end() && searched_.size() >= kMostSearched) return false;
  const auto job = known != searched_.end() ? known->second : std::make_shared<FileSearch::Job>(order);
  if (!job->is_done && !search_->add(owner, job)) return false;
  searched_[order.part] = job;
  jobs.push_back(job);
  return true;
}

FileSearch::Jobs InternalPoints::search_first(const target::Target& target, const std::vector<target::Mapping>& maps) {
  FileSearch::Jobs jobs;
  if (!search_) return jobs;
  if (searched_.empty()) trim();
  std::uint64_t work = 0;
  std::vector<LookOrder> orders;
  MappedVersions versions(target.pid());
  for (const target::Mapping& m : maps) {
    const auto version = can_be_armed(m) ? versions.of(m) : std::nullopt;
    if (!version || known_in(m, *version) != nullptr) continue;
    orders.push_back(order_for(target, m, *version));
    work += work_of(orders.back());
    if (orders.size() == kMostOfLook) break;
  }
  if (work <= kMostAtOnce) return jobs;
  const FileSearch::Owner owner = owner_of(target.pid());
  for (const LookOrder& order : orders)
    if (!search(owner, order, jobs)) break;
  return jobs;
}

void InternalPoints::take_found() {
  std::erase_if(searched_, [this](const auto& one) {
    if (!one.second->is_done) return false;
    trim({kMostEver, 4 * kMostParts});
    known_[one.first] = &keep(one.second->found);
    return true;
  });
}

}  // namespace uprobe::control
