// SPDX-License-Identifier: MIT
#include "bench/process_view.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <sstream>

#include "engine/base/fd.h"
#include "engine/shared/session_area.h"

namespace uprobe::bench {
namespace {

std::string proc(pid_t pid, const char* what) { return "/proc/" + std::to_string(pid) + "/" + what; }

struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::string rights, name;
};

// A line of maps or smaps: "7f01-7f02 r-xp 00001000 fe:00 1234    /name"; nothing for smaps' other lines.
bool parse_mapping(const std::string& line, Mapping& mapping) {
  char rights[8];
  int name = 0;
  unsigned long begin = 0, end = 0, offset = 0;
  if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx %*s %*s %n", &begin, &end, rights, &offset, &name) != 4) return false;
  mapping = {begin, end, offset, rights, line.substr(static_cast<std::size_t>(name))};
  return true;
}

Result<Mapping> find_mapping(pid_t pid, const std::function<bool(const Mapping&)>& wanted) {
  auto maps = read_file(proc(pid, "maps"));
  if (!maps) return maps.error();
  std::istringstream lines(*maps);
  Mapping mapping;
  for (std::string line; std::getline(lines, line);)
    if (parse_mapping(line, mapping) && wanted(mapping)) return mapping;
  return Error{.code = Code::not_found, .text = "process " + std::to_string(pid) + " lacks a mapping"};
}

Result<std::string> read_at(const std::string& path, std::uint64_t at, std::size_t size) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("open " + path, errno);
  std::string bytes(size, '\0');
  if (::pread(file.get(), bytes.data(), size, static_cast<off_t>(at)) != static_cast<ssize_t>(size))
    return system_error("read " + path, errno);
  return bytes;
}

}  // namespace

Result<pid_t> program_of(pid_t tool) {
  auto children = read_file(proc(tool, "task/") + std::to_string(tool) + "/children");
  if (!children) return children.error();
  const pid_t pid = std::atoi(children->c_str());
  if (pid == 0) return Error{.code = Code::not_found, .text = "uprobe-run has no child"};
  return pid;
}

Status set_recording(pid_t tool, bool on) {
  const auto area =
      find_mapping(tool, [](const Mapping& m) { return m.offset == 0 && m.name.starts_with("/memfd:uprobe-session"); });
  if (!area) return area.error();
  const auto state = static_cast<std::uint32_t>(on ? shared::SessionState::recording : shared::SessionState::off);
  const Fd memory(::open(proc(tool, "mem").c_str(), O_RDWR | O_CLOEXEC));
  if (!memory) return system_error("open the memory of uprobe-run", errno);
  shared::AreaHeader header{};
  const auto begin = static_cast<off_t>(area->begin);
  bool written = ::pread(memory.get(), &header, sizeof header, begin) == sizeof header;
  const auto set = [&](std::uint64_t at) {
    written = written && ::pwrite(memory.get(), &state, sizeof state, begin + static_cast<off_t>(at)) == sizeof state;
  };
  set(offsetof(shared::AreaHeader, state));
  for (std::uint64_t i = 0; i < header.event_count; ++i)
    set(header.event_offset + i * sizeof(shared::Event) + offsetof(shared::Event, state));
  return written ? ok() : system_error("change the memory of uprobe-run", errno);
}

Result<AnonymousBytes> anonymous_bytes(pid_t pid) {
  auto smaps = read_file(proc(pid, "smaps"));
  if (!smaps) return smaps.error();
  AnonymousBytes sum;
  Mapping mapping;
  std::istringstream lines(*smaps);
  for (std::string line; std::getline(lines, line);) {
    unsigned long kilobytes = 0;
    if (parse_mapping(line, mapping) || !mapping.name.empty()) continue;
    if (std::sscanf(line.c_str(), "Size: %lu", &kilobytes) == 1) sum.mapped += kilobytes * 1024;
    if (std::sscanf(line.c_str(), "Rss: %lu", &kilobytes) == 1) sum.resident += kilobytes * 1024;
  }
  return sum;
}

Result<TextView> TextView::open(pid_t pid, const std::string& file) {
  auto text = find_mapping(pid, [&](const Mapping& m) { return m.rights == "r-xp" && m.name == file; });
  if (!text) return text.error();
  auto bytes = read_at(file, text->offset, text->end - text->begin);
  if (!bytes) return bytes.error();
  TextView view;
  view.mem_ = proc(pid, "mem");
  view.address_ = text->begin;
  view.in_file_ = bytes.take();
  return view;
}

Result<std::string> TextView::now() const { return read_at(mem_, address_, in_file_.size()); }

}  // namespace uprobe::bench
