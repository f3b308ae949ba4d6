// SPDX-License-Identifier: MIT
// From the text of a definition to a ProbeSpec:
//
//   p|r[:[GROUP/][EVENT]] PLACE [[NAME=]FETCH[:TYPE]] ...
//
// Two dialects. Strict is the kernel's uprobe_events (6.18): the same definitions pass, the same message, caret and
// errno come for the others. The default adds
//   PATH:FILE:LINE, PATH:FUNCTION:LINE (behind its own line), variables, $vars, $params (engine/dwarf);
//   PATH:SYMBOL[+-OFFS], patterns of them, and programs without a path (PROGRAM:SYMBOL); with -x or a program to run,
//   which then is the object, also SYMBOL[+-OFFS] and ADDRESS alone;
//   "p:" with nothing behind it for an automatic name, "*" for the symbol's;
//   $arg1..$arg6, %rdi and its like, %edi, %dil and other parts of registers, @SYMBOL[+-OFFS];
// and it refuses what the kernel passes over in silence: text after `$retval`, after a closing brace, between `r` and
// `:`, numbers that do not fit. A mistake that the kernel refuses without a message gets one of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

// A line of a definition, without its newline.
inline constexpr std::size_t kMaxLine = 4095;

// What a path leads to, symbolic links followed.
struct FileState {
  int err = 0;  // errno of the failed look-up
  bool is_regular = true;
  std::uint64_t device = 0, inode = 0;
};

FileState look_up_file(const std::string& path);

struct ParseOptions {
  bool strict = false;
  bool words_2009 = false;          // the kprobe tracer's words of 2009 are fetches: see words_2009.h
  std::string default_object = {};  // of places that name none; not in strict mode
  // Called for a path that contains a slash, in strict mode for every path; empty: files are not looked at.
  std::function<FileState(const std::string& path)> file_check = look_up_file;
};

// One definition. Blank lines, comments and deletions are errors here (definition_set.h knows them). Error.where is the
// definition with its words joined by single blanks, Error.column counts in it.
Result<ProbeSpec> parse_definition(std::string_view line, const ParseOptions& options = {});

// An error if a line is too long, has a NUL byte or is several lines: no part of it is looked at then.
Status check_line(std::string_view line, std::size_t limit = kMaxLine);

struct NumberedLine {
  int number = 0;  // from 1
  std::string text;
};

// The lines of a file of definitions that hold anything but blanks and comments; line ends may be "\r\n".
std::vector<NumberedLine> split_definitions(std::string_view text);

}  // namespace uprobe::spec
