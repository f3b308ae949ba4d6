// SPDX-License-Identifier: MIT
#include "engine/generated/generated_code.h"

#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "arch/abi/hardware_breakpoints.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/process/processes.h"
#include "engine/target/seccomp.h"

namespace uprobe::control {
namespace {

using target::StoppedProcess;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 100ms;
constexpr int kShare = 10;
constexpr auto kPatience = 100ms;      // for all threads to stop
constexpr unsigned kMostTries = 100;   // for a function whose process or memory is not ready
constexpr std::size_t kMostCode = 15;  // bytes of a function by which it is known
constexpr std::size_t kMostFunctions = 4096, kMostLeftOut = 4096;
constexpr std::uint64_t kMostKept = std::uint64_t{32} << 20;    // bytes of functions, of all processes
constexpr std::uint64_t kMostUnread = std::uint64_t{16} << 20;  // bytes of maps in one look, of all processes
constexpr auto kMostTime = 300ms, kMostTimeNow = 2000ms;        // of one look: requests wait for it

ino_t entry_of(pid_t pid) {
  struct stat status {};
  return ::stat(procfs::path(pid).c_str(), &status) == 0 ? status.st_ino : 0;
}

bool is_same(const std::vector<GeneratedWish>& a, const std::vector<GeneratedWish>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const GeneratedWish& x, const GeneratedWish& y) {
    return x.event == y.event && x.name == y.name;
  });
}

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

// Memory without a file, or of a file without a name (memfd), where code generators write.
bool may_be_generated(const target::Mapping& m) {
  return m.path.empty() || m.path.starts_with("[anon") || m.path.starts_with("/memfd:") || m.path.starts_with("//anon");
}

bool is_in_island(const shared::ProcessBlock& head, Addr at) {
  const auto count = std::min(head.island_count, shared::kMaxIslands);
  return std::any_of(head.islands, head.islands + count,
                     [at](const shared::Island& i) { return at.value - i.base < i.bytes; });
}

// What is not so for ever.
Error not_yet(std::string text) { return Error{.code = Code::refused, .text = std::move(text), .retry = Retry::soon}; }

// A filter that the agent does not know may end the process for a call by which a stop would be smoothed.
void spare_calls(StoppedProcess& held, const shared::ProcessBlock& head) {
  const auto is_filtered = [&](const auto& thread) { return held.is_filtered(thread.tid); };
  const bool is_known = (head.flags & shared::kBlockFiltersKnown) != 0 || target::can_suspend_filters();
  if (!is_known && std::ranges::any_of(held.threads(), is_filtered)) held.forbid_calls();
}

}  // namespace

void GeneratedCode::step() {
  if (Clock::now() >= next_) look_at_all(kMostTime);
}

void GeneratedCode::look_now() { look_at_all(kMostTimeNow); }

// The next look goes on where this one has used up its time.
void GeneratedCode::look_at_all(std::chrono::milliseconds limit) {
  if (probes_.generated().empty() && processes_.empty()) return;
  const auto begin = Clock::now();
  const bool has_new_wishes = notice_wishes();
  find_processes();
  if (has_new_wishes)
    for (auto& [pid, process] : processes_) sort_anew(process);
  unread_ = kMostUnread;
  const std::uint64_t kept = bytes_kept();
  room_ = kMostKept - std::min(kMostKept, kept);
  for (std::size_t looks = 0; looks < processes_.size() && Clock::now() - begin < limit; ++looks) {
    auto next = processes_.upper_bound(last_);
    if (next == processes_.end()) next = processes_.begin();
    last_ = next->first;
    look(next->second);
  }
  const auto end = Clock::now();
  next_ = end + std::max<Clock::duration>(kPause, kShare * (end - begin));
}

// What a function takes, its place in the map included.
std::uint64_t GeneratedCode::bytes_of(const Function& function) {
  constexpr std::uint64_t kNode = 64;
  return kNode + sizeof function + function.name.size() + function.events.size() * sizeof function.events[0];
}

std::uint64_t GeneratedCode::bytes_kept() const {
  std::uint64_t bytes = 0;
  for (const auto& [pid, process] : processes_)
    for (const auto& [at, function] : process.functions) bytes += bytes_of(function);
  return bytes;
}

void GeneratedCode::let_go(pid_t pid) {
  const auto process = processes_.find(pid);
  if (process == processes_.end()) return;
  process->second.places.clear();
  process->second.has_left = true;
}

void GeneratedCode::end() {
  for (auto& [pid, process] : processes_) process.places.clear();
}

bool GeneratedCode::notice_wishes() {
  if (is_same(wishes_, probes_.generated())) return false;
  wishes_ = probes_.generated();
  literal_.clear();
  return true;
}

// For other definitions: probes that nothing wants any more go, the map is read once more.
void GeneratedCode::sort_anew(Process& process) {
  for (auto& [at, function] : process.functions) function.events = wanted_by(function.name);
  std::erase_if(process.functions, [](const auto& known) { return known.second.events.empty(); });
  std::erase_if(process.places, [&](const auto& known) { return !process.functions.contains(known.first); });
  process.map.rewind();
  process.dump.rewind();
}

void GeneratedCode::find_processes() {
  struct stat status {};
  if (::fstat(area_.fd(), &status) != 0) return;
  std::set<pid_t> present;
  for (const pid_t pid : processes_mapping(status.st_ino)) {
    const ino_t entry = entry_of(pid);
    if (pid == ::getpid() || entry == 0) continue;
    present.insert(pid);
    const auto known = processes_.find(pid);
    if (known != processes_.end() && known->second.entry != entry) processes_.erase(known);
    processes_.try_emplace(pid, pid).first->second.entry = entry;
  }
  std::erase_if(processes_, [&](const auto& known) { return present.count(known.first) == 0; });
}

void GeneratedCode::look(Process& process) {
  if (process.has_left) return;
  const auto has_no_probe = [&](const auto& known) { return !process.places.contains(known.first); };
  const auto begin_anew = [&] { std::erase_if(process.functions, has_no_probe); };
  const auto show = [&](const GeneratedFunction& function) { learn(process, function); };
  if (!process.map.read(unread_, begin_anew, show))
    process.dump.read(begin_anew, show, [&](const MovedFunction& moved) { move(process, moved); });
  if (process.map.is_cut())
    notes_.insert("generated code: the map of process " + std::to_string(process.pid) + " is read up to " +
                  std::to_string(PerfMap::kMostBytes >> 20) + " MiB");
  drop_lost(process);
  const std::vector<Addr> chosen = choose(process);
  if (!chosen.empty()) place_all(process, chosen);
}

// A later line about the same memory means that the earlier function is gone.
void GeneratedCode::learn(Process& process, const GeneratedFunction& function) {
  const Addr begin{function.address}, end = begin + function.bytes;
  auto& all = process.functions;
  auto first = all.upper_bound(begin);
  if (first != all.begin() && begin < std::prev(first)->first + std::prev(first)->second.bytes) --first;
  all.erase(first, all.lower_bound(end));
  const unsigned order = ++process.lines;
  std::vector<std::uint16_t> events = wanted_by(function.name);
  if (events.empty()) return;
  Function known{
      .bytes = function.bytes, .name = std::string(function.name), .events = std::move(events), .order = order};
  const std::uint64_t bytes = bytes_of(known);
  if (all.size() >= kMostFunctions || bytes > room_) return void(++not_kept_);
  room_ -= bytes;
  all[begin] = std::move(known);
}

// The function is known by its name from the place where it was; the probe there is lost.
void GeneratedCode::move(Process& process, const MovedFunction& moved) {
  const auto before = process.functions.find(Addr{moved.from});
  if (before == process.functions.end()) return;
  const std::string name = before->second.name;
  process.functions.erase(before);
  learn(process, {moved.to, moved.bytes, name});
}

// A name that a function has is no pattern, also where functions were found by it before.
std::vector<std::uint16_t> GeneratedCode::wanted_by(std::string_view name) {
  const std::string text(name);
  std::vector<std::uint16_t> events;
  for (const GeneratedWish& wish : wishes_) {
    if (wish.name != name) {
      const bool matches = is_pattern(wish.name) && !literal_.contains(wish.name);
      if (matches && ::fnmatch(wish.name.c_str(), text.c_str(), 0) == 0) events.push_back(wish.event);
      continue;
    }
    events.push_back(wish.event);
    if (!is_pattern(wish.name) || !literal_.insert(wish.name).second) continue;
    for (auto& [pid, process] : processes_)
      for (auto& [at, function] : process.functions)
        if (function.name != name) std::erase(function.events, wish.event);
  }
  return events;
}

// Places whose memory has other bytes, and those where the map shows another function. A map that does not show a function any more may
// be in the middle of being written.
void GeneratedCode::drop_lost(Process& process) {
  auto files = target::ProcessFiles::open(process.pid);
  if (!files) return process.places.clear();
  std::erase_if(process.functions, [](const auto& function) { return function.second.events.empty(); });
  std::erase_if(process.places, [&](const auto& known) {
    const auto& [at, place] = known;
    const auto function = process.functions.find(at);
    std::vector<std::uint8_t> now(place.code.size());
    const bool has_its_code = files->read(at, now.data(), now.size()) && now == place.code;
    const bool is_shown = function != process.functions.end() && function->second.name == place.name;
    if (has_its_code && is_shown) return function->second.events != place.events;
    if (!has_its_code && is_shown) process.functions.erase(function);
    ++lost_;
    return true;
  });
}

// Functions without a breakpoint whose memory is code by now: maps also name what an interpreter reads, and code that is written yet.
std::vector<Addr> GeneratedCode::open_functions(Process& process) {
  std::vector<Addr> open;
  for (const auto& [at, function] : process.functions)
    if (!process.places.contains(at)) open.push_back(at);
  if (open.empty()) return open;
  const auto files = target::ProcessFiles::open(process.pid);
  const auto maps = files ? files->maps() : Result<std::vector<target::Mapping>>(Error{});
  if (!maps) return {};
  std::erase_if(open, [&](Addr at) {
    const target::Mapping* m = target::mapping_at(*maps, at);
    if (m != nullptr && m->executable) return false;
    if (++process.functions.at(at).tries < kMostTries) return true;
    ++without_code_;
    process.functions.erase(at);
    return true;
  });
  return open;
}

// The newest functions get what breakpoints there are. One for which there is none takes that of an older function of its name.
std::vector<Addr> GeneratedCode::choose(Process& process) {
  std::vector<Addr> open = open_functions(process);
  std::sort(open.begin(), open.end(),
            [&](Addr a, Addr b) { return process.functions.at(a).order > process.functions.at(b).order; });
  std::vector<Addr> chosen;
  for (const Addr at : open) {
    const Function& function = process.functions.at(at);
    const auto older = std::find_if(process.places.begin(), process.places.end(), [&](const auto& place) {
      return place.second.name == function.name && process.functions.at(place.first).order < function.order;
    });
    if (process.places.size() + chosen.size() < arch::kHardwareBreakpoints) {
      chosen.push_back(at);
    } else if (older != process.places.end()) {
      process.functions.erase(older->first);
      process.places.erase(older);
      chosen.push_back(at);
    } else {
      leave_out(function.name);
    }
  }
  return chosen;
}

void GeneratedCode::leave_out(const std::string& name) {
  if (left_out_.size() < kMostLeftOut) left_out_.insert(name);
  are_more_left_out_ = are_more_left_out_ || !left_out_.contains(name);
}

// The process is held by a thread of its own: after some failures the kernel releases it only when that thread ends.
void GeneratedCode::place_all(Process& process, const std::vector<Addr>& chosen) {
  const auto work = [&] {
    auto held = StoppedProcess::hold(process.pid, kPatience);
    for (const Addr at : chosen) {
      const Status placed = held ? place_one(**held, process, at) : Status(not_yet(held.error().text));
      if (!placed && (placed.error().retry != Retry::soon || ++process.functions.at(at).tries >= kMostTries))
        give_up(process, at, placed.error().text + (placed.error().help.empty() ? "" : ": " + placed.error().help));
    }
    if (held) (*held)->let_go();
  };
  start_signal_masked_thread(work, {SIGCHLD}).join();
}

void GeneratedCode::give_up(Process& process, Addr at, const std::string& why) {
  const Function& function = process.functions.at(at);
  for (const std::uint16_t event : function.events) armer_.refuse(event, why);
  notes_.insert("generated code: " + function.name + " is not probed: " + why);
  process.functions.erase(at);
}

Status GeneratedCode::place_one(StoppedProcess& held, Process& process, Addr at) {
  const Function& function = process.functions.at(at);
  const auto block = find_block(process.pid);
  const auto maps = held.maps();
  if (!block || !blocks_.contains(*block) || !maps) return not_yet("the process is not in the session");
  shared::ProcessBlock head{};
  RETURN_IF_ERROR(held.read(*block, &head, sizeof head));
  spare_calls(held, head);
  const target::Mapping* m = target::mapping_at(*maps, at);
  if (m == nullptr || !m->executable) return not_yet("there is no code at the address that its map says");
  if (!may_be_generated(*m) || is_in_island(head, at))
    return Error{.code = Code::refused, .text = "its map says the address of other code"};
  Place place{.name = function.name, .events = function.events, .code = {}, .breakpoint = {}};
  place.code.resize(std::min<std::uint64_t>({function.bytes, kMostCode, m->end - at}));
  RETURN_IF_ERROR(held.read(at, place.code.data(), place.code.size()));
  RETURN_IF_ERROR(armer_.watch(held, *block, {at, place.code, place.events}));
  auto breakpoint = HardwareBreakpoint::set(held, at, block->value);
  if (!breakpoint) return breakpoint.error();
  place.breakpoint = breakpoint.take();
  process.places.emplace(at, std::move(place));
  return ok();
}

Notes GeneratedCode::notes() const {
  Notes notes = notes_;
  const auto functions = [](std::uint64_t n) { return std::to_string(n) + (n == 1 ? " function" : " functions"); };
  if (lost_ != 0) notes.insert("generated code: " + functions(lost_) + " lost the probe, moved, freed or changed");
  if (without_code_ != 0)
    notes.insert("generated code: " + functions(without_code_) +
                 " not probed: the memory that the map names is no code");
  if (not_kept_ != 0)
    notes.insert("generated code: " + functions(not_kept_) +
                 " not probed, because the maps name too many that match: make the pattern narrower");
  if (!left_out_.empty())
    notes.insert("generated code: " + std::string(are_more_left_out_ ? "more than " : "") +
                 functions(left_out_.size()) + " not probed, because the processor has " +
                 std::to_string(arch::kHardwareBreakpoints) + " hardware breakpoints");
  return notes;
}

}  // namespace uprobe::control
