// SPDX-License-Identifier: MIT
// A real kernel's (6.18) answers to 807 writes to uprobe_events, compared with strict parsing, row by row: accepted or not,
// errno, message, place of the caret, the listing afterwards, and each event's format file.
//
// The rows are tests/data/kernel-corpus.tsv, recorded by make-corpus.sh; a token such as @OFF:t_args@ replaces a value that
// depends on the recording. The offsets are made up here, the files are real ones in a temporary directory.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "engine/program/compile.h"
#include "engine/program/format_file.h"
#include "engine/program/verify.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/messages.h"

namespace uprobe {
namespace {

constexpr char kGroup[] = "ucorpus";
constexpr std::size_t kRows = 807;

struct Row {
  int line = 0;
  std::string definition;
  bool accepted = false;
  std::string err, listing, error, caret, format, tag;
};

std::string unescape(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      result += text[i];
      continue;
    }
    const char c = text[++i];
    result += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return result;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t at = 0, end = 0;
  while ((end = text.find(separator, at)) != std::string::npos) {
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<Row> read_corpus() {
  std::vector<Row> rows;
  std::ifstream file(UPROBE_TEST_DATA "/kernel-corpus.tsv", std::ios::binary);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto c = split(line, '\t');
    if (number == 1) continue;
    if (c.size() != 8) {
      ADD_FAILURE() << "line " << number << " has " << c.size() << " columns";
      continue;
    }
    rows.push_back({number, unescape(c[0]), c[1] == "1", c[2], unescape(c[3]), unescape(c[4]), c[5], c[6], c[7]});
  }
  return rows;
}

// The directory of the recorded program and the files beside it, as make-corpus.sh makes them.
class CorpusFiles {
 public:
  CorpusFiles() {
    char name[] = "/tmp/corpus.XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    for (const char* file :
         {"corpus-target", "libx-1.2.so", ".hidden", "_lead", "9digit", "no+good", "with:colon", "UPPER",
          "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij", "emptyfile", "script"})
      std::ofstream(directory_ + "/" + file) << "";
    EXPECT_EQ(mkdir((directory_ + "/dir").c_str(), 0755), 0);
    EXPECT_EQ(mkfifo((directory_ + "/fifo").c_str(), 0644), 0);
    EXPECT_EQ(symlink("corpus-target", (directory_ + "/symlink").c_str()), 0);
    EXPECT_EQ(symlink("nowhere", (directory_ + "/dangling").c_str()), 0);
  }
  ~CorpusFiles() { std::filesystem::remove_all(directory_); }
  CorpusFiles(const CorpusFiles&) = delete;
  CorpusFiles& operator=(const CorpusFiles&) = delete;

  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

// Puts values in the place of tokens.
class Expander {
 public:
  explicit Expander(std::string directory) : directory_(std::move(directory)) {}

  std::string operator()(const std::string& text) {
    std::string result;
    for (const std::string& line : split(text, '\n')) result += padded(replaced(line)) + "\n";
    result.pop_back();
    return result;
  }

 private:
  std::string replaced(const std::string& text) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text[at] == '@' ? text.find('@', at + 1) : std::string::npos;
      const auto value = end == std::string::npos ? std::nullopt : token(text.substr(at + 1, end - at - 1));
      result += value ? *value : std::string(1, text[at]);
      at = value ? end + 1 : at + 1;
    }
    return result;
  }

  std::optional<std::string> token(const std::string& name) {
    if (name == "BIN") return directory_ + "/corpus-target";
    if (name == "DIR") return directory_;
    if (name == "G") return kGroup;
    if (name.starts_with("GFILL")) {
      std::string group = kGroup;
      group.resize(std::stoul(name.substr(5)), 'g');
      return group;
    }
    static const std::map<std::string, const char*> kFormats = {
        {"OFF", "0x%lx"}, {"OFFD", "%lu"}, {"OFFO", "0%lo"}, {"OFF16", "0x%016lx"}, {"OFFU", "0X%lX"}};
    const std::size_t colon = name.find(':');
    const auto format = kFormats.find(name.substr(0, colon));
    if (colon == std::string::npos || format == kFormats.end()) return {};
    return number(format->second, name.substr(colon + 1));
  }

  // SYMBOL[+N]; a symbol gets an offset when it is first seen.
  std::string number(const char* format, const std::string& expression) {
    const std::size_t plus = expression.find('+');
    const std::string symbol = expression.substr(0, plus);
    const unsigned long extra = plus == std::string::npos ? 0 : std::stoul(expression.substr(plus + 1));
    const unsigned long offset = offsets_.try_emplace(symbol, 0x1d41 + 0x137 * offsets_.size()).first->second;
    char buffer[40];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::snprintf(buffer, sizeof buffer, format, offset + extra);
#pragma GCC diagnostic pop
    return buffer;
  }

  // @PADn@: as many blanks as make the line n bytes long.
  static std::string padded(const std::string& line) {
    const std::size_t at = line.find("@PAD");
    if (at == std::string::npos) return line;
    const std::size_t end = line.find('@', at + 1);
    const std::size_t bytes = std::stoul(line.substr(at + 4, end - at - 4));
    const std::string head = line.substr(0, at), tail = line.substr(end + 1);
    return head + std::string(bytes - head.size() - tail.size(), ' ') + tail;
  }

  std::string directory_;
  std::map<std::string, unsigned long> offsets_;
};

std::string errno_name(int err) {
  static const std::map<int, std::string> kNames = {{EINVAL, "EINVAL"},
                                                    {E2BIG, "E2BIG"},
                                                    {ENOENT, "ENOENT"},
                                                    {ERANGE, "ERANGE"},
                                                    {EEXIST, "EEXIST"},
                                                    {EOPNOTSUPP, "EOPNOTSUPP"},
                                                    {ENAMETOOLONG, "ENAMETOOLONG"}};
  const auto found = kNames.find(err);
  return found == kNames.end() ? std::to_string(err) : found->second;
}

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

// The events' formats in the corpus's JSON.
std::string formats(const spec::DefinitionSet& set) {
  std::string text;
  for (const auto& event : set.events()) {
    auto layout = program::make_layout(set.probes()[event.probes.front()]);
    if (!layout) return layout.error().text;
    text += text.empty() ? "[" : ", ";
    text += "{\"event\": " + json_string(event.group + "/" + event.event) +
            ", \"print_fmt\": " + json_string(program::print_format(*layout)) + ", \"fields\": [";
    std::string fields;
    for (const auto& field : program::format_fields(*layout)) {
      if (field.declaration.find(" common_") != std::string::npos) continue;  // make-corpus.sh leaves these out
      fields += fields.empty() ? "" : ", ";
      fields += "[" + json_string(field.declaration) + ", " + std::to_string(field.offset) + ", " +
                std::to_string(field.size) + ", " + (field.is_signed ? "1" : "0") + "]";
    }
    text += fields + "]}";
  }
  return text.empty() ? text : text + "]";
}

// The column of a row's caret in the expanded command `where`: the recorded column counts in the line's words with their
// tokens.
int expected_column(const Row& row, const std::string& where, Expander& expand) {
  const std::size_t caret = std::stoul(row.caret);
  for (const std::string& line : split(row.definition, '\n')) {
    const std::string words = spec::Command(line, spec::Blanks::kernel).text();
    if (expand(words) != where) continue;
    if (caret <= words.size()) return static_cast<int>(expand(words.substr(0, caret)).size());
    return static_cast<int>(where.size() + caret - words.size());
  }
  return -1;
}

void check_error(const Row& row, const Error& error, Expander& expand) {
  EXPECT_EQ(errno_name(error.err), row.err);
  if (row.error.empty()) {
    EXPECT_FALSE(error.text.empty());
    EXPECT_FALSE(spec::message::is_kernels(error.text)) << "the kernel logs nothing here: " << error.text;
    return;
  }
  EXPECT_EQ("trace_uprobe: " + error.text, row.error);
  EXPECT_TRUE(spec::message::is_kernels(error.text));
  EXPECT_EQ(error.column, expected_column(row, error.where, expand)) << error.where;
}

// A definition that the kernel accepts and the compiler refuses: its bitfield only fits because 64-bit sums wrap.
const std::set<std::string> kNotCompiled = {"p:@G@/e @BIN@:@OFF:t_args@ %di:b18446744073709551615@1/8"};

void check_programs(const Row& row, const spec::DefinitionSet& set) {
  for (const auto& spec : set.probes()) {
    auto compiled = program::compile(spec);
    ASSERT_EQ(bool(compiled), !kNotCompiled.contains(row.definition));
    if (!compiled) continue;
    const auto verified = program::verify(*compiled);
    EXPECT_TRUE(verified) << verified.error().text;
  }
}

// Rows whose format the kernel did not record, because it shows freed memory once the first of several probes is
// deleted.
constexpr char kFormatNotRecorded[] = "delete-multi";

TEST(Corpus, StrictParsingAnswersAsTheKernelDid) {
  const CorpusFiles files;
  Expander expand(files.directory());
  const auto rows = read_corpus();
  ASSERT_EQ(rows.size(), kRows);
  std::size_t equal = 0, formats_compared = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE("line " + std::to_string(row.line) + ": " + row.definition.substr(0, 200));
    const auto* before = testing::UnitTest::GetInstance()->current_test_info()->result();
    const int parts_before = before->total_part_count();
    spec::DefinitionSet set({.strict = true});
    const auto status = set.write(expand(row.definition));
    EXPECT_EQ(bool(status), row.accepted) << (status ? "" : status.error().text);
    if (!status && !row.accepted) check_error(row, status.error(), expand);

    const std::string listing = set.listing();
    EXPECT_EQ(listing, row.listing.empty() ? "" : expand(row.listing) + "\n");
    if (row.tag == kFormatNotRecorded) {
      EXPECT_EQ(row.format, "");
    } else {
      EXPECT_EQ(formats(set), expand(row.format));
      formats_compared += row.format.empty() ? 0 : 1;
    }
    check_programs(row, set);
    equal += before->total_part_count() == parts_before ? 1 : 0;
  }
  EXPECT_EQ(equal, rows.size());
  EXPECT_GE(formats_compared, 350u);
}

// The default dialect's additions never change the meaning of a line that the kernel accepts: it gives the same listing, or
// refuses.
TEST(Corpus, TheDefaultDialectAgreesOrRefuses) {
  const CorpusFiles files;
  Expander expand(files.directory());
  std::set<std::string> refused;
  std::size_t accepted = 0;
  for (const Row& row : read_corpus()) {
    SCOPED_TRACE("line " + std::to_string(row.line) + ": " + row.definition.substr(0, 200));
    if (!row.accepted) continue;
    spec::DefinitionSet set;
    if (auto status = set.write(expand(row.definition)); !status) {
      refused.insert(row.definition.substr(row.definition.find(' ', row.definition.find(' ') + 1) + 1) + " | " +
                     status.error().text);
      continue;
    }
    ++accepted;
    EXPECT_EQ(set.listing(), row.listing.empty() ? "" : expand(row.listing) + "\n");
  }
  const std::string variable = " | Nothing may follow the variable", brace = " | Nothing may follow the closing brace",
                    stack = " | The stack index does not fit into 32 bits",
                    dereference = " | The dereference offset does not fit into 32 bits";
  const std::set<std::string> expected = {"$retvalx" + variable,
                                          "$stack18446744073709551615" + stack,
                                          "$stack4294967296" + stack,
                                          "%di:b18446744073709551615@1/8 | Invalid bitfield",
                                          "+0($stack)+8" + brace,
                                          "+0(%di)[4]" + brace,
                                          "+2147483648(%di)" + dereference,
                                          "+4294967296(%di)" + dereference,
                                          "+9223372036854775807(%di)" + dereference,
                                          "-2147483649(%di)" + dereference,
                                          "-9223372036854775808(%di)" + dereference};
  EXPECT_EQ(refused, expected);
  EXPECT_GE(accepted, 350u);
}

}  // namespace
}  // namespace uprobe
