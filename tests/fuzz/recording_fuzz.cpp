// SPDX-License-Identifier: MIT
// Fuzzes the reading of a recording that anybody may have made. Input: a byte that chooses the format, then blocks: 2 bytes with
// its size and a byte with its lane, then its entries. The sums are made right, else nothing would be read. Any entries print, or
// are refused.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/base/fd.h"
#include "engine/export/files.h"
#include "engine/export/formats.h"
#include "engine/recording/file_format.h"
#include "engine/recording/recorder.h"
#include "engine/recording/replay.h"
#include "engine/shared/session_area.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

using recording::BlockHead;
using recording::FileHead;

constexpr std::size_t kBlockWords = 3;  // bytes before the entries of a block

void require(bool condition) {
  if (!condition) std::abort();
}

void append(int file, const void* bytes, std::size_t size) {
  require(::write(file, bytes, size) == static_cast<ssize_t>(size));
}

program::EventLayout layout(program::Style style) {
  program::EventLayout made{.group = "uprobes", .event = "e", .is_return = true, .style = style, .place = "f+0x4"};
  made.fixed_bytes = 24;
  const auto add = [&](program::Kind kind, std::uint8_t size, std::uint32_t count) {
    made.fields.push_back({.name = "f" + std::to_string(made.fields.size()),
                           .kind = kind,
                           .size = size,
                           .offset = made.fixed_bytes,
                           .count = count});
    made.fixed_bytes += size * std::max(count, 1u);
  };
  add(program::Kind::symbol, 8, 0), add(program::Kind::string, 4, 2), add(program::Kind::floating, 4, 0);
  add(program::Kind::character, 1, 3), add(program::Kind::hex, 2, 0);
  made.print_format = "%p s=%5.3s %+.2f%% %c %#06x\n";
  return made;
}

// What a format writes to, emptied of what the last input has left.
class Place {
 public:
  explicit Place(format::Target target) : is_used_(target != format::Target::stream) {
    if (target == format::Target::file) descriptor_ = Fd(::memfd_create("place", MFD_CLOEXEC));
    if (target == format::Target::folder) {
      std::string path = "/tmp/recording-fuzz-XXXXXX";
      require(::mkdtemp(path.data()) != nullptr);
      path_ = path;
      descriptor_ = Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
    if (is_used_) files_ = std::make_unique<format::Files>(descriptor_.get());
  }
  ~Place() {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  format::Files* files() const { return files_.get(); }

 private:
  bool is_used_;
  Fd descriptor_;
  std::string path_;
  std::unique_ptr<format::Files> files_;
};
// The blocks of a recording as this fuzzer takes them.
std::string as_input(std::string_view recording) {
  std::string input;
  for (std::size_t at = sizeof(FileHead); at < recording.size();) {
    BlockHead block;
    std::memcpy(&block, recording.data() + at, sizeof block);
    at += sizeof block;
    for (const std::uint32_t byte : {block.bytes & 0xff, block.bytes >> 8, block.lane})
      input += static_cast<char>(static_cast<std::uint8_t>(byte));
    input += recording.substr(at, block.bytes);
    at += block.bytes;
  }
  return input;
}

// Of the event 0, with that payload.
std::string raw_record(const std::vector<std::uint8_t>& payload, std::uint64_t ns) {
  const shared::RecordHead head{.length = static_cast<std::uint32_t>(sizeof head + payload.size()),
                                .number = 0,
                                .tsc = ns,
                                .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                                .cpu = 0,
                                .flags = 0};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(payload.begin(), payload.end());
  bytes[sizeof head] = bytes[sizeof head + 1] = 0;
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const int file = ::memfd_create("recording", MFD_CLOEXEC);
  require(file >= 0 && ::ftruncate(file, 0) == 0 && ::lseek(file, 0, SEEK_SET) == 0);
  const FileHead head;
  append(file, &head, sizeof head);
  for (std::size_t at = 1; at + kBlockWords <= size;) {
    const std::size_t wanted = data[at] | std::size_t{data[at + 1]} << 8, lane = data[at + 2];
    at += kBlockWords;
    const std::size_t bytes = std::min(wanted, size - at);
    const BlockHead block{.bytes = static_cast<std::uint32_t>(bytes),
                          .sum = recording::sum_of(data + at, bytes, static_cast<std::uint32_t>(lane)),
                          .lane = static_cast<std::uint32_t>(lane)};
    append(file, &block, sizeof block);
    append(file, data + at, bytes);
    at += bytes;
  }
  const auto formats = format::formats();
  recording::ReplayOptions options{.format = std::string(formats[data[0] % formats.size()].name)};
  const Place place(formats[data[0] % formats.size()].target);
  options.files = place.files();
  if ((data[0] & 0x80) != 0) options.filter = "f4 > 1 || comm ~ \"a*\"";
  const auto opened = recording::open_recording("/proc/self/fd/" + std::to_string(file));
  require(static_cast<bool>(opened));
  const auto done = recording::replay(*opened, options, [](std::string_view text) {
    require(!text.empty());
    return 0;
  });
  static_cast<void>(done);
  return 0;
}

// One of each kind of event, with everything that an entry can be.
std::vector<std::string> fuzz_seeds() {
  class Names final : public format::Symbols {
   public:
    format::NamedAddress name_of(const trace::EventRecord&, std::uint64_t) override { return {"name", 1, 2}; }
    format::CodePlace place_of(const trace::EventRecord*, std::uint64_t) override {
      return {.name = "name", .distance = 1, .size = 2, .path = "/path", .offset = 3};
    }
    std::vector<format::StackFrame> frames_of(const trace::EventRecord&) override { return {{1, false}, {2, true}}; }
  };
  std::vector<std::string> seeds;
  Names names;
  for (const auto style : {program::Style::event, program::Style::kprobes_2009, program::Style::function}) {
    recording::Recorder recorder({.escape_control = true, .symbols = &names});
    format::Buffer out;
    const program::EventLayout event = layout(style);
    recorder.add(event);
    recorder.header(out);
    std::vector<std::uint8_t> payload(event.fixed_bytes + 8, 'x');
    const std::uint32_t locator = 8 << 16 | event.fixed_bytes;
    std::memcpy(payload.data() + event.fields[1].offset, &locator, sizeof locator);
    std::vector<std::uint8_t> stack(sizeof(shared::StackHead) + 16);
    stack[0] = 1;
    const std::string records = raw_record(payload, 4) + raw_record(payload, 6);
    for (const std::uint32_t ring : {0u, 2u})
      recorder.append_run({.ring = ring,
                           .tid = 1,
                           .count = 2,
                           .comm = "task",
                           .records = {reinterpret_cast<const std::uint8_t*>(records.data()), records.size()}},
                          out);
    recorder.append({.ns = 5, .tid = 1, .pid = 1, .payload = payload, .stack = stack}, "task", out);
    using Change = format::ProcessEvent::Kind;
    recorder.process({.kind = Change::exec, .pid = 1, .ns = 5, .comm = "task", .exe = "/bin/task"}, out);
    recorder.process({.kind = Change::end, .pid = 1, .ns = 7, .comm = "task", .exit = 1}, out);
    recorder.mappings({.pid = 1,
                       .ns = 3,
                       .is_all = true,
                       .files = {{.begin = 4096, .end = 8192, .offset = 0, .path = "/bin/task", .build_id = "ab"}}},
                      out);
    recorder.loss({.ns = 6, .name = "uprobes/e", .hits = 1, .returns = 2}, out);
    recorder.end(std::vector<format::Total>{{.name = "uprobes/e", .lost = 1}}, out);
    recorder.flush(out);
    for (char number = 0; number < static_cast<char>(format::formats().size()); ++number)
      seeds.push_back(std::string(1, number) + as_input(out.view()));
  }
  return seeds;
}
