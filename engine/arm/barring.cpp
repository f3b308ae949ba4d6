// SPDX-License-Identifier: MIT
#include "engine/arm/barring.h"

#include <algorithm>
#include <string>

#include "arch/code/scan.h"
#include "engine/arm/live_points.h"
#include "engine/arm/process_arming.h"
#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/patch/disarm.h"
#include "engine/patch/serialize.h"

namespace uprobe::control {

using shared::BarredCode;
using shared::BarredStep;

namespace {

constexpr std::uint64_t kSignatureBytes = 4;
constexpr CodeRange kEverything{Addr{0}, Addr{~std::uint64_t{0}}};

const char* why_barred(BarredStep step) {
  switch (step) {
    case BarredStep::sequence:
      return "inside a restartable sequence (rseq) whose descriptor the program makes at run time";
    case BarredStep::functions:
      return "in the functions of a restartable sequence (rseq) whose descriptor the program makes at run time and was "
             "not found";
    case BarredStep::object:
      return "in the file of a restartable sequence (rseq) whose descriptor the program makes at run time and was not "
             "found";
    case BarredStep::process:
      return "in a process with restartable sequences (rseq) whose descriptors it makes at run time and were not found";
  }
  return "";
}

bool is_file_of(const BarredCode& barred, const target::Mapping& m) {
  return (barred.device == 0 && barred.inode == 0) || (barred.device == m.device && barred.inode == m.inode);
}

bool touches(const BarredCode& barred, std::uint64_t begin, std::uint64_t end) {
  const bool on_signature = begin < barred.abort && end > barred.abort - kSignatureBytes;
  return (begin < barred.end && end > barred.begin) || on_signature;
}

// The latest step taken for the handler at `abort`; null: none.
BarredCode* known_abort(shared::ProcessBlock& head, Addr abort, const target::Mapping& m) {
  BarredCode* found = nullptr;
  for (BarredCode& barred : head.barred)
    if (barred.abort == abort.value && is_file_of(barred, m) && (found == nullptr || barred.step >= found->step))
      found = &barred;
  return found;
}

bool is_armed_probe(const shared::Point& point) {
  return point.state == static_cast<std::uint32_t>(shared::PointState::armed) &&
         point.role == static_cast<std::uint32_t>(shared::PointRole::probe) && !shared::is_long_jump(point);
}

bool has_armed_probe(const Block& block) {
  return std::any_of(block.points().begin(), block.points().end(), is_armed_probe);
}

// The end of the bytes that a point replaces or displaces.
std::uint64_t end_of(const shared::Point& point) {
  const std::uint64_t bytes = point.jump_bytes == 0 ? 1 : std::max(point.jump_bytes, point.code_bytes);
  return point.address + bytes;
}

// Adds the armed probes that touch the range, and extends the range to the beginning of the first of them.
void add_probes(const Block& block, CodeRange& range, Addr abort, std::set<std::uint32_t>& probes) {
  constexpr std::uint64_t kLongest = sizeof(shared::Undo::original);
  const BarredCode barred{.begin = range.begin.value, .end = range.end.value, .abort = abort.value};
  for (std::uint32_t i = 0; i < block.points().size(); ++i) {
    const shared::Point& point = block.points()[i];
    if (!is_armed_probe(point) || !touches(barred, point.address, end_of(point))) continue;
    if (point.address < barred.begin && barred.begin - point.address < kLongest)
      range.begin = std::min(range.begin, Addr{point.address});
    probes.insert(shared::is_prefix_window(point) ? block.after_prefix_window(i).value_or(i) : i);
  }
}

std::set<std::uint32_t> probes_in(const Block& block, std::vector<CodeRange>& ranges, Addr abort) {
  std::set<std::uint32_t> probes;
  for (CodeRange& range : ranges) add_probes(block, range, abort, probes);
  return probes;
}

// Link-time addresses that the handler reaches without a call; a handler is short.
std::vector<std::uint64_t> led_to(const elf::ElfFile& file, std::uint64_t abort) {
  std::vector<std::uint64_t> open{abort}, all;
  for (int instructions = 32; instructions > 0 && !open.empty();) {
    std::uint64_t at = open.back();
    open.pop_back();
    all.push_back(at);
    for (bool goes_on = true; goes_on && instructions > 0; --instructions) {
      const auto offset = file.offset_of_address(at);
      arch::Scanned scanned;
      if (!offset || !arch::scan(file.bytes().subspan(*offset), Addr{at}, scanned)) break;
      const bool is_jump = scanned.leads == arch::Leads::jump || scanned.leads == arch::Leads::jump_if;
      if (is_jump && std::count(all.begin(), all.end(), scanned.target) == 0) open.push_back(scanned.target);
      goes_on = scanned.falls_through;
      at += scanned.length;
    }
  }
  return all;
}

std::vector<CodeRange> functions_of(const elf::ElfFile& file, const target::Mapping& m, Addr abort) {
  const auto address = file.address_of_offset(abort - m.begin + m.offset);
  std::vector<CodeRange> found;
  for (const std::uint64_t at : address ? led_to(file, *address) : std::vector<std::uint64_t>()) {
    const auto function = file.range_at(at);
    const auto offset = function ? file.offset_of_address(function->begin) : std::nullopt;
    if (!offset || *offset < m.offset) continue;
    const Addr begin = m.begin + (*offset - m.offset);
    const auto is_same = [begin](const CodeRange& range) { return range.begin == begin; };
    if (std::none_of(found.begin(), found.end(), is_same))
      found.push_back({begin, begin + (function->end - function->begin)});
  }
  return found;
}

std::vector<CodeRange> object_of(const std::vector<target::Mapping>& maps, const target::Mapping& code) {
  CodeRange all{code.begin, code.end};
  for (const target::Mapping& m : maps)
    if (m.executable && m.device == code.device && m.inode == code.inode)
      all = {std::min(all.begin, m.begin), std::max(all.end, m.end)};
  return {all};
}

// False: the table is full.
bool note_ranges(shared::ProcessBlock& head, const std::vector<CodeRange>& ranges, BarredStep step, Addr abort,
                 const target::Mapping& m) {
  const auto is_free = [](const BarredCode& barred) { return barred.abort == 0; };
  const auto room = std::count_if(std::begin(head.barred), std::end(head.barred), is_free);
  if (static_cast<std::size_t>(room) < ranges.size()) return false;
  for (const CodeRange& range : ranges)
    *std::find_if(std::begin(head.barred), std::end(head.barred), is_free) = {.begin = range.begin.value,
                                                                              .end = range.end.value,
                                                                              .abort = abort.value,
                                                                              .device = m.device,
                                                                              .inode = m.inode,
                                                                              .step = static_cast<std::uint32_t>(step),
                                                                              .late = 0};
  return true;
}

void note_everything(shared::ProcessBlock& head, Addr abort) {
  std::end(head.barred)[-1] = {.begin = kEverything.begin.value,
                               .end = kEverything.end.value,
                               .abort = abort.value,
                               .device = 0,
                               .inode = 0,
                               .step = static_cast<std::uint32_t>(BarredStep::process),
                               .late = 0};
}

// Whether the consumer is one of several that follow a function together: its exits, and the entry that they need.
bool follows_function(const shared::Consumer& consumer) {
  const auto kind = static_cast<shared::ConsumerKind>(consumer.kind);
  return kind == shared::ConsumerKind::exit || kind == shared::ConsumerKind::note;
}

}  // namespace

const char* reason_barred(const Block& block, const target::Mapping& m, Addr begin, Addr end) {
  for (const BarredCode& barred : block.head().barred)
    if (barred.abort != 0 && is_file_of(barred, m) && touches(barred, begin.value, end.value))
      return why_barred(static_cast<BarredStep>(barred.step));
  return nullptr;
}

const char* reason_barred(const Block& block, const PlannedPoint& point, const target::Mapping& m) {
  if (point.role != shared::PointRole::probe) return nullptr;
  const Addr at = m.begin + (point.site.offset - m.offset);
  return reason_barred(block, m, at, at + 1);
}

Status Barring::run() {
  if (block_.head().left != 0 || !has_armed_probe(block_)) return ok();
  auto maps = target_.maps();
  if (!maps) return maps.error();
  maps_ = maps.take();
  code_ = target::mapping_at(maps_, place_.abort);
  if (code_ == nullptr || !code_->executable) return Error{.code = Code::damaged, .text = "a malformed request"};
  return next_step();
}

Status Barring::next_step() {
  RETURN_IF_ERROR(state_.known.renew(target_, block_));
  BarredCode* const known = known_abort(block_.head(), place_.abort, *code_);
  if (known == nullptr) return take_from(BarredStep::sequence);
  if (known->late == 0) return take_from(static_cast<BarredStep>(known->step));
  --known->late;
  return block_.write_head(target_);
}

// Takes the first step, from `step` on, that affects any probe.
Status Barring::take_from(BarredStep step) {
  std::vector<CodeRange> ranges;
  std::set<std::uint32_t> probes;
  for (auto next = static_cast<std::uint32_t>(step);; ++next) {
    step = static_cast<BarredStep>(next);
    ranges = ranges_of(step);
    probes = probes_in(block_, ranges, place_.abort);
    if (!probes.empty() || step == BarredStep::process) break;
  }
  const bool is_all = step == BarredStep::process;
  if (is_all || !note_ranges(block_.head(), ranges, step, place_.abort, *code_)) {
    note_everything(block_.head(), place_.abort);
    ranges = {kEverything}, step = BarredStep::process;
    probes = probes_in(block_, ranges, place_.abort);
  }
  RETURN_IF_ERROR(block_.write_head(target_));
  const Status taken = take(step, probes);
  if (!taken) state_.report.notes.insert(code_->path + ": a restartable sequence (rseq): " + taken.error().text);
  // Counted after the text is restored: threads that have trapped until now come once more.
  BarredCode* const last = known_abort(block_.head(), place_.abort, *code_);
  if (last != nullptr) last->late = static_cast<std::uint32_t>(threads_());
  return block_.write_head(target_);
}

// A function that loses an exit loses all of them: counts of some of its returns would be useless.
Status Barring::take(BarredStep step, const std::set<std::uint32_t>& probes) {
  std::set<std::uint16_t> events, functions;
  for (const std::uint32_t i : probes)
    for (const shared::Consumer& c : block_.list_of(i)) {
      events.insert(c.event);
      if (follows_function(c)) functions.insert(c.event);
    }
  note(step, events);
  const auto stays = [&](std::uint32_t point, const shared::Consumer& c) {
    return probes.count(point) == 0 && (!follows_function(c) || functions.count(c.event) == 0);
  };
  RETURN_IF_ERROR(strip(state_, target_, block_, stays));
  // Probes that have no consumers left are still armed.
  std::vector<std::uint32_t> left;
  std::copy_if(probes.begin(), probes.end(), std::back_inserter(left),
               [&](std::uint32_t i) { return is_armed_probe(block_.points()[i]); });
  ProcessSerializer serializer(target_.pid());
  return left.empty() ? ok() : take_out(target_, block_, serializer, left);
}

std::vector<CodeRange> Barring::ranges_of(BarredStep step) {
  if (step == BarredStep::sequence) return find_sequences(target_, maps_, place_);
  if (step == BarredStep::process) return {kEverything};
  if (!code_->is_file()) return {};
  if (step == BarredStep::object) return object_of(maps_, *code_);
  const auto version = mapped_version(target_.pid(), *code_);
  for (const FilePoints& file : state_.probes.files())
    if (version && file.file->identity() == version->identity && !has_changed(file, *version))
      return functions_of(*file.file, *code_, place_.abort);
  return {};
}

void Barring::note(BarredStep step, const std::set<std::uint16_t>& events) {
  ArmReport& report = state_.report;
  const std::string why = why_barred(step);
  for (const std::uint16_t event : events) report.refusals.try_emplace(event, why);
  const pid_t pid = target_.pid();
  const auto same = std::find_if(report.barred.begin(), report.barred.end(),
                                 [&](const BarredReport& known) { return known.pid == pid && known.why == why; });
  if (same != report.barred.end()) {
    same->events.insert(events.begin(), events.end());
    return;
  }
  if (report.barred.size() == kMostBarred) {
    report.notes.insert("further processes have lost probes inside restartable sequences (rseq)");
    return;
  }
  const std::string name = procfs::name_of(pid);
  report.barred.push_back({pid, name.empty() ? "?" : name, events, why});
}

}  // namespace uprobe::control
