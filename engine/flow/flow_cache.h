// SPDX-License-Identifier: MIT
// The flow of each probed file, found once: it takes tens of milliseconds for a large one.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <utility>

#include "engine/flow/flow.h"

namespace uprobe::plan {

class FlowCache {
 public:
  const FileFlow& of(const std::shared_ptr<const elf::ElfFile>& file) {
    Entry& entry = flows_[file.get()];
    if (entry.begun.valid()) entry.flow = entry.begun.get();
    if (!entry.flow) entry.flow = find(file);
    return entry.flow->flow;
  }
  // The flow will be needed: a thread computes it in the background.
  void begin(const std::shared_ptr<const elf::ElfFile>& file) {
    Entry& entry = flows_[file.get()];
    if (!entry.flow && !entry.begun.valid())
      entry.begun = std::async(std::launch::async | std::launch::deferred, find, file);
  }

 private:
  struct Found {
    explicit Found(std::shared_ptr<const elf::ElfFile> its_file) : file(std::move(its_file)), flow(*file) {}
    std::shared_ptr<const elf::ElfFile> file;
    FileFlow flow;
  };
  struct Entry {
    std::unique_ptr<Found> flow;
    std::future<std::unique_ptr<Found>> begun;
  };
  static std::unique_ptr<Found> find(std::shared_ptr<const elf::ElfFile> file) {
    return std::make_unique<Found>(std::move(file));
  }
  std::map<const elf::ElfFile*, Entry> flows_;
};

}  // namespace uprobe::plan
