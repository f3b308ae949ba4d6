// SPDX-License-Identifier: MIT
// From the text of a definition to a ProbeSpec:
//
//   p|r[:[GROUP/][EVENT]] PLACE [[NAME=]FETCH[:TYPE]] ...
//
// Two dialects. Strict is the kernel's uprobe_events (6.18): it accepts the same definitions, and reports the same message,
// caret and errno for the others. The default adds
//   PATH:FILE:LINE, PATH:FUNCTION:LINE (counted from its own line), variables, $vars, $params (engine/dwarf);
//   PATH:SYMBOL[+-OFFS], patterns of them, and programs without a path (PROGRAM:SYMBOL); with -x, or with a program to run,
//   which is then the object, also SYMBOL[+-OFFS] and ADDRESS alone;
//   "p:" with nothing after it for an automatic name, "*" for the symbol's;
//   $arg1..$arg6, %rdi and its like, %edi, %dil and other parts of registers, @SYMBOL[+-OFFS];
// and it refuses input that the kernel ignores in silence: text after `$retval`, after a closing parenthesis, between `r` and
// `:`, numbers that do not fit. A mistake that the kernel refuses without a message gets a message of the tool's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/lex/words.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

// A line of a definition, without its newline.
inline constexpr std::size_t kMaxLine = 4095;

// The file at a path, symbolic links followed.
struct FileState {
  int err = 0;  // errno of the failed look-up
  bool is_regular = true;
  std::uint64_t device = 0, inode = 0;
};

FileState look_up_file(const std::string& path);

struct ParseOptions {
  bool strict = false;
  bool words_2009 = false;          // the kprobe tracer's words of 2009 are fetches: see words_2009.h
  std::string default_object = {};  // of places without an object; not in strict mode
  // Called for a path that contains a slash, in strict mode for every path; empty: files are not looked at.
  std::function<FileState(const std::string& path)> file_check = look_up_file;
};

// The place, name and arguments of a line that was cut into words.
Result<ProbeSpec> parse_words(const Command& command, const ParseOptions& options, bool is_return);

// One definition. Blank lines, comments and deletions are errors here (definition_set.h knows them). Error.where is the
// definition with its words joined by single blanks, Error.column counts in it.
Result<ProbeSpec> parse_definition(std::string_view line, const ParseOptions& options = {});

// An error if a line is too long, has a NUL byte or is several lines: then no part of it is read.
Status check_line(std::string_view line, std::size_t limit = kMaxLine);

struct NumberedLine {
  int number = 0;  // from 1
  std::string text;
};

// The lines of a file of definitions that are not blank or comments; line ends may be "\r\n".
std::vector<NumberedLine> split_definitions(std::string_view text);

}  // namespace uprobe::spec
