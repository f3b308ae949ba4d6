// SPDX-License-Identifier: MIT
// Writes the trace. See output.h.
#include "cli/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace uprobe::cli {

namespace {

constexpr std::size_t kCollectedBytes = 64 * 1024;

bool has_pid_mark(std::string_view pattern) {
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '%') continue;
    if (pattern[i + 1] == 'p') return true;
    if (pattern[i + 1] == '%') ++i;
  }
  return false;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Error cannot_create(const std::string& path, int err) {
  Error error = system_error("cannot write to it", err);
  error.where = path;
  struct stat facts;
  if (err == ENOENT && ::stat(folder_of(path).c_str(), &facts) != 0)
    error.text = "cannot write to it: there is no folder '" + folder_of(path) + "'";
  if (err == EISDIR) {
    error.text = "cannot write to it: it is a directory";
    error.help = "-o takes the name of a file, or - for standard output";
  }
  return error;
}

// Pipes, terminals and devices are not.
bool may_be_regular(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) != 0 || S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode);
}

// A number below 3 is free only if the user closed that stream; the tool's messages must not get into the trace.
Fd above_standard(Fd fd) {
  if (!fd || fd.get() > 2) return fd;
  return Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
}

}  // namespace

std::string expand_pid(std::string_view pattern, std::string_view pid) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view mark = pattern.substr(i, 2);
    if (mark != "%p" && mark != "%%") {
      name += pattern[i];
      continue;
    }
    name += mark == "%p" ? pid : "%";
    ++i;
  }
  return name;
}

int write_patiently(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return errno;
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return errno;
  }
  return 0;
}

TraceSink::TraceSink(int fd, std::string name) : fd_(fd), name_(std::move(name)), terminal_(::isatty(fd) == 1) {}

TraceSink::~TraceSink() {
  if (owned_.file && !pattern_.empty()) remove_output(owned_);
}

// The tool writes the whole of it, and keeps the descriptor as it keeps a file's.
Result<TraceSink> TraceSink::open_folder(const std::string& path) {
  if (has_pid_mark(path))
    return Error{
        .code = Code::usage, .text = "the name of a folder cannot have %p", .where = path, .help = "-o FOLDER"};
  auto opened = open_output_folder(path);
  if (!opened && opened.error().err == ENOTEMPTY)
    return Error{.code = Code::refused, .text = "the folder is not empty", .where = path, .help = "name a new one"};
  if (!opened && opened.error().err == ENOTDIR)
    return Error{.code = Code::refused, .text = "it is no folder", .where = path, .help = "name a new one"};
  if (!opened) return opened.error().code == Code::refused ? opened.error() : cannot_create(path, opened.error().err);
  Fd folder = above_standard(opened.take());
  TraceSink sink(folder.get(), path);
  sink.owned_.file = std::move(folder);
  sink.files_ = std::make_unique<format::Files>(sink.fd_);
  return sink;
}

Result<TraceSink> TraceSink::open(const std::string& path, const Streams& streams, format::Target target,
                                  const struct stat* input) {
  if (target == format::Target::folder) return open_folder(path);
  if (path.empty()) return TraceSink(streams.err, "standard error");
  if (path == "-") {
    if (is_input(streams.out, input)) return refused_input("standard output");
    return TraceSink(streams.out, "standard output");
  }
  const bool preliminary = has_pid_mark(path);
  const std::string name = expand_pid(path, "starting-" + std::to_string(::getpid()));
  const bool is_read_back = target == format::Target::file;
  const OpenMode mode = is_read_back ? OpenMode::rewrite : OpenMode::truncate;
  if (is_read_back && !may_be_regular(name))
    return Error{.code = Code::refused,
                 .text = "the format needs a file in which it can write at any place, and this is none",
                 .where = name,
                 .help = "name a new file"};
  auto opened = open_output(name, preliminary ? OpenMode::create : mode, input);
  if (!opened && (opened.error().code == Code::refused || opened.error().code == Code::usage)) return opened.error();
  if (!opened) return cannot_create(preliminary ? path : name, opened.error().err);
  opened->file = above_standard(std::move(opened->file));
  if (!opened->file) return cannot_create(path, errno);
  TraceSink sink(opened->file.get(), name);
  sink.owned_ = opened.take();
  if (preliminary) sink.pattern_ = path;
  if (is_read_back) sink.files_ = std::make_unique<format::Files>(sink.fd_);
  return sink;
}

Status TraceSink::child_started(int pid) {
  if (pattern_.empty()) return ok();
  const std::string name = expand_pid(pattern_, std::to_string(pid));
  pattern_.clear();  // if the rename fails the file keeps its name, and the trace is in it
  if (Status renamed = rename_output(owned_, name); !renamed) {
    Error error = renamed.error();
    error.text = "cannot be renamed to " + name + ": " + error.text;
    error.where = name_;
    return error;
  }
  name_ = name;
  return ok();
}

void TraceSink::fail(int err) {
  ended_ = err;
  untold_ = err != EPIPE;
  collected_.clear();
}

int TraceSink::write(std::string_view lines) {
  if (ended_ != 0) return ended_;
  if (first_line_ && first_line_->empty()) first_line_ = lines.substr(0, lines.find('\n') + 1);
  if (newest_) return newest_->add(lines), 0;
  if (!terminal_ && !by_line_ && collected_.size() + lines.size() < kCollectedBytes) {
    collected_ += lines;
    return 0;
  }
  // Large text is written directly, not copied once more.
  if (flush() != 0) return ended_;
  if (const int err = write_out(lines)) fail(err);
  return ended_;
}

int TraceSink::write_out(std::string_view lines) {
  written_ += lines.size();
  while (by_line_ && !lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);  // empty: it has no end
    if (const int err = write_patiently(fd_, line.empty() ? lines : line)) return err;
    lines.remove_prefix(line.empty() ? lines.size() : line.size());
  }
  return write_patiently(fd_, lines);
}

// By the folder that was found first: the working folder may be another one by now.
Status TraceSink::reopen() {
  if (flush() != 0 || owned_.name.empty()) return ok();
  auto next = open_output("/proc/self/fd/" + std::to_string(owned_.folder.get()) + "/" + owned_.name, OpenMode::append);
  if (next) next->file = above_standard(std::move(next->file));
  if (!next || !next->file) {
    Error error = next ? system_error("no descriptor is free", errno) : next.error();
    error.text = "cannot be opened anew (" + error.text + "): the trace goes on in the file that is open";
    error.where = name_;
    return error;
  }
  close_file();
  owned_ = next.take();
  fd_ = owned_.file.get();
  struct stat facts {};
  if (first_line_ && ::fstat(fd_, &facts) == 0 && facts.st_size == 0) collected_ = *first_line_;
  return ok();
}

int TraceSink::write_newest() {
  if (newest_) collected_ += newest_->take();
  return flush();
}

int TraceSink::flush() {
  if (ended_ != 0 || collected_.empty()) return ended_;
  written_ += collected_.size();
  if (const int err = write_patiently(fd_, collected_)) fail(err);
  collected_.clear();
  return ended_;
}

void TraceSink::finish() {
  write_newest();
  if (owned_.file && pattern_.empty()) close_file();
}

void TraceSink::close_file() {
  // Some file systems report a full disk or quota only when a descriptor is closed. Fd ignores that error, so a copy of the
  // descriptor is closed first.
  const Fd file = std::move(owned_.file);
  const int copy = ::fcntl(file.get(), F_DUPFD_CLOEXEC, 3);
  if (copy >= 0 && ::close(copy) != 0 && errno != EINTR && ended_ == 0) fail(errno);
}

Status TraceSink::check_rotation() const {
  struct stat facts {};
  if (!owned_.name.empty() && ::fstat(fd_, &facts) == 0 && S_ISREG(facts.st_mode)) return ok();
  return Error{
      .code = Code::refused, .text = "is no file that can get another name: --rotate is not for it", .where = name_};
}

int TraceSink::rotate(unsigned files) {
  if (flush() != 0) return ended_;
  const Status shifted = shift_outputs(owned_, files);
  close_file();
  if (ended_ != 0) return ended_;
  auto next = shifted ? open_next(owned_) : Result<OutputFile>(shifted.error());
  if (next) next->file = above_standard(std::move(next->file));
  if (next && next->file) {
    owned_ = next.take();
    fd_ = owned_.file.get();
    return 0;
  }
  rotation_ = next ? "no descriptor is free" : next.error().text;
  fail(next || next.error().err == 0 ? EEXIST : next.error().err);
  untold_ = true;
  return ended_;
}

std::optional<Error> TraceSink::take_failure() {
  if (files_ && files_->error() != 0 && !std::exchange(has_told_files_, true)) fail(files_->error());
  if (!untold_) return std::nullopt;
  untold_ = false;
  if (!rotation_.empty())
    return Error{.code = Code::system,
                 .text = "a further file cannot be begun: " + rotation_ + "; the trace ends here",
                 .where = name_,
                 .err = ended_};
  return Error{.code = Code::system,
               .text = std::string("writing failed: ") + std::strerror(ended_) + "; the trace ends here",
               .where = name_,
               .err = ended_};
}

}  // namespace uprobe::cli
