// SPDX-License-Identifier: MIT
// The places that a session wants armed, by file: the result of resolving all definitions.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/plan/resolve.h"
#include "engine/process/block.h"
#include "engine/search/file_look.h"
#include "engine/shared/process_block.h"
#include "engine/target/maps.h"

namespace uprobe::control {

// An event that wants a place, and what it wants there: see shared::Consumer.
struct PlannedConsumer {
  std::uint16_t event = 0;
  shared::ConsumerKind kind = shared::ConsumerKind::entry;
  std::int32_t distance = 0;
  std::uint16_t pops = 0, lead = 0;
  std::uint32_t restored = 0;
  bool changes_program = false;  // by its triggers, which takes a breakpoint
};

// One place in a file and its consumers.
struct PlannedPoint {
  plan::Site site;
  std::vector<PlannedConsumer> consumers;  // newest definition first
  shared::PointRole role = shared::PointRole::probe;
};

// Nothing where there is no such file.
std::optional<FileVersion> version_of(const std::string& path);
// The mapped file as stat sees it: the device and inode in /proc/PID/maps are not stat's on every file system.
std::optional<FileVersion> mapped_version(pid_t pid, const target::Mapping& m);
// The same for the mappings of one process during one look at it: each file is asked for once.
class MappedVersions {
 public:
  explicit MappedVersions(pid_t pid) : pid_(pid) {}
  // Valid for as long as this object is.
  const std::optional<FileVersion>& of(const target::Mapping& m);

 private:
  struct File {
    std::uint64_t device, inode;
    std::string path;
    auto operator<=>(const File&) const = default;
  };
  pid_t pid_;
  std::map<File, std::optional<FileVersion>> known_;
};

struct FilePoints {
  std::shared_ptr<const elf::ElfFile> file;
  std::optional<FileVersion> version = std::nullopt;  // nothing: not known
  std::vector<PlannedPoint> points;                   // by offset, each offset once; without the choices of IFUNCs
  std::vector<PlannedPoint> ifuncs;                   // by offset of the resolver
  unsigned edition = 0;                               // changes when points are added or removed
  // For internal points:
  bool has_signal_return = false;  // it has the code to which signal handlers return
  bool maps_memory = false;        // it has calls of mmap
  bool fears_stubs = false;        // it has an unwinder that fails at return stubs
  bool finds_objects = false;      // it has a place where unwinders look for objects, or loads a library that has one
};

// Whether an event changes the program there, and what that tells against a jump.
inline constexpr const char* kChangesProgram = "it changes the program";
bool changes_program(const PlannedPoint& point);

// Whether any definition has a place there: else only the tool itself has points in the file, which need no jumps, and the flow of
// its code is not asked for.
bool has_probes(const FilePoints& file);

// Whether it is another file, or has changed since it was read.
bool has_changed(const FilePoints& file, const FileVersion& now);

// A file whose data events read. For exported data of a library: its name and link-time address, since a program may have a
// copy of it.
struct NamedObject {
  std::shared_ptr<const elf::ElfFile> file;
  std::optional<FileVersion> version = std::nullopt;  // nothing: not known
  std::string exported = {};
  std::uint64_t exported_address = 0;
};

// An event that wants the functions of a name, or of a pattern of names, in code that programs generate as they run.
struct GeneratedWish {
  std::uint16_t event = 0;
  std::string name;
};

// A semaphore of a file, and the events whose places have it.
struct PlannedSemaphore {
  std::shared_ptr<const elf::ElfFile> file;
  std::optional<FileVersion> version = std::nullopt;  // nothing: not known
  std::uint64_t offset = 0;                           // in the file
  std::vector<std::uint16_t> events = {};             // that are on; empty: nothing wants it
};

class ProbeSet {
 public:
  // Events are numbered in the order of the definitions.
  void add(plan::Site site, const PlannedConsumer& consumer);
  void add_generated(GeneratedWish wish) { generated_.push_back(std::move(wish)); }
  const std::vector<GeneratedWish>& generated() const { return generated_; }
  // `event` wants the semaphore at this offset counted up, or no more.
  void add_semaphore(const std::shared_ptr<const elf::ElfFile>& file, std::uint64_t offset, std::uint16_t event);
  void remove_semaphore(const elf::ElfFile& file, std::uint64_t offset, std::uint16_t event);
  const std::vector<PlannedSemaphore>& semaphores() const { return semaphores_; }
  // Whether an event has ever wanted one: what its hits do depends on that, and does not change when it is switched off.
  bool has_semaphore(std::uint16_t event) const { return with_semaphore_.contains(event); }
  // Removes all that an event wants, and points that then have no consumer.
  void remove(std::uint16_t event);
  bool wants_stubs() const { return wants_stubs_; }
  // The agent is to unwind stacks.
  void want_unwinding() { wants_unwinding_ = true; }
  // Whether the agent has to know where the unwind tables of each file are.
  bool wants_code_files() const { return wants_stubs_ || wants_unwinding_; }
  // A place where the agent asks the tool about libraries; a probe may be there as well.
  void add_hook(plan::Site site);
  const std::vector<FilePoints>& files() const { return files_; }
  // The index of an object, known or new, in shared::ProcessBlock::objects. Code::limit where there are too many.
  Result<std::uint16_t> number_of(const NamedObject& object);
  const std::vector<NamedObject>& objects() const { return objects_; }
  // Of a process's block: for the number of points or of definitions, whichever is larger.
  BlockNeeds block_needs() const { return {size_, wants_unwinding_}; }

 private:
  PlannedPoint& point_for(plan::Site site);

  std::vector<FilePoints> files_;
  std::vector<NamedObject> objects_;
  std::vector<GeneratedWish> generated_;
  std::vector<PlannedSemaphore> semaphores_;
  std::set<std::uint16_t> with_semaphore_;  // events
  std::size_t size_ = 0;
  bool wants_stubs_ = false, wants_unwinding_ = false;
};

}  // namespace uprobe::control
