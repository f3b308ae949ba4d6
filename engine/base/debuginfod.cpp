// SPDX-License-Identifier: MIT
#include "engine/base/debuginfod.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "engine/base/fd.h"
#include "engine/base/text.h"

namespace uprobe::debuginfod {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProgram = "debuginfod-find";
constexpr const char* kLibrary = "libdebuginfod.so.1";
constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;
constexpr std::uint64_t kMostSeconds = 120, kGrace = 5;
constexpr int kNotFound = 1, kNoMeans = 127;

std::function<void(const std::string&)>& listener() {
  static std::function<void(const std::string&)> tell;
  return tell;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

std::uint64_t number_in(const char* name, std::uint64_t otherwise) {
  const std::string text = variable(name);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number != 0 ? number : otherwise;
}

std::string digits_of(std::span<const std::uint8_t> build_id) {
  constexpr std::size_t kLeast = 2, kMost = 64;
  const bool is_id = build_id.size() >= kLeast && build_id.size() <= kMost;
  return is_id ? hex_digits(build_id) : std::string();
}

// As the library chooses it.
std::string cache_folder() {
  if (std::string chosen = variable("DEBUGINFOD_CACHE_PATH"); !chosen.empty()) return chosen;
  const std::string home = variable("HOME"), former = home + "/.debuginfod_client_cache";
  if (::access(former.c_str(), F_OK) == 0) return former;
  const std::string caches = variable("XDG_CACHE_HOME");
  return (caches.empty() ? home + "/.cache" : caches) + "/debuginfod_client";
}

std::string program_in_path() {
  const std::string folders = variable("PATH");
  for (std::size_t at = 0; at < folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string path = folders.substr(at, end - at) + "/" + kProgram;
    if (path[0] == '/' && ::access(path.c_str(), X_OK) == 0) return path;
    at = end + 1;
  }
  return {};
}

void limit(int resource, std::uint64_t most) {
  const rlimit both{most, most};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

// What follows is in the child, which has one descriptor of the tool's: the pipe that shows its end.
void leave_tool(int pipe) {
  constexpr int kPipe = 3;
  struct sigaction none {};
  none.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &none, nullptr);
  sigset_t empty;
  ::sigemptyset(&empty);
  ::sigprocmask(SIG_SETMASK, &empty, nullptr);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(pipe, kPipe);
  for (int fd = 0; fd < kPipe; ++fd) ::dup2(null, fd);
  ::syscall(SYS_close_range, kPipe + 1, ~0U, 0);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, kMostBytes);
}

// Without the program: by the library, whose functions have the types of its header.
int ask_library(const std::string& digits) {
  // A static tool has no loader, and is not linked with the function that needs one.
  if (::getauxval(AT_BASE) == 0) return kNoMeans;
  const auto open = reinterpret_cast<void* (*)(const char*, int)>(::dlsym(RTLD_DEFAULT, "dlopen"));
  void* library = open == nullptr ? nullptr : open(kLibrary, RTLD_NOW);
  if (library == nullptr) return kNoMeans;
  const auto begin = reinterpret_cast<void* (*)()>(dlsym(library, "debuginfod_begin"));
  const auto find =
      reinterpret_cast<int (*)(void*, const unsigned char*, int, char**)>(dlsym(library, "debuginfod_find_debuginfo"));
  void* client = begin == nullptr ? nullptr : begin();
  if (find == nullptr || client == nullptr) return kNoMeans;
  constexpr int kIsText = 0;  // the length of a build id in hexadecimal digits
  return find(client, reinterpret_cast<const unsigned char*>(digits.c_str()), kIsText, nullptr) >= 0 ? 0 : kNotFound;
}

[[noreturn]] void ask(const std::string& program, const std::string& digits, int pipe) {
  leave_tool(pipe);
  ::setenv("DEBUGINFOD_MAXTIME", std::to_string(kMostSeconds).c_str(), 0);
  ::setenv("DEBUGINFOD_MAXSIZE", std::to_string(kMostBytes).c_str(), 0);
  ::unsetenv("DEBUGINFOD_VERBOSE");
  ::unsetenv("DEBUGINFOD_PROGRESS");
  if (program.empty()) ::_exit(ask_library(digits));
  ::execl(program.c_str(), kProgram, "debuginfo", digits.c_str(), static_cast<char*>(nullptr));
  ::_exit(kNoMeans);
}

// Whether the other end has closed, as the child has ended.
bool wait_for_end(const Fd& pipe, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd closed{.fd = pipe.get(), .events = POLLIN, .revents = 0};
    if (::poll(&closed, 1, static_cast<int>(std::min<long long>(left, 1000))) > 0) return true;
  }
}

Error failed(Code code, std::string text) { return Error{.code = code, .text = "debuginfod: " + std::move(text)}; }

Status status_of(int status, const std::string& digits) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ)
    return failed(Code::limit, "the debug information of build id " + digits + " is larger than 4 GiB");
  if (WIFSIGNALED(status)) return failed(Code::system, "the fetching was ended by a signal");
  if (WEXITSTATUS(status) == kNoMeans)
    return failed(Code::refused, "neither the program debuginfod-find nor libdebuginfod.so.1 is installed");
  if (WEXITSTATUS(status) != 0)
    return failed(Code::not_found, "no server of DEBUGINFOD_URLS has the debug information of build id " + digits);
  return ok();
}

Status run(const std::string& digits) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  Fd ours(ends[0]), its(ends[1]);
  const std::string program = program_in_path();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork", errno);
  if (pid == 0) ask(program, digits, its.get());
  its.reset();
  const auto patience =
      std::chrono::seconds(std::min<std::uint64_t>(number_in("DEBUGINFOD_MAXTIME", kMostSeconds), 86400) + kGrace);
  const bool has_ended = wait_for_end(ours, Clock::now() + patience);
  if (!has_ended) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, __WALL) < 0)
    if (errno != EINTR) return system_error("waitpid", errno);
  if (!has_ended) return failed(Code::limit, "no answer after " + std::to_string(patience.count()) + " seconds");
  return status_of(status, digits);
}

}  // namespace

std::string cached_file(std::span<const std::uint8_t> build_id) {
  const std::string digits = digits_of(build_id);
  if (digits.empty() || is_all_blank(variable("DEBUGINFOD_URLS"))) return {};
  return cache_folder() + "/" + digits + "/debuginfo";
}

Status fetch(std::span<const std::uint8_t> build_id, const std::string& what) {
  const std::string path = cached_file(build_id);
  if (path.empty()) return failed(Code::refused, "DEBUGINFOD_URLS is not set");
  if (listener()) listener()("fetching debug information of " + what + " from " + variable("DEBUGINFOD_URLS"));
  RETURN_IF_ERROR(run(digits_of(build_id)));
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && status.st_size > 0) return ok();
  return failed(Code::not_found, "the debug information is not at " + path);
}

void tell_fetches(std::function<void(const std::string&)> tell) { listener() = std::move(tell); }

}  // namespace uprobe::debuginfod
