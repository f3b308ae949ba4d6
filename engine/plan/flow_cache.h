// The flow of each probed file, found once: it takes tens of milliseconds for a large one.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "engine/plan/flow.h"

namespace uprobe::plan {

class FlowCache {
 public:
  const FileFlow& of(const std::shared_ptr<const elf::ElfFile>& file) {
    auto& entry = flows_[file.get()];
    if (!entry) entry = std::make_unique<Entry>(file);
    return entry->flow;
  }

 private:
  struct Entry {
    explicit Entry(std::shared_ptr<const elf::ElfFile> its_file) : file(std::move(its_file)), flow(*file) {}
    std::shared_ptr<const elf::ElfFile> file;
    FileFlow flow;
  };
  std::map<const elf::ElfFile*, std::unique_ptr<Entry>> flows_;
};

}  // namespace uprobe::plan
