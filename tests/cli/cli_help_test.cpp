// SPDX-License-Identifier: MIT
// --help and --version: the help has every option that the parser knows and no other one.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>

#include "cli/help.h"
#include "cli/options.h"
#include "cli/version.h"
#include "engine/shared/layout.h"

namespace uprobe::cli {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// "-o, --output=FILE", as a line of the help begins.
std::string column_of(const OptionName& option) {
  std::string text = option.letter == 0 ? "    --" : std::string("-") + option.letter + ", --";
  text += option.name;
  if (option.argument.empty()) return text;
  return text + (option.is_required ? "=" + option.argument : "[=" + option.argument + "]");
}

// The options in the help, by name.
std::map<std::string, std::string> columns() {
  static const std::regex kOption("  ((?:-[A-Za-z],|   ) --([a-z-]+)\\S*).*");
  std::map<std::string, std::string> found;
  for (const std::string& line : lines_of(help_text()))
    if (std::smatch match; std::regex_match(line, match, kOption)) found[match[2]] = match[1];
  return found;
}

TEST(CliHelp, HasEachOptionOfTheParserWithItsLetterAndArgument) {
  const auto shown = columns();
  for (const OptionName& option : option_names()) {
    if (option.name == "attach") continue;  // another name of --pid, shown beside it
    const auto found = shown.find(option.name);
    ASSERT_NE(found, shown.end()) << option.name;
    EXPECT_EQ(found->second, column_of(option));
  }
  EXPECT_NE(help_text().find("(also --attach)"), std::string::npos);
}

TEST(CliHelp, NamesNoOptionThatTheParserDoesNotKnow) {
  std::vector<std::string> known;
  for (const OptionName& option : option_names()) known.push_back(option.name);
  const std::string text = help_text();
  static const std::regex kLong("--([a-z][a-z-]*)");
  int seen = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), kLong), end; match != end; ++match, ++seen)
    EXPECT_NE(std::find(known.begin(), known.end(), (*match)[1]), known.end()) << (*match)[0];
  EXPECT_GE(static_cast<std::size_t>(seen), known.size());
}

TEST(CliHelp, FitsATerminalOfEightyColumns) {
  for (const std::string& line : lines_of(help_text())) EXPECT_LE(line.size(), 80u) << line;
}

TEST(CliHelp, HasItsGroupsInOrderAndExamplesAtTheEnd) {
  std::vector<std::string> groups;
  const std::vector<std::string> lines = lines_of(help_text());
  for (const std::string& line : lines)
    if (!line.empty() && line[0] != ' ' && line.back() == ':') groups.push_back(line);
  EXPECT_EQ(groups, (std::vector<std::string>{"Probes:", "Processes:", "Output:", "Recordings:",
                                              "Look without running:", "Running session:", "Expert:", "Examples:"}));
  ASSERT_GT(lines.size(), 4u);
  EXPECT_EQ(lines[lines.size() - 4], "Examples:");
  for (std::size_t i = lines.size() - 3; i < lines.size(); ++i) EXPECT_TRUE(lines[i].starts_with("  uprobe-run -p "));
}

TEST(CliVersion, NamesProjectCommitAgentAndLibraries) {
  const std::string text = version_text("/lib/\x1b.so");
  const std::regex form(
      "uprobe-run \\d+\\.\\d+\\.\\d+\ncommit: ([0-9a-f]{12,}|unknown)\nagent: /lib/\\\\x1b\\.so\nagent ABI: " +
      std::to_string(shared::kAbiVersion) +
      "\nlibraries: Zydis \\d+\\.\\d+\\.\\d+, libdw \\d+\\.\\d+, libelf \\d+\\.\\d+\n"
      "machine: x86-64; .*\n");
  EXPECT_TRUE(std::regex_match(text, form)) << text;
  EXPECT_NE(version_text("").find("\nagent: missing\n"), std::string::npos);
}

}  // namespace
}  // namespace uprobe::cli
