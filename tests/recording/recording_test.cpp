// SPDX-License-Identifier: MIT
// A recording prints what the session would have printed, in any format; and what is not whole is not printed.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "engine/export/formats.h"
#include "engine/recording/course_entries.h"
#include "engine/recording/recorder.h"
#include "engine/recording/replay.h"
#include "tests/output/sample.h"

namespace uprobe::recording {
namespace {

using format::Kind;
using format::Record;

// Knows each address as its last digits.
class Names final : public format::Symbols {
 public:
  format::NamedAddress name_of(const trace::EventRecord&, std::uint64_t address) override {
    if (address % 2 == 1) return {};
    name_ = "f" + std::to_string(address);
    return {name_, 4, 8};
  }
  format::CodePlace place_of(const trace::EventRecord*, std::uint64_t address) override {
    if (address % 2 == 1) return {.name = {}, .path = "/lib", .offset = address};
    return {.name = "f" + std::to_string(address), .distance = 1, .size = 2, .path = {}};
  }
  std::vector<format::StackFrame> frames_of(const trace::EventRecord&) override {
    return {{100, false}, {201, true}, {203, false}};
  }

 private:
  std::string name_;
};

struct Hit {
  std::uint16_t type;
  std::uint64_t ns;
  std::string comm;
};

class Recording : public testing::Test {
 protected:
  Recording() {
    records_[0]
        .text("s", "a\nb")
        .field("k", Kind::signed_decimal, -3)
        .array("v", Kind::hex, std::vector<std::uint16_t>{1, 2})
        .wide("w", Kind::signed_decimal, 7, 5);
    records_[1].field("y", Kind::symbol, std::uint64_t{0x4010}).field("z", Kind::symbol, std::uint64_t{0x4011});
    records_[1].add_stack({100, 200});
    records_[2].field("k", Kind::signed_decimal, 7);
  }
  ~Recording() override { ::unlink(path_.c_str()); }

  // Gives the records to a format, as a session does.
  std::string print(format::Formatter& formatter, const std::vector<Hit>& hits, bool has_header,
                    bool knows_all = false) {
    format::Buffer out;
    std::string all;
    std::size_t known = 0;
    while (known < (knows_all ? 3 : 2)) formatter.add(records_[known++].layout);
    if (has_header) formatter.header(out);
    for (std::size_t i = 0; i < hits.size(); ++i) {
      if (hits[i].type == known) formatter.add(records_[known++].layout);
      Record record = records_[hits[i].type];
      trace::EventRecord event = record.event(hits[i].ns);
      event.type = hits[i].type;
      formatter.append(event, hits[i].comm, out);
      if (i % 2 != 0) continue;
      formatter.flush(out);
      all += out.view(), out.clear();
    }
    formatter.end(std::vector<format::Total>{{.name = "uprobes/e", .recorded = 5, .lost = 2}}, out);
    formatter.flush(out);
    return all.append(out.view());
  }
  void record(const std::vector<Hit>& hits, const format::Options& options, bool has_header = true) {
    Recorder recorder(options);
    write(print(recorder, hits, has_header));
  }
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes, bytes_ = bytes; }

  struct Printed {
    std::string text, error;
    std::vector<format::Total> totals;
  };
  Printed play(const ReplayOptions& options = {}) {
    Printed printed;
    const auto recording = open_recording(path_);
    auto totals = recording
                      ? replay(*recording, options, [&](std::string_view text) { return printed.text += text, 0; })
                      : Result<std::vector<format::Total>>(recording.error());
    if (!totals) printed.error = totals.error().text;
    if (totals) printed.totals = totals.take();
    return printed;
  }
  std::size_t hits_of(const ReplayOptions& options) {
    ReplayOptions chosen = options;
    chosen.format = "json";
    const Printed printed = play(chosen);
    EXPECT_EQ(printed.error, "");
    std::size_t count = 0;
    for (std::size_t at = 0; (at = printed.text.find("\"event\":", at)) != std::string::npos; ++at) ++count;
    return count;
  }

  std::vector<Record> records_ = {Record("e"), Record("f", true), Record("late")};
  const std::vector<Hit> hits_ = {
      {0, 1'000'000'500, "zsh"}, {1, 2'000'000'000, "a"}, {2, 3'000'000'000, "\x1b"}, {0, 4'000'000'000, ""}};
  const std::string path_ = testing::TempDir() + "recording-" + std::to_string(::getpid());
  std::string bytes_;
};

TEST_F(Recording, PrintsWhatTheSessionWouldHavePrinted) {
  Names names;
  for (const format::Format& format : format::formats())
    for (format::Symbols* symbols : {static_cast<format::Symbols*>(nullptr), static_cast<format::Symbols*>(&names)}) {
      if (format.target != format::Target::stream) continue;  // tests/e2e/export_test.py
      const format::Options options{.escape_control = true, .string_limit = 2, .symbols = symbols};
      record(hits_, options);
      const Printed printed = play({.format = std::string(format.name)});
      EXPECT_EQ(printed.error, "");
      EXPECT_EQ(printed.text, print(*format.make(options), hits_, true, true)) << format.name;
    }
}

TEST_F(Recording, HoldsTheClocks) {
  Recorder recorder({});
  format::Buffer out;
  recorder.add(records_[0].layout);
  trace::ClockReading reading;
  reading.ns = {1'000'000'000, 0, 0, 0, 0, 9'000'000'000};
  recorder.clocks(reading, out);
  recorder.append(records_[0].event(1'500'000'000), "zsh", out);
  recorder.end({}, out);
  recorder.flush(out);
  write(std::string(out.view()));
  EXPECT_NE(play({.clock = trace::ClockKind::wall}).text.find("    9.500000: e:"), std::string::npos);
  EXPECT_NE(play({.format = "json", .clock = trace::ClockKind::wall}).text.find(R"({"time":"9500000000",)"),
            std::string::npos);
  EXPECT_EQ(play({.clock = trace::ClockKind::wall, .from = 9'600'000'000}).text, "");
  const Printed unknown = play({.clock = trace::ClockKind::boot});
  EXPECT_EQ(unknown.text, "");
  EXPECT_EQ(unknown.error, "the recording does not hold the clock boot");
}

TEST_F(Recording, HasTheCourseOfTheSession) {
  using Change = format::ProcessEvent::Kind;
  Recorder recorder({});
  format::Buffer out;
  recorder.add(records_[0].layout);
  // Later than the records of its turn, and not in order of time.
  recorder.append(records_[0].event(1'500'000'000), "zsh", out);
  recorder.loss({.ns = 1'700'000'000, .name = "uprobes/e", .hits = 3, .returns = 1}, out);
  recorder.process({.kind = Change::start, .pid = 7, .ns = 1'500'000'000, .parent = 6, .comm = "zsh"}, out);
  recorder.flush(out);
  recorder.append(records_[0].event(1'800'000'000), "zsh", out);
  recorder.process({.kind = Change::end, .pid = 7, .ns = 1'900'000'000, .comm = "cat", .signal = 9}, out);
  recorder.process({.kind = Change::exec, .pid = 7, .ns = 1'600'000'000, .comm = "cat", .exe = "/bin/cat"}, out);
  recorder.end({}, out);
  recorder.flush(out);
  write(std::string(out.view()));
  const std::string text = play({.format = "json"}).text;
  std::string order;
  for (const std::string_view key :
       {R"({"type":"start","time":1.500000000,"pid":7,"parent":6,"comm":"zsh"})", R"({"time":1.500000000,)",
        R"({"type":"lost","time":1.700000000,"name":"uprobes/e","hits_so_far":3,"returns_so_far":1})",
        R"({"type":"exec","time":1.600000000,"pid":7,"comm":"cat","exe":"/bin/cat"})", R"({"time":1.800000000,)",
        R"({"type":"end","time":1.900000000,"pid":7,"comm":"cat","signal":9})"}) {
    const std::size_t at = text.find(key, order.size());
    ASSERT_NE(at, std::string::npos) << key << " is not in its place in\n" << text;
    order = text.substr(0, at + 1);
  }
  EXPECT_EQ(play({.format = "json", .task = "other"}).text.find("start"), std::string::npos);
  EXPECT_EQ(play({.format = "csv"}).text.find("exec"), std::string::npos);
  EXPECT_EQ(hits_of({}), 2u);
}

format::ProcessMappings mappings_of(std::uint32_t pid, std::size_t count) {
  format::ProcessMappings all{.pid = pid, .ns = pid, .is_all = true, .files = {}};
  for (std::uint64_t i = 1; i <= count; ++i)
    all.files.push_back({.begin = i << 20, .end = (i << 20) + 4096, .path = std::string(200, 'p'), .build_id = "ab"});
  return all;
}

TEST(CourseEntries, MappingsAreInSmallEntries) {
  std::vector<CourseItem> items;
  add_course_items(mappings_of(7, 1000), items);
  ASSERT_GT(items.size(), 10u);
  for (const CourseItem& item : items) {
    EXPECT_LT(item.bytes.size(), 16384u);
    EXPECT_TRUE(are_mappings(item.bytes));
    EXPECT_FALSE(are_mappings(item.bytes.substr(0, item.bytes.size() - 1)));
    const char flags = &item == items.data() ? kAllMappings : 0;
    EXPECT_EQ(item.bytes[offsetof(MappingsEntry, flags)], flags) << "the first one forgets what was before";
  }
  std::string bad = items[0].bytes;
  bad[sizeof(MappingsEntry)] = bad[sizeof(MappingsEntry) + offsetof(MappingHead, end)] = 0;
  std::memset(bad.data() + sizeof(MappingsEntry), 0, sizeof(MappingHead));
  EXPECT_FALSE(are_mappings(bad)) << "an empty range";
  EXPECT_FALSE(are_mappings(""));
}

// Each file of a recording is read alone. What is repeated leaves room for what is new.
TEST_F(Recording, LaterFilesHaveTheMappingsAgain) {
  constexpr std::uint64_t kLimit = 1 << 20;
  Recorder recorder({}, kLimit);
  format::Buffer out;
  recorder.add(records_[0].layout);
  recorder.mappings(mappings_of(7, 3), out);
  recorder.mappings(mappings_of(8, 5), out);
  recorder.process({.kind = format::ProcessEvent::Kind::end, .pid = 8, .ns = 9}, out);
  for (std::uint32_t pid = 10; pid < 20; ++pid) recorder.mappings(mappings_of(pid, 1000), out);
  recorder.flush(out);
  EXPECT_TRUE(recorder.is_full());
  EXPECT_LT(out.size(), kLimit);
  out.clear();
  recorder.begin_file();
  EXPECT_FALSE(recorder.is_full());
  recorder.append(records_[0].event(1'500'000'000), "zsh", out);
  recorder.flush(out);
  EXPECT_LT(out.size(), kLimit);
  write(std::string(out.view()));
  EXPECT_NE(play().text.find("zsh"), std::string::npos);
  EXPECT_NE(out.view().find(std::string(200, 'p')), std::string_view::npos);
}

TEST_F(Recording, AnOlderOneIsRead) {
  record(hits_, {});
  const std::string text = play().text;
  bytes_[offsetof(FileHead, version)] = 2;
  write(bytes_);
  EXPECT_EQ(play().text, text);
  bytes_[offsetof(FileHead, version)] = 1;
  write(bytes_);
  EXPECT_NE(play().error, "");
}

// Whatever is not an entry of the course ends the recording there.
TEST(CourseEntries, RefuseWhatNoRecorderWrites) {
  const CourseItem good = course_item(format::ProcessEvent{.pid = 1, .ns = 5, .comm = "c", .exe = "e", .exit = 3});
  ASSERT_TRUE(course_event(good.kind, good.bytes));
  EXPECT_EQ(std::get<format::ProcessEvent>(*course_event(good.kind, good.bytes)).exit, 3);
  for (std::size_t size = 0; size < good.bytes.size(); ++size)
    EXPECT_FALSE(course_event(good.kind, good.bytes.substr(0, size))) << size;
  EXPECT_FALSE(course_event(good.kind, good.bytes + "x"));
  EXPECT_FALSE(course_event(EntryKind::loss, good.bytes));
  const auto changed = [&](std::size_t at, std::uint32_t word) {
    std::string bytes = good.bytes;
    std::memcpy(bytes.data() + at, &word, sizeof word);
    return course_event(good.kind, bytes).has_value();
  };
  EXPECT_FALSE(changed(offsetof(ProcessEntry, kind), 0));
  EXPECT_FALSE(changed(offsetof(ProcessEntry, kind), 4));
  EXPECT_FALSE(changed(offsetof(ProcessEntry, zero), 1));
  EXPECT_FALSE(changed(offsetof(ProcessEntry, exit), 256));
  EXPECT_TRUE(changed(offsetof(ProcessEntry, signal), 15));
  const format::ProcessEvent long_names{.comm = std::string(99, 'c'), .exe = std::string(9999, 'e')};
  EXPECT_TRUE(course_event(EntryKind::process, course_item(long_names).bytes)) << "they are cut";
}

TEST_F(Recording, HasAHeaderIfTheSessionHadOne) {
  record(hits_, {}, false);
  EXPECT_EQ(play().text, print(*format::format_called("text")->make({}), hits_, false));
  record(hits_, {});
  EXPECT_EQ(play().text.substr(0, 13), "# tracer: nop");
  EXPECT_EQ(play({.without_header = true}).text, print(*format::format_called("text")->make({}), hits_, false));
}

TEST_F(Recording, KeepsTheSettings) {
  record(hits_, {.escape_control = false, .is_short = true}, false);
  format::Options same{.escape_control = false, .is_short = true};
  EXPECT_EQ(play().text, print(*format::format_called("text")->make(same), hits_, false));
}

TEST_F(Recording, CsvHasTheColumnsOfEventsThatCameLater) {
  record(hits_, {});
  const std::string text = play({.format = "csv"}).text;
  EXPECT_EQ(text.substr(0, text.find('\n')), "time,cpu,pid,tid,comm,event,s,k,v,w,y,z");
}

TEST_F(Recording, TellsLosses) {
  record(hits_, {});
  const auto totals = play().totals;
  ASSERT_EQ(totals.size(), 1u);
  EXPECT_EQ(totals[0].name, "uprobes/e");
  EXPECT_EQ(totals[0].lost, 2u);
}

TEST_F(Recording, PartsOfIt) {
  record(hits_, {});
  EXPECT_EQ(hits_of({}), 4u);
  EXPECT_EQ(hits_of({.events = "e"}), 2u);
  EXPECT_EQ(hits_of({.events = "uprobes/[ef]"}), 3u);
  EXPECT_EQ(hits_of({.task = "z*"}), 1u);
  EXPECT_EQ(hits_of({.task = "12"}), 4u);
  EXPECT_EQ(hits_of({.task = "14"}), 0u);
  EXPECT_EQ(hits_of({.from = 2'000'000'000}), 3u);
  EXPECT_EQ(hits_of({.to = 2'000'000'000}), 2u);
  EXPECT_EQ(hits_of({.from = 1'000'001'000, .to = 1'000'001'000}), 1u) << "the time that it shows";
  EXPECT_EQ(hits_of({.max_events = 3}), 3u);
}

TEST_F(Recording, AFilterIsForTheEventsThatHaveItsFields) {
  record(hits_, {});
  EXPECT_EQ(hits_of({.filter = "k == -3"}), 3u) << "f has no k";
  EXPECT_EQ(hits_of({.filter = "comm == \"a\""}), 1u);
  const Printed printed = play({.filter = "nothing == 3"});
  EXPECT_NE(printed.error.find("Field not found"), std::string::npos) << printed.error;
  EXPECT_EQ(printed.text, "");
}

TEST_F(Recording, IsReadableUpToItsLastBlock) {
  record(hits_, {}, false);
  const std::string whole = play().text, all = bytes_;
  std::size_t longest = 0;
  for (std::size_t size = 0; size < all.size(); size += 3) {
    write(all.substr(0, size));
    const Printed printed = play();
    EXPECT_NE(printed.error, "") << size;
    EXPECT_EQ(printed.text, whole.substr(0, printed.text.size())) << size;
    EXPECT_GE(printed.text.size(), longest);
    longest = printed.text.size();
  }
  EXPECT_GT(longest, 0u);
}

TEST_F(Recording, AChangedByteIsFound) {
  record(hits_, {}, false);
  const std::string whole = play().text, all = bytes_;
  for (std::size_t at = 0; at < all.size(); at += 3) {
    if (at >= offsetof(FileHead, zero) && at < sizeof(FileHead)) continue;
    std::string changed = all;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    write(changed);
    const Printed printed = play();
    EXPECT_NE(printed.error, "") << at;
    EXPECT_EQ(printed.text, whole.substr(0, printed.text.size())) << at;
  }
}

TEST_F(Recording, OtherFilesAndVersions) {
  write("");
  EXPECT_EQ(play().error, "is not a recording of uprobe-run");
  write("# tracer: nop\n#                                _-----=> irqs-off/BH-disabled\n");
  EXPECT_EQ(play().error, "is not a recording of uprobe-run");
  for (const std::uint32_t version : {1u, 5u}) {
    FileHead head{.version = version};
    head.tool = {'9', '.', '1'};
    write(std::string(reinterpret_cast<const char*>(&head), sizeof head));
    EXPECT_EQ(play().error, "is a recording of format " + std::to_string(version) +
                                ", and this uprobe-run reads the formats 2 to 4: uprobe-run 9.1 reads it");
  }
  ::unlink(path_.c_str());
  EXPECT_EQ(play().error, "No such file or directory");
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(play().error, "is a fifo: a recording is a regular file");
}

// Records as in a ring: of the event e, with these numbers and times.
std::string raw_records(const std::vector<std::pair<int, std::uint64_t>>& hits) {
  std::string all;
  for (const auto& [number, ns] : hits) {
    Record record("e");
    record.field("k", Kind::signed_decimal, number).field("l", Kind::signed_decimal, 0);
    const shared::RecordHead head{.length = static_cast<std::uint32_t>(sizeof head + record.payload.size()),
                                  .number = 7,
                                  .tsc = ns,
                                  .payload_bytes = static_cast<std::uint32_t>(record.payload.size()),
                                  .cpu = 1,
                                  .flags = 0};
    all.append(reinterpret_cast<const char*>(&head), sizeof head);
    all.append(record.payload.begin(), record.payload.end());
  }
  return all;
}

class Runs : public Recording {
 protected:
  Runs() {
    Record record("e");
    record.field("k", Kind::signed_decimal, 0).field("l", Kind::signed_decimal, 0);
    recorder_.add(record.layout);
  }
  void add(std::uint32_t ring, const std::string& records, std::uint32_t count, std::uint32_t tid = 7) {
    recorder_.append_run({.ring = ring,
                          .tid = tid,
                          .pid = 5,
                          .count = count,
                          .comm = "zsh",
                          .records = {reinterpret_cast<const std::uint8_t*>(records.data()), records.size()}},
                         out_);
  }
  void finish() {
    recorder_.end({}, out_);
    recorder_.flush(out_);
    write(std::string(out_.view()));
  }
  std::vector<int> numbers() {
    std::vector<int> all;
    const std::string text = play({.format = "json"}).text;
    for (std::size_t at = 0; (at = text.find("\"k\":", at)) != std::string::npos; ++at)
      all.push_back(std::atoi(text.c_str() + at + 4));
    return all;
  }

  Recorder recorder_{{}};
  format::Buffer out_;
};

TEST_F(Runs, AreMergedByTime) {
  add(0, raw_records({{1, 10}, {4, 40}}), 2);
  add(3, raw_records({{2, 20}, {3, 30}}), 2, 8);
  add(0, raw_records({{5, 50}, {7, 70}}), 2);
  Record record("e");
  record.field("k", Kind::signed_decimal, 6).field("l", Kind::signed_decimal, 0);
  recorder_.append(record.event(60), "zsh", out_);
  finish();
  EXPECT_EQ(play().error, "");
  EXPECT_EQ(numbers(), (std::vector<int>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(hits_of({.task = "8"}), 2u);
  EXPECT_EQ(hits_of({.task = "zsh"}), 7u);
}

TEST_F(Runs, WithoutABlockThatIsDamagedThePartBeforeItPrints) {
  add(0, raw_records({{1, 10}, {4, 40}}), 2);
  add(3, raw_records({{2, 20}, {3, 30}}), 2);
  recorder_.flush(out_);
  const std::size_t good = out_.size();
  add(1, raw_records({{5, 50}}), 1);
  add(0, raw_records({{6, 60}}), 1);
  finish();
  std::string changed = bytes_;
  changed[good + sizeof(BlockHead) + 3] ^= 1;
  write(changed);
  EXPECT_EQ(play().error,
            "the recording is damaged at byte " + std::to_string(good) + ": what is before it has been printed");
  EXPECT_EQ(numbers(), (std::vector<int>{1, 2, 3, 4}));
}

// Those of the format before, and what a packer does not take.
TEST_F(Runs, MayBeUnpacked) {
  const std::string two = raw_records({{1, 10}, {2, 20}});
  add(0, two, 1);
  add(0, raw_records({{3, 30}}), 1);
  add(0, raw_records({{4, 40}}) + raw_records({{5, 50}}), 2);
  EXPECT_NE(out_.view().find(two), std::string_view::npos) << "a wrong number of records: as they are";
  finish();
  EXPECT_EQ(play().error, "");
  EXPECT_EQ(numbers(), (std::vector<int>{1, 2, 3, 4, 5}));
}

// What a block says of its records does not depend on another block.
TEST_F(Runs, EachBlockCanBeUnpackedAlone) {
  std::vector<int> all;
  for (int i = 0; i < 20'000; ++i) {
    add(0, raw_records({{i, 10 + static_cast<std::uint64_t>(i)}}), 1);
    all.push_back(i);
  }
  EXPECT_GT(out_.size(), 2 * kBlockBytes);
  finish();
  EXPECT_EQ(play().error, "");
  EXPECT_EQ(numbers(), all);
}

TEST_F(Runs, RecordsThatAreNoneAreRefused) {
  const std::string good = raw_records({{1, 10}, {2, 20}});
  for (const std::size_t at : {0u, 2u, 3u, 16u, 18u, 24u}) {
    std::string bad = good;
    bad[bad.size() / 2 + at] = '\x7f';
    add(static_cast<std::uint32_t>(at), bad, 2);
    finish();
    EXPECT_NE(play().error.find("damaged"), std::string::npos) << at;
    EXPECT_EQ(numbers(), (std::vector<int>{1})) << at;
    out_.clear();
    recorder_.begin_file();
  }
}

TEST_F(Recording, EndsAtItsLimit) {
  constexpr std::uint64_t kLimit = 4 * kBlockBytes;
  Recorder recorder({}, kLimit);
  recorder.add(records_[0].layout);
  format::Buffer out;
  std::uint64_t hits = 0;
  for (; !recorder.is_full() && hits < 100'000; ++hits) {
    Record record = records_[0];
    recorder.append(record.event(), "zsh", out);
  }
  recorder.end({}, out);
  recorder.flush(out);
  EXPECT_LE(out.size(), kLimit);
  EXPECT_GE(out.size(), kLimit / 2);
  write(std::string(out.view()));
  EXPECT_EQ(hits_of({}), hits);
}

// Descriptions stay in memory: those of a recording that anybody may have made are as many as a session can have.
TEST_F(Recording, DescriptionsOfEventsHaveBounds) {
  for (const std::size_t bytes : {std::size_t{1000}, std::size_t{kMostEventBytes}}) {
    Recorder recorder({});
    program::EventLayout layout = records_[0].layout;
    layout.fields.assign(4, layout.fields[0]);
    for (program::Field& field : layout.fields) field.declared = std::string(bytes / 4, 'd');
    format::Buffer out;
    recorder.add(layout);
    EXPECT_EQ(recorder.is_full(), bytes == kMostEventBytes);
    EXPECT_EQ(recorder.why_full().empty(), bytes != kMostEventBytes);
    recorder.append(records_[0].event(), "zsh", out);
    recorder.end({}, out), recorder.flush(out);
    write(std::string(out.view()));
    EXPECT_EQ(play().error, "");
  }
  Recorder recorder({});
  format::Buffer out;
  std::size_t events = 0;
  for (; !recorder.is_full() && events < 1'000'000; ++events) recorder.add(records_[0].layout);
  EXPECT_LT(events, 1'000'000U);
  recorder.append(records_[0].event(), "zsh", out);
  recorder.end({}, out), recorder.flush(out);
  EXPECT_LT(out.size(), kMostDescribedBytes + kMostDescribedBytes / 4);
}

TEST(Sums, EveryByteCounts) {
  std::vector<std::uint8_t> bytes(70, 1);
  const std::uint64_t sum = sum_of(bytes.data(), bytes.size());
  EXPECT_NE(sum_of(bytes.data(), 69), sum);
  for (std::uint8_t& byte : bytes) {
    byte = 2;
    EXPECT_NE(sum_of(bytes.data(), bytes.size()), sum);
    byte = 1;
  }
  EXPECT_EQ(sum_of(bytes.data(), 0), sum_of(nullptr, 0));
  EXPECT_NE(sum_of(bytes.data(), 70, 1), sum);
}

}  // namespace
}  // namespace uprobe::recording
