// SPDX-License-Identifier: MIT
// The destination of the trace text: a file, standard output or standard error.
//
// Lines are collected and written whole: at once on a terminal, else when flush() is called or the buffer is full. When the
// output fails the sink drops all further text, and the traced program goes on.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/newest.h"
#include "cli/output_file.h"
#include "engine/base/result.h"
#include "engine/export/files.h"
#include "engine/export/formats.h"

namespace uprobe::cli {

// The standard streams; tests put pipes and files here.
struct Streams {
  int in = 0;
  int out = 1;
  int err = 2;
};

// Writes everything, and waits where the descriptor is non-blocking (the traced program may have made a shared one so).
// Returns 0 or an errno.
int write_patiently(int fd, std::string_view text);

// A name with "%p" as the process's id and "%%" as "%".
std::string expand_pid(std::string_view pattern, std::string_view pid);

class TraceSink {
 public:
  // `path` empty: standard error; "-": standard output; else a file, created or truncated now (see output_file.h). A "%p" in
  // its name is the traced program's PID, which is known only later: the file has a preliminary name until child_started()
  // renames it ("%%" is "%"). `target`: what the format writes to; a file has to be a regular one, a folder to be empty or new
  // (see output_folder.h). `input`: a file that is read and must not be written to.
  static Result<TraceSink> open(const std::string& path, const Streams& streams,
                                format::Target target = format::Target::stream, const struct stat* input = nullptr);
  TraceSink(TraceSink&&) noexcept = default;
  TraceSink& operator=(TraceSink&&) = delete;
  // Removes a file that still has its preliminary name.
  ~TraceSink();

  bool is_terminal() const { return terminal_; }
  // Null: the format writes a stream.
  format::Files* files() { return files_.get(); }
  // Bytes that have been written.
  std::uint64_t written() const { return written_; }
  // Its reader has gone away.
  bool is_deserted() const { return ended_ == EPIPE; }
  // From now on the newest lines stay in memory, until write_newest() or finish() writes them.
  void keep_newest(std::size_t bytes, bool has_names) { newest_.emplace(bytes, has_names); }
  int write_newest();
  // How many lines were too old to be written.
  std::uint64_t dropped() const { return newest_ ? newest_->dropped() : 0; }
  // From now on each line is written by itself, at once.
  void write_lines() { by_line_ = true; }
  // Each file that reopen() makes begins with the first line of all.
  void repeat_first_line() { first_line_.emplace(); }
  // Opens the file anew by its name, after all that has been taken is in the old one. Fails where that is not possible: then the old
  // one stays.
  Status reopen();
  Status child_started(int pid);

  // Take whole lines / write what was collected. Return 0, or the errno that ended the output.
  int write(std::string_view lines);
  int flush();
  // Flushes and closes a file.
  void finish();
  // Goes on in a new file of the same name. The one before it gets the name FILE.1, and that FILE.2, and so on, so that there
  // are `files` of them. Returns 0, or the errno that ended the output. check_rotation(): whether that can be done.
  int rotate(unsigned files);
  Status check_rotation() const;

  // An error that the user should see, once. A reader that went away (EPIPE) is not one.
  std::optional<Error> take_failure();

 private:
  TraceSink(int fd, std::string name);
  static Result<TraceSink> open_folder(const std::string& path);
  void fail(int err);
  int write_out(std::string_view lines);
  void close_file();

  OutputFile owned_;
  int fd_ = -1;
  std::string name_;     // as shown in messages
  std::string pattern_;  // with %p; empty when the name is final
  std::string collected_;
  std::optional<std::string> first_line_;  // empty: it has not been written
  std::optional<NewestLines> newest_;
  bool terminal_ = false, by_line_ = false;
  std::uint64_t written_ = 0;
  int ended_ = 0;           // the errno that ended the output
  std::string rotation_{};  // why there is no further file; empty: something else ended it
  bool untold_ = false;
  bool has_told_files_ = false;
  std::unique_ptr<format::Files> files_;
};

}  // namespace uprobe::cli
