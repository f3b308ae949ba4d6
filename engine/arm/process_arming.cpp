// SPDX-License-Identifier: MIT
#include "engine/arm/process_arming.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "arch/abi/elf.h"
#include "engine/base/text.h"
#include "engine/inject/code_files.h"
#include "engine/patch/batched_patch.h"
#include "engine/patch/islands.h"
#include "engine/patch/patch.h"
#include "engine/patch/semaphores.h"
#include "engine/patch/single_threaded_start.h"

namespace uprobe::control {
namespace {

bool is_changed_code(const shared::Point& point, const shared::Undo& undo, const std::uint8_t* after) {
  const shared::ArmedText armed = shared::armed_text(point);
  for (unsigned i = 0; i + 1 < point.insn_bytes && i < point.following_bytes; ++i)
    if (i + 1 >= armed.length && after[i] != undo.original[i + 1] && after[i] != shared::kBreakpoint) return true;
  return false;
}

// Restores the text while other threads may be executing it. False where the probe has to stay.
bool take_out(target::Target& target, const shared::Point& point, const shared::Undo& undo) {
  const Patch patch = patch_back_now(target, point, undo);
  ProcessSerializer serializer(target.pid());
  return patch_running(target, {&patch, 1}, serializer).front() == Patched::done;
}

Status write_each(target::Target& target, const std::vector<ArmedPlace>& texts) {
  for (const ArmedPlace& text : texts) RETURN_IF_ERROR(target.write(text.at, text.armed.bytes, text.armed.length));
  return ok();
}

Status write_together(target::Target& target, std::span<const ArmedPlace> texts) {
  std::vector<TextPiece> pieces;
  for (const ArmedPlace& text : texts) pieces.push_back({text.at, {text.armed.bytes, text.armed.length}});
  return write_in_runs(target, std::move(pieces));
}

// Link time, by the writable segments.
std::optional<std::uint64_t> address_of_data(const elf::ElfFile& file, std::uint64_t offset) {
  for (const elf::Segment& s : file.segments())
    if (s.writable && offset >= s.offset && offset - s.offset < s.file_bytes) return s.address + (offset - s.offset);
  return {};
}

// Whether code is all that the session wants of libraries.
bool wants_code_alone(const ProbeSet& probes) {
  return probes.semaphores().empty() && probes.objects().empty() &&
         std::ranges::all_of(probes.files(), [](const FilePoints& file) { return file.ifuncs.empty(); });
}

}  // namespace

Status hear_all_hooks(ArmState& state, target::Target& target, Block& block) {
  if (block.head().quiet_hooks == 0 || wants_code_alone(state.probes)) return ok();
  RETURN_IF_ERROR(state.known.renew(target, block));
  block.head().quiet_hooks = 0;
  return block.write_head(target);
}

bool can_be_armed(const target::Mapping& m) { return m.executable && !m.shared && !m.writable && m.is_file(); }

ProcessArming::ProcessArming(ArmState& its_state, target::Target& in, Block& its_block,
                             const std::vector<target::Mapping>& its_maps, const Changed& reported, How how)
    : state(its_state), target(in), block(its_block), maps(its_maps), range(reported), is_live(how == How::live) {
  if (const auto* m = target::mapping_at(maps, Addr{block.head().agent_base})) agent_ = m->path;
}

// An armed point in the mapping shows that its code was there before.
bool ProcessArming::is_just_mapped(const target::Mapping& m) const {
  const auto points = block.points_in(m.begin, m.end);
  const auto is_standing = [&](std::uint32_t i) {
    const shared::Point& point = block.points()[i];
    return point.state == static_cast<std::uint32_t>(shared::PointState::armed) && has_armed_text(target, block, point);
  };
  return range.begin <= m.begin && m.end <= range.end && std::none_of(points.begin(), points.end(), is_standing);
}

Status ProcessArming::change() { return std::exchange(is_changed_, true) ? ok() : block.renew(target); }

bool ProcessArming::is_quiet() {
  if (!is_quiet_) {
    const bool may_be = !is_live && !target.is_held();
    is_quiet_ = may_be && (target.is_new_program() || is_single_threaded_at_start(target, block.address()));
  }
  return *is_quiet_;
}

bool ProcessArming::no_thread_is_inside(const plan::Window& window, Addr begin) {
  using plan::WindowKind;
  if (!target.is_held() || window.kind == WindowKind::prefix_window || window.kind == WindowKind::short_jump)
    return false;
  if (window.kind == WindowKind::one) return true;
  if (!kept_) kept_ = LiveCodeAddresses::of(target, maps);
  return !kept_->has_in(begin + 1, begin + window.length);
}

bool ProcessArming::follows_returns() {
  const auto brings_them = [&](const target::Mapping& m) {
    if (!is_armable(m)) return false;
    if (m.path.find(arch::kLoaderName) != std::string::npos) return true;
    const auto& version = version_of(m);
    return version && state.own.in(target, m, *version).has_signal_return;
  };
  if (!follows_returns_) follows_returns_ = std::any_of(maps.begin(), maps.end(), brings_them);
  return *follows_returns_;
}

bool ProcessArming::finds_stubs() {
  const auto has_point = [&](const target::Mapping& m) {
    const auto version = is_armable(m) ? version_of(m) : std::nullopt;
    return version && state.own.in(target, m, *version).finds_objects;
  };
  if (!finds_stubs_) finds_stubs_ = state.options.is_preloaded || std::any_of(maps.begin(), maps.end(), has_point);
  return *finds_stubs_;
}

Status ProcessArming::note_code(const target::Mapping& m) {
  shared::ProcessBlock& head = block.head();
  const bool is_new = state.options.insists_on_stubs && std::exchange(head.any_caller, 1) == 0;
  const shared::CodeFile file = code_file_of(target, maps, m);
  if (block.knows_code(file) && !is_new) return ok();
  RETURN_IF_ERROR(change());
  return block.note_code(target, file);
}

Status ProcessArming::forbid_stubs(const target::Mapping& m) {
  shared::ProcessBlock& head = block.head();
  if (head.no_stubs != 0) return ok();
  head.no_stubs = 1;
  state.report.notes.insert(m.path +
                            ": exceptions that it throws cannot pass return stubs: returns in this process are not "
                            "followed (--return=exits)");
  return target.write(block.address() + offsetof(shared::ProcessBlock, no_stubs), &head.no_stubs, sizeof head.no_stubs);
}

Status ProcessArming::note_objects() {
  std::vector<shared::MappedObject> places;
  for (const NamedObject& object : state.probes.objects()) {
    std::string why;
    places.push_back(state.objects.find(target, maps, object, why));
    if (!why.empty()) state.report.notes.insert(object.file->path() + ": " + why);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const shared::MappedObject& known = block.head().objects[i];
    if (known.sentinel_at == places[i].sentinel_at && known.bias == places[i].bias) continue;
    RETURN_IF_ERROR(change());
    RETURN_IF_ERROR(block.set_object(target, i, places[i]));
  }
  return ok();
}

// Sorted. Only of files that are mapped as a loader maps them: a program that edits a copy of the file in memory finds it
// unchanged.
std::vector<Addr> ProcessArming::wanted_semaphores() const {
  std::vector<Addr> wanted;
  std::map<const elf::ElfFile*, std::set<std::uint64_t>> biases;
  for (const PlannedSemaphore& one : state.probes.semaphores()) {
    const auto address = one.events.empty() ? std::nullopt : address_of_data(*one.file, one.offset);
    if (!address) continue;
    const auto [known, is_new] = biases.try_emplace(one.file.get());
    std::string why;
    if (is_new) known->second = biases_of(target.pid(), maps, {.file = one.file, .version = one.version}, why);
    for (const std::uint64_t bias : known->second) {
      const target::Mapping* m = target::mapping_at(maps, Addr{*address + bias});
      const bool is_its =
          m != nullptr && holds_semaphores(*m) && m->offset + (*address + bias - m->begin.value) == one.offset;
      if (is_its) wanted.push_back(Addr{*address + bias});
    }
  }
  std::ranges::sort(wanted);
  return wanted;
}

Status ProcessArming::count_semaphores() {
  const std::vector<Addr> wanted = wanted_semaphores();
  if (are_counted(target, block, wanted)) return ok();
  RETURN_IF_ERROR(state.known.renew(target, block));
  is_changed_ = true;
  Status counted = control::count_semaphores(target, block, maps, wanted);
  if (counted || counted.error().code != Code::limit) return counted;
  state.report.notes.insert("markers beyond " + std::to_string(shared::kSemaphores) +
                            " semaphores in one process are not switched on");
  return ok();
}

Status ProcessArming::note_unbound(bool is_unbound) {
  if ((block.head().unbound != 0) == is_unbound) return ok();
  RETURN_IF_ERROR(change());
  block.head().unbound = is_unbound ? 1 : 0;
  return block.write_head(target);
}

// Whether all of the loader's own calls that the agent has to see are points here, those of mmap among them.
bool ProcessArming::loader_shows_code() {
  const auto shows_code = [&](const target::Mapping& m) {
    if (!is_armable(m) || m.path.find(arch::kLoaderName) == std::string::npos) return false;
    const auto& version = version_of(m);
    const FilePoints* own = version ? &state.own.in(target, m, *version) : nullptr;
    return own != nullptr && own->maps_memory && std::ranges::all_of(own->points, [&](const PlannedPoint& point) {
             return point.role == shared::PointRole::quick_call ||
                    has_standing(m.begin + (point.site.offset - m.offset));
           });
  };
  return std::ranges::any_of(maps, shows_code);
}

Status ProcessArming::note_quiet_hooks() {
  constexpr std::uint32_t kAtStart = 2;
  if (!target.is_new_program()) return hear_all_hooks(state, target, block);
  if (!wants_code_alone(state.probes) || !loader_shows_code()) return ok();
  RETURN_IF_ERROR(change());
  block.head().quiet_hooks = kAtStart;
  return block.write_head(target);
}

Status ProcessArming::make_room() {
  std::vector<target::Mapping> codes;
  std::ranges::copy_if(maps, std::back_inserter(codes), can_be_armed);
  RETURN_IF_ERROR(change());
  return spare_rooms(target, block, codes) ? block.write_head(target) : ok();
}

Status ProcessArming::keep_room() {
  bool made = false;
  for (const target::Mapping& m : maps) {
    if (!can_be_armed(m) || has_spare_room(block, m.begin, m.end)) continue;
    RETURN_IF_ERROR(change());
    made = bool(spare_room(target, block, m.begin, m.end)) || made;
  }
  return made ? block.write_head(target) : ok();
}

Status ProcessArming::look_at_following(std::uint32_t place) {
  const std::uint32_t index = block.leads_to(place);
  const shared::Point& point = block.points()[index];
  const shared::Undo& undo = block.undo()[index];
  const Addr address{point.address};
  std::uint8_t after[shared::kMostFollowing] = {};
  if (address < range.begin || range.end <= address) return ok();
  if (!target.read(address + 1, after, point.following_bytes) || shared::is_as_before(point, undo, after)) return ok();
  RETURN_IF_ERROR(change());
  if (!is_changed_code(point, undo, after))
    return block.set_following(target, index, {after, after + point.following_bytes});
  state.report.notes.insert("the program has changed probed code at " + hex(address.value) +
                            ": it is not probed any more");
  return take_out(target, point, undo) ? block.set_state(target, index, shared::PointState::disarmed) : ok();
}

Addr ProcessArming::stands(const shared::Point& point) {
  const Addr text{point.address - point.prefix_window};
  standing_.insert({point.address, text.value});
  if (point.jump_bytes == shared::kShortJumpBytes) standing_.insert(point.jump_to);
  return text;
}

Status ProcessArming::arm(const std::vector<ArmedPlace>& texts, bool no_thread_runs) {
  const bool waits = target.is_held() || (!is_live && target.is_new_program());
  if (!waits) return no_thread_runs ? write_together(target, texts) : write_each(target, texts);
  texts_.insert(texts_.end(), texts.begin(), texts.end());
  return ok();
}

// Internal points come first, because without probes they do the least harm.
Status ProcessArming::write_texts() {
  const auto is_own = [](const ArmedPlace& text) { return text.role != shared::PointRole::probe; };
  const auto probes = std::stable_partition(texts_.begin(), texts_.end(), is_own);
  RETURN_IF_ERROR(write_together(target, {texts_.begin(), probes}));
  return write_together(target, {probes, texts_.end()});
}

void ProcessArming::refuse(const PlannedPoint& point, const std::string& why) {
  if (is_live) {
    if (refusal_.empty()) refusal_ = why;
    return;
  }
  ArmReport& report = state.report;
  for (const PlannedConsumer& consumer : point.consumers) report.refusals[consumer.event] = why;
  if (report.first_refusal.empty()) report.first_refusal = why;
  const std::string& path = point.site.file->path();
  report.notes.insert(point.consumers.empty() ? path + ": the agent does not follow the program there: " + why
                                              : path + ":" + hex(point.site.offset) + " not probed: " + why);
}

}  // namespace uprobe::control
