// SPDX-License-Identifier: MIT
// What a session wants armed, by file: the product of resolving all definitions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/resolve.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {

// Who wants a place, and what of it: see shared::Consumer.
struct PlannedConsumer {
  std::uint16_t event = 0;
  shared::ConsumerKind kind = shared::ConsumerKind::entry;
  std::int32_t distance = 0;
  std::uint16_t pops = 0, lead = 0;
  std::uint32_t restored = 0;
};

// One place in a file and who wants it.
struct PlannedPoint {
  plan::Site site;
  std::vector<PlannedConsumer> consumers;  // newest definition first
  shared::PointRole role = shared::PointRole::probe;
};

// What stat says of a file: shows that it is the one, and as it was, when it was read.
struct FileVersion {
  elf::Identity identity;
  std::int64_t bytes = 0, modified = 0;  // nanoseconds
  auto operator<=>(const FileVersion&) const = default;
};
// Nothing where there is no such file.
std::optional<FileVersion> version_of(const std::string& path);

struct FilePoints {
  std::shared_ptr<const elf::ElfFile> file;
  std::optional<FileVersion> version = std::nullopt;  // nothing: not known
  std::vector<PlannedPoint> points;                   // by offset, each offset once; choices of IFUNCs apart
  std::vector<PlannedPoint> ifuncs;                   // by offset of the resolver
  unsigned edition = 0;                               // another one when points come or go
  // Of points that the agent itself needs:
  bool has_signal_return = false;  // where handlers return to
  bool fears_stubs = false;        // an unwinder that fails at return stubs
  bool finds_objects = false;      // where unwinders find the agent, or what brings a library with such a place
};

// A file that events read data of. Of a library's exported data: which, at which link-time address; a program may have a copy of it.
struct NamedObject {
  std::shared_ptr<const elf::ElfFile> file;
  std::optional<FileVersion> version = std::nullopt;  // nothing: not known
  std::string exported = {};
  std::uint64_t exported_address = 0;
};

class ProbeSet {
 public:
  // Events are numbered in the order of the definitions.
  void add(plan::Site site, const PlannedConsumer& consumer);
  // All that an event wants; points that nobody wants then are none any more.
  void remove(std::uint16_t event);
  bool wants_stubs() const { return wants_stubs_; }
  // A place where the agent asks the tool about libraries; a probe may be there as well.
  void add_hook(plan::Site site);
  const std::vector<FilePoints>& files() const { return files_; }
  // The number of an object, known or new, in shared::ProcessBlock::objects. Code::limit where there are too many.
  Result<std::uint16_t> number_of(const NamedObject& object);
  const std::vector<NamedObject>& objects() const { return objects_; }
  // Points, or definitions where there are more of them: what a block has to have room for.
  std::size_t size() const { return size_; }

 private:
  PlannedPoint& point_for(plan::Site site);

  std::vector<FilePoints> files_;
  std::vector<NamedObject> objects_;
  std::size_t size_ = 0;
  bool wants_stubs_ = false;
};

}  // namespace uprobe::control
