// SPDX-License-Identifier: MIT
// Notes which files' code the processes of a session have mapped, and when, for a recording: all of a process's when it is first
// looked at and after execve, later what has come since the last look.
//
// As for code_maps.h, each mapping is seen before its code runs. Unmapping is not reported. A process may map anything any number
// of times, so all is bounded; what does not fit is counted, and the next look at that process begins anew.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/output/mappings.h"
#include "engine/symbolize/code_maps.h"

namespace uprobe::control {

struct NotedMappings {
  std::uint32_t pid = 0;
  std::uint64_t ns = 0;  // of CLOCK_MONOTONIC: before the look
  bool is_all = false;
  std::vector<CodeMapping> files;
};

// For several threads: any may look, one takes.
class MappingLog {
 public:
  // Reads the process's mappings, if it still exists. `is_new`: it has none in common with what had that id before.
  void note(pid_t pid, bool is_new = false);
  // What has been noted since the last call, in order of time.
  std::vector<NotedMappings> take();
  // Looks that are missing in that, and processes with more mappings than fit.
  std::uint64_t dropped() const;

 private:
  struct Look {
    std::uint64_t ns = 0;
    std::vector<CodeMapping> files;
  };

  void add(NotedMappings noted);
  void remember(std::uint32_t pid, Look look);

  mutable std::mutex lock_;
  std::map<std::uint32_t, Look> known_;  // the last look at each process
  std::size_t known_bytes_ = 0;          // of them, approximately
  std::vector<NotedMappings> noted_;
  std::size_t noted_bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

// Finds the build ids of mapped files, each once. One thread uses it.
class BuildIds {
 public:
  format::ProcessMappings add_to(const NotedMappings& noted);

 private:
  const std::string& id_of(const CodeMapping& mapping);

  std::map<std::pair<std::string, std::uint64_t>, std::string> known_;  // by path and inode
};

}  // namespace uprobe::control
