// SPDX-License-Identifier: MIT
// A real kernel's (6.18) answers to 132 filters of one event, row by row: accepted or not, errno, message, place of the caret,
// and which of two records passed. The rows are tests/data/kernel-filters.tsv, recorded by make-filters.py.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "engine/program/compile.h"
#include "engine/program/filter.h"
#include "engine/program/verify.h"
#include "engine/spec/parse.h"

namespace uprobe::program {
namespace {

constexpr std::size_t kRows = 132;
constexpr std::int32_t kPid = 4711;
// The kernel counts how often preemption was forbidden at the hit; a program has no such count.
constexpr char kOfTheKernel[] = "common_preempt_count == 0";

struct Row {
  std::string filter, write, calls, read_back;
};

std::string unescape(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    const char c = escaped ? text[++i] : text[i];
    result += !escaped ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return result;
}

std::vector<Row> read_rows() {
  std::vector<Row> rows;
  std::ifstream file(UPROBE_TEST_DATA "/kernel-filters.tsv", std::ios::binary);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::string columns[4];
    std::size_t at = 0;
    for (std::string& column : columns) {
      const std::size_t end = line.find('\t', at);
      column = unescape(line.substr(at, end - at));
      at = end == std::string::npos ? line.size() : end + 1;
    }
    const std::size_t pid = columns[0].find("@PID@");
    if (pid != std::string::npos) columns[0].replace(pid, 5, std::to_string(kPid));
    rows.push_back({columns[0], columns[1], columns[2], columns[3]});
  }
  return rows;
}

// The recorded event; its strings and arrays are constants there.
EventProgram event() {
  const auto spec = spec::parse_definition(
      "p:g/e /b/x:f u=%di:u32 s=%si:s32 str=+0(%r8):string x=%dx arr=+0(%r9):x16[2] sarr=+0(%r10):string[2] c=$comm "
      "ch=%di:char",
      {.file_check = nullptr});
  return compile(*spec).take();
}

// The agent's payloads for args(1, 2, 3) and for argsneg(-1, -2, -3).
class Record {
 public:
  Record(const EventLayout& layout, std::int64_t first) {
    bytes_.assign(layout.fixed_bytes, 0);
    put(4, kPid, 4);
    put(8, 0x555555555000, 8);
    const std::int64_t step = first < 0 ? -1 : 1;
    std::size_t field = 0;
    const auto next = [&] { return layout.fields[field++].offset; };
    put(next(), first, 4);
    put(next(), first + step, 4);
    put_string(next(), "hello");
    put(next(), first + 2 * step, 8);
    put(next(), 0x22221111, 4);
    const std::uint32_t array = next();
    put_string(array, "hello");
    put_string(array + 4, "");
    put_string(next(), "corpus-target");
    put(next(), first, 1);
  }
  bool passes(const EventProgram& program, std::uint32_t cpu) const {
    std::uint8_t name[shared::kNameBytes] = "corpus-target";
    const shared::Filter filter{program.filter.data(), static_cast<std::uint32_t>(program.filter.size()),
                                reinterpret_cast<const std::uint8_t*>(program.text.data()),
                                static_cast<std::uint32_t>(program.text.size())};
    return shared::run_filter(filter, {bytes_.data(), static_cast<std::uint32_t>(bytes_.size()), cpu, name}) ==
           shared::Verdict::pass;
  }

 private:
  void put(std::uint32_t offset, std::int64_t value, std::uint32_t size) {
    std::memcpy(bytes_.data() + offset, &value, size);
  }
  void put_string(std::uint32_t offset, const std::string& text) {
    put(offset, static_cast<std::int64_t>((text.size() + 1) << 16 | bytes_.size()), 4);
    bytes_.insert(bytes_.end(), text.c_str(), text.c_str() + text.size() + 1);
  }

  std::vector<std::uint8_t> bytes_;
};

// As the kernel's file reads after the write.
std::string read_back(const std::string& filter, const Error& error) {
  std::string text = filter;
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
  if (error.column < 0) return text + "\n" + error.text + "\n\n";
  return text + "\n" + std::string(static_cast<std::size_t>(error.column), ' ') + "^\nparse_error: " + error.text +
         "\n\n";
}

TEST(FilterCorpus, SaysWhatTheKernelSays) {
  const std::vector<Row> rows = read_rows();
  ASSERT_EQ(rows.size(), kRows);
  for (const Row& row : rows) {
    EventProgram program = event();
    const Status set = set_filter(program, row.filter, {.id = 1, .cpus = 2});
    EXPECT_EQ(set ? "ok" : ::strerrorname_np(set.error().err), row.write) << row.filter;
    EXPECT_TRUE(verify(program)) << row.filter;
    if (set) continue;
    EXPECT_EQ(read_back(row.filter, set.error()), row.read_back);
    EXPECT_TRUE(program.filter.empty());
  }
}

TEST(FilterCorpus, LetsPassWhatTheKernelLetsPass) {
  for (const Row& row : read_rows()) {
    EventProgram program = event();
    if (!set_filter(program, row.filter, {.id = 1, .cpus = 2}) || row.filter == kOfTheKernel) continue;
    for (const std::uint32_t cpu : {0u, 1u}) {
      std::string calls;
      if (Record(program.layout, 1).passes(program, cpu)) calls = "args";
      if (Record(program.layout, -1).passes(program, cpu)) calls += calls.empty() ? "argsneg" : ",argsneg";
      EXPECT_EQ(calls, row.calls) << row.filter;
    }
  }
}

}  // namespace
}  // namespace uprobe::program
