// SPDX-License-Identifier: MIT
#include "engine/symbolize/mapping_log.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/base/procfs.h"
#include "engine/base/regular_file.h"
#include "engine/elf/debug_files.h"
#include "engine/proxy/memory.h"
#include "engine/target/maps.h"
#include "engine/trace/task_names.h"

namespace uprobe::control {
namespace {

constexpr std::size_t kMostMappings = 4096;  // of one process
constexpr std::size_t kMostKnownBytes = 32 << 20, kMostNotedBytes = 16 << 20;
constexpr std::size_t kMostIds = 16384;

std::size_t bytes_of(const std::vector<CodeMapping>& files) {
  return std::transform_reduce(files.begin(), files.end(), sizeof(NotedMappings), std::plus<>(),
                               [](const CodeMapping& file) { return sizeof file + file.path.size(); });
}

std::vector<CodeMapping> code_of(const std::string& text) {
  std::vector<CodeMapping> files;
  for (target::Mapping& m : target::parse_maps(text))
    if (m.executable && (m.is_file() || m.path == kVdso))
      files.push_back({m.begin.value, m.end.value, m.offset, m.inode, std::move(m.path)});
  return files;
}

// What `now` has and `before` has not; both are in order of address.
std::vector<CodeMapping> added(const std::vector<CodeMapping>& before, const std::vector<CodeMapping>& now) {
  std::vector<CodeMapping> found;
  auto at = before.begin();
  for (const CodeMapping& file : now) {
    while (at != before.end() && at->begin < file.begin) ++at;
    if (at == before.end() || *at != file) found.push_back(file);
  }
  return found;
}

}  // namespace

void MappingLog::remember(std::uint32_t pid, Look look) {
  const std::size_t bytes = bytes_of(look.files);
  if (known_bytes_ + bytes > kMostKnownBytes) known_.clear(), known_bytes_ = 0;
  const auto [known, is_new] = known_.try_emplace(pid);
  known_bytes_ += bytes - (is_new ? 0 : bytes_of(known->second.files));
  known->second = std::move(look);
}

void MappingLog::add(NotedMappings noted) {
  noted_bytes_ += bytes_of(noted.files);
  if (noted_bytes_ <= kMostNotedBytes) return noted_.push_back(std::move(noted));
  ++dropped_;
  if (const auto known = known_.find(noted.pid); known != known_.end()) {
    known_bytes_ -= bytes_of(known->second.files);
    known_.erase(known);
  }
}

// Of two looks at once the one that began later counts.
void MappingLog::note(pid_t pid, bool is_new) {
  const auto number = static_cast<std::uint32_t>(pid);
  const std::uint64_t now = trace::TaskNames::now_ns();
  const auto text = proxy::read_of(pid, procfs::path(pid, "maps"));
  if (!text || text->empty()) return;
  std::vector<CodeMapping> files = code_of(*text);
  const std::lock_guard lock(lock_);
  if (files.size() > kMostMappings) files.resize(kMostMappings), ++dropped_;
  const auto before = known_.find(number);
  const bool is_all = is_new || before == known_.end();
  if (!is_all && now < before->second.ns) return;
  NotedMappings noted{
      .pid = number, .ns = now, .is_all = is_all, .files = is_all ? files : added(before->second.files, files)};
  remember(number, {now, std::move(files)});
  if (!noted.files.empty()) add(std::move(noted));
}

std::vector<NotedMappings> MappingLog::take() {
  const std::lock_guard lock(lock_);
  noted_bytes_ = 0;
  return std::exchange(noted_, {});
}

std::uint64_t MappingLog::dropped() const {
  const std::lock_guard lock(lock_);
  return dropped_;
}

// Empty where the path leads to another file by now.
const std::string& BuildIds::id_of(const CodeMapping& mapping) {
  if (known_.size() >= kMostIds) known_.clear();
  const auto [at, is_new] = known_.try_emplace({mapping.path, mapping.inode});
  if (!is_new || mapping.path == kVdso) return at->second;
  const auto file = open_regular(mapping.path);
  if (file && file->about.st_ino == mapping.inode) at->second = elf::build_id_in(file->fd);
  return at->second;
}

format::ProcessMappings BuildIds::add_to(const NotedMappings& noted) {
  format::ProcessMappings all{.pid = noted.pid, .ns = noted.ns, .is_all = noted.is_all, .files = {}};
  all.files.reserve(noted.files.size());
  for (const CodeMapping& file : noted.files)
    all.files.push_back({file.begin, file.end, file.offset, file.path, id_of(file)});
  return all;
}

}  // namespace uprobe::control
