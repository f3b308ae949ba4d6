// SPDX-License-Identifier: MIT
#include "engine/arm/armer.h"

#include <cstddef>

#include "engine/arm/live_points.h"
#include "engine/arm/process_look.h"

namespace uprobe::control {

void Armer::look_ahead(target::Target& target) {
  const auto maps = target.maps();
  if (!maps) return;
  state_.own.begin_pass();
  MappedVersions versions(target.pid());
  for (const target::Mapping& m : *maps) {
    const auto version = can_be_armed(m) ? versions.of(m) : std::nullopt;
    if (!version) continue;
    static_cast<void>(state_.own.in(target, m, *version));
    for (const FilePoints& file : state_.probes.files())
      if (state_.jumps && has_probes(file) && file.file->identity() == version->identity &&
          !has_changed(file, *version))
        static_cast<void>(state_.jumps->of(file));
  }
}

FileSearch::Jobs Armer::search_first(target::Target& target) {
  const auto maps = target.maps();
  return maps ? state_.own.search_first(target, *maps) : FileSearch::Jobs();
}

bool Armer::has_nothing_to_arm(target::Target& target, Addr at, const Changed& mapped) {
  auto block = state_.known.take(target, at);
  if (!block) return false;
  const bool has_nothing = control::has_nothing_to_arm(state_, target, *block, mapped);
  state_.known.keep(block.take());
  return has_nothing;
}

Status Armer::arm(target::Target& target, Addr at, const Changed& changed) {
  std::uint32_t left = 0;
  if (target.read(at + offsetof(shared::ProcessBlock, left), &left, sizeof left) && left != 0) return ok();
  auto block = state_.known.take(target, at);
  if (!block) return block.error();
  Status armed = look(target, *block, changed);
  if (armed) return state_.known.keep(block.take()), ok();
  const std::uint32_t none = 0;  // the next library hook asks for it once more
  static_cast<void>(target.write(at + offsetof(shared::ProcessBlock, quiet_hooks), &none, sizeof none));
  return armed;
}

Status Armer::arm(target::Target& target, Block& block, const Changed& changed) {
  admit(block);
  return look(target, block, changed);
}

Status Armer::look(target::Target& target, Block& block, const Changed& changed) {
  const auto maps = target.maps();
  if (!maps) return maps.error();
  if (!state_.own.searches_apart()) state_.own.trim();
  state_.own.begin_pass();
  return ProcessLook(state_, target, block, *maps, changed).run();
}

Status Armer::take_jumps(target::Target& target, Addr block, const Changed& range) {
  state_.own.begin_pass();
  return control::take_jumps(state_, target, block, range);
}

Status Armer::add(target::Target& target, Addr block, const ProbeSet& more) {
  state_.own.begin_pass();
  return add_points(state_, target, block, more);
}

Status Armer::remove(target::Target& target, Addr block, const std::function<bool(std::uint16_t)>& is_live) {
  return remove_points(state_, target, block, is_live);
}

Status Armer::count_semaphores(target::Target& target, Addr block) {
  return control::count_semaphores(state_, target, block);
}

Status Armer::watch(target::Target& target, Addr block, const WatchedPlace& place) {
  return watch_point(state_, target, block, place);
}

Status Armer::bar(target::Target& target, Addr at, const AbortPlace& place, const Barring::ThreadCount& threads) {
  state_.own.begin_pass();
  auto block = state_.known.take(target, at);
  if (!block) return block.error();
  Status barred = Barring(state_, target, *block, place, threads).run();
  if (barred) state_.known.keep(block.take());
  return barred;
}

}  // namespace uprobe::control
