// SPDX-License-Identifier: MIT
// The exact text of errors, and the conditions for colour.
#include <gtest/gtest.h>

#include "cli/diagnostics.h"

namespace uprobe::cli {
namespace {

std::string plain(const Error& error, const Context& context = {}) { return render_error(error, context, false); }

TEST(CliDiagnostics, ADefinitionWithCaretAndHelp) {
  const std::string definition = "p:a /bin/zsh:zfree %di:strng";
  const Error error{
      .text = "Unknown type is specified", .where = definition, .column = 23, .help = "did you mean 'string'?"};
  EXPECT_EQ(plain(error, {"-p", definition}),
            "uprobe-run: -p: Unknown type is specified\n"
            "  p:a /bin/zsh:zfree %di:strng\n"
            "                         ^\n"
            "  did you mean 'string'?\n");
}

TEST(CliDiagnostics, WithoutColumnTheDefinitionStandsAlone) {
  const Error error{.text = "no function 'greett' in ./demo", .help = "close: greet"};
  EXPECT_EQ(plain(error, {"probes.txt:3", "p:a ./demo:greett"}),
            "uprobe-run: probes.txt:3: no function 'greett' in ./demo\n"
            "  p:a ./demo:greett\n"
            "  close: greet\n");
}

TEST(CliDiagnostics, APathIsNamedOnce) {
  EXPECT_EQ(plain({.text = "Is a directory", .where = "/tmp"}), "uprobe-run: /tmp: Is a directory\n");
  EXPECT_EQ(plain({.text = "open /x: No such file or directory", .where = "/x"}),
            "uprobe-run: open /x: No such file or directory\n");
}

TEST(CliDiagnostics, ControlBytesAreEscapedAndTheCaretFollows) {
  const Error error{.text = "bad\nname", .where = "p:a\x1b\tb/x", .column = 5};
  EXPECT_EQ(plain(error),
            "uprobe-run: bad\\nname\n"
            "  p:a\\x1b\\tb/x\n"
            "           ^\n");
}

TEST(CliDiagnostics, TheCaretCountsCharactersNotBytes) {
  const Error error{.text = "bad", .where = "p:a /\xc3\xbc:z %q", .column = 10};
  EXPECT_EQ(plain(error),
            "uprobe-run: bad\n"
            "  p:a /\xc3\xbc:z %q\n"
            "           ^\n");
}

TEST(CliDiagnostics, TheCaretMayStandAfterTheEnd) {
  EXPECT_EQ(plain({.text = "bad", .where = "p:a", .column = 3}), "uprobe-run: bad\n  p:a\n     ^\n");
  EXPECT_EQ(plain({.text = "bad", .where = "p:a", .column = 4000}), "uprobe-run: bad\n  p:a\n     ^\n");
  EXPECT_EQ(plain({.text = "bad", .where = "p:a", .column = 0}), "uprobe-run: bad\n  p:a\n  ^\n");
}

// Lines 2 and 3 of a rendered error.
std::pair<std::string, std::string> quoted(const std::string& definition, int column) {
  const std::string text = plain({.text = "bad", .where = definition, .column = column});
  const std::size_t first = text.find('\n') + 1;
  const std::size_t second = text.find('\n', first) + 1;
  return {text.substr(first, second - first - 1), text.substr(second, text.size() - second - 1)};
}

TEST(CliDiagnostics, LongDefinitionsAreCutAroundTheCaret) {
  std::string definition = std::string(500, 'a') + "!" + std::string(500, 'b');
  const auto [line, caret] = quoted(definition, 500);
  EXPECT_LE(line.size(), 78u);
  EXPECT_TRUE(line.starts_with("  ...a")) << line;
  EXPECT_TRUE(line.ends_with("b...")) << line;
  EXPECT_EQ(line.at(caret.size() - 1), '!');
  EXPECT_EQ(caret.back(), '^');
}

TEST(CliDiagnostics, LongDefinitionsAreCutAtTheirEndsToo) {
  const std::string definition = "!" + std::string(998, 'a') + "?";
  const auto [first_line, first_caret] = quoted(definition, 0);
  EXPECT_EQ(first_line.at(first_caret.size() - 1), '!');
  EXPECT_TRUE(first_line.ends_with("a..."));
  const auto [last_line, last_caret] = quoted(definition, 999);
  EXPECT_EQ(last_line.at(last_caret.size() - 1), '?');
  EXPECT_TRUE(last_line.starts_with("  ...a"));
  const auto [after_line, after_caret] = quoted(definition, 1000);
  EXPECT_EQ(after_line.size() + 1, after_caret.size());
}

TEST(CliDiagnostics, CuttingEscapedBytesKeepsThemWhole) {
  const std::string definition(300, '\x01');
  for (int column = 0; column <= 300; ++column) {
    const auto [line, caret] = quoted(definition, column);
    ASSERT_LE(line.size(), 78u);
    ASSERT_LE(caret.size(), line.size() + 1);
  }
}

TEST(CliDiagnostics, ColourOnlyWhenAskedFor) {
  EXPECT_EQ(render_line("hello", false), "uprobe-run: hello\n");
  EXPECT_EQ(render_line("hello", true), "\x1b[1muprobe-run:\x1b[0m hello\n");
  EXPECT_EQ(render_line("a\x1b[31m", true), "\x1b[1muprobe-run:\x1b[0m a\\x1b[31m\n");
  EXPECT_NE(render_error({.text = "bad", .where = "p:a", .column = 0}, {}, true).find("\x1b[1;31m^\x1b[0m\n"),
            std::string::npos);
}

TEST(CliDiagnostics, RulesOfColour) {
  EXPECT_TRUE(use_color(ColorMode::automatic, ColorFacts{true, nullptr, "xterm"}));
  EXPECT_TRUE(use_color(ColorMode::automatic, ColorFacts{true, "", "xterm"}));
  EXPECT_FALSE(use_color(ColorMode::automatic, ColorFacts{false, nullptr, "xterm"}));
  EXPECT_FALSE(use_color(ColorMode::automatic, ColorFacts{true, "1", "xterm"}));
  EXPECT_FALSE(use_color(ColorMode::automatic, ColorFacts{true, nullptr, "dumb"}));
  EXPECT_FALSE(use_color(ColorMode::automatic, ColorFacts{true, nullptr, nullptr}));
  EXPECT_TRUE(use_color(ColorMode::always, ColorFacts{false, "1", "dumb"}));
  EXPECT_FALSE(use_color(ColorMode::never, ColorFacts{true, nullptr, "xterm"}));
}

}  // namespace
}  // namespace uprobe::cli
