// SPDX-License-Identifier: MIT
// The helper is the tool, found beside the library. It must stay invisible to the application: to wait(), by SIGCHLD, and in
// its descriptors.
//
//   agent --clone, exit signal 0--> intermediate --clone--> helper-to-be --execve--> the tool
//
// execve gives a process the exit signal SIGCHLD, so the tool must not be a child of the program: the intermediate process ends
// at once (the agent reaps it with __WCLONE, which no wait() of the application does) and the kernel gives the tool another
// parent. If the program is a subreaper it would become that parent itself, so the agent clears that state for the moment.
// Process 1 always is one: there the intermediate process stays, as the tool's parent; with its exit signal 0 only __WALL sees
// it. Both are plain forks, with memory of their own: a child in the program's memory would keep it alive after execve and look
// like a second thread.
//
// System calls: the program has not begun; signals are blocked, so none of its handlers runs in a child.
#include "preload/helper.h"

#include "engine/shared/agent_header.h"
#include "preload/environment.h"
#include "preload/system_call.h"

extern "C" const uprobe::shared::AgentHeader uprobe_agent;

namespace uprobe::agent {
namespace {

using shared::Bootstrap;

constexpr u64 kCloneUntraced = 0x800000, kWaitClone = 0x80000000, kWaitAll = 0x40000000;
constexpr u64 kSetReaper = 36, kGetReaper = 37;                         // PR_*_CHILD_SUBREAPER
constexpr u64 kGetFd = 1, kSetFd = 2, kDupAbove = 1030;                 // F_GETFD, F_SETFD, F_DUPFD_CLOEXEC
constexpr u64 kFileSize = 1, kData = 2, kStack = 3, kAddressSpace = 9;  // RLIMIT_*
constexpr u64 kCloseOnExec = 02000000, kReadWrite = 2;
constexpr u64 kSetMask = 2;
constexpr u32 kPathBytes = 4096, kMostVariables = 16;
constexpr u32 kNoSuchFile = 2;

template <class... Arguments>
long call(long number, Arguments... arguments) {
  return system_call(number, static_cast<u64>(arguments)...);
}

u32 error_of(long result) { return result < 0 ? static_cast<u32>(-result) : 0; }

// Data for the children, prepared before they exist.
struct Start {
  Bootstrap* page;
  i32 memory, lifeline;  // descriptors that the helper gets
  bool stays;            // the intermediate process stays
  char* variables[kMostVariables];
  char words[2][12];
  char path[kPathBytes];
  u32 folder_bytes;  // of the path: up to its last '/', included
};

void append(char* to, u32& used, u32 room, const char* text) {
  while (*text != 0 && used + 1 < room) to[used++] = *text++;
  to[used] = 0;
}

void append_number(char* to, u32& used, u32 room, u64 number) {
  char digits[21];
  u32 at = sizeof digits - 1;
  digits[at] = 0;
  do digits[--at] = static_cast<char>('0' + number % 10);
  while ((number /= 10) != 0);
  append(to, used, room, digits + at);
}

// The tool is beside the library (build tree), or in bin if the library is in lib/uprobe or lib/TRIPLET/uprobe.
long become_tool(Start& start) {
  char* words[] = {const_cast<char*>("uprobe-run"), const_cast<char*>("--preload-helper"), start.words[0],
                   start.words[1], nullptr};
  long result = -static_cast<long>(kNoSuchFile);
  for (u32 depth = 0; depth < 3 && error_of(result) == kNoSuchFile; ++depth) {
    u32 used = start.folder_bytes;
    for (u32 i = 0; i < depth + (depth != 0 ? 1 : 0); ++i) append(start.path, used, kPathBytes, "../");
    append(start.path, used, kPathBytes, depth == 0 ? "uprobe-run" : "bin/uprobe-run");
    result = call(kSysExecve, as_word(start.path), as_word(words), as_word(start.variables));
  }
  return result;
}

// With the program's standard input and output the helper would keep a reader of them waiting: $(program). A stream that cannot
// be opened becomes a pipe without a reader: free numbers below 3 would be the helper's next files.
void turn_streams_away() {
  long null = call(kSysOpen, as_word("/dev/null"), kReadWrite);
  i32 pipe[2];
  if (null < 0 && call(kSysPipe2, as_word(pipe), 0) == 0) null = pipe[1];
  if (null < 0) return;
  for (u64 stream = 0; stream < 2; ++stream) call(kSysDup2, null, stream);
  if (call(kSysFcntl, 2, kGetFd) < 0) call(kSysDup2, null, 2);
}

void close_others(u32 a, u32 b) {
  const u32 low = a < b ? a : b, high = a < b ? b : a;
  const u32 ranges[][2] = {{3, low - 1}, {low + 1, high - 1}, {high + 1, ~0u}};
  for (const auto& range : ranges) {
    if (range[0] > range[1]) continue;
    if (call(kSysCloseRange, range[0], range[1], 0) >= 0) continue;
    for (u32 fd = range[0]; fd <= range[1] && fd < 65536; ++fd) call(kSysClose, fd);  // a kernel before 5.9
  }
}

// The program's limits on memory are not meant for the tool: raised as far as allowed.
void lift_limits() {
  const u64 resources[] = {kData, kStack, kAddressSpace};
  for (const u64 resource : resources) {
    u64 limit[2];
    if (call(kSysPrlimit, 0, resource, 0, as_word(limit)) != 0) continue;
    limit[0] = limit[1];
    call(kSysPrlimit, 0, resource, as_word(limit), 0);
  }
}

[[noreturn]] void run_helper(Start& start) {
  const u64 none = 0;
  call(kSysSetsid);
  turn_streams_away();
  close_others(static_cast<u32>(start.memory), static_cast<u32>(start.lifeline));
  call(kSysFcntl, start.memory, kSetFd, 0);
  call(kSysFcntl, start.lifeline, kSetFd, 0);
  call(kSysRtSigprocmask, kSetMask, as_word(&none), 0, 8);
  lift_limits();
  start.page->start_error = error_of(become_tool(start));
  for (;;) call(kSysExitGroup, 127);
}

[[noreturn]] void run_between(Start& start) {
  const long helper = call(kSysClone, kCloneUntraced, 0, 0, 0, 0);
  if (helper == 0) run_helper(start);
  if (helper < 0) start.page->start_error = error_of(helper);
  if (start.stays && helper > 0) {
    // The helper must keep nothing of the program's, and the page would make it look like a traced process.
    call(kSysSetsid);
    call(kSysCloseRange, 0, ~0u, 0);
    call(kSysMunmap, as_word(start.page), shared::kBootstrapBytes);
    while (call(kSysWait4, helper, 0, kWaitAll, 0) == -4) {
    }
  }
  for (;;) call(kSysExitGroup, 0);
}

// 0 or an errno.
u32 start_children(Start& start) {
  i32 reaper = 0;
  system_call(kSysPrctl, kGetReaper, as_word(&reaper));
  if (reaper != 0) system_call(kSysPrctl, kSetReaper, 0);
  start.stays = system_call(kSysGetpid) == 1;
  const long between = call(kSysClone, kCloneUntraced, 0, 0, 0, 0);
  if (between == 0) run_between(start);
  if (between > 0 && !start.stays)
    while (call(kSysWait4, between, 0, kWaitClone, 0) == -4) {
    }
  if (reaper != 0) system_call(kSysPrctl, kSetReaper, 1);
  return error_of(between);
}

// Descriptors below 3 are free only if the program was started without a stream; the helper opens others there.
long above_streams(long fd) {
  if (fd < 0 || fd > 2) return fd;
  const long moved = call(kSysFcntl, fd, kDupAbove, 3);
  call(kSysClose, fd);
  return moved;
}

// Sizes the page even if the limit of file sizes is smaller, since hitting that limit is a SIGXFSZ.
long size_page(long memory) {
  constexpr long kTooBig = -27;
  u64 limit[2];
  if (call(kSysPrlimit, 0, kFileSize, 0, as_word(limit)) != 0) return kTooBig;
  if (limit[0] >= shared::kBootstrapBytes) return call(kSysFtruncate, memory, shared::kBootstrapBytes);
  if (limit[1] < shared::kBootstrapBytes) return kTooBig;
  const u64 raised[2] = {limit[1], limit[1]};
  if (call(kSysPrlimit, 0, kFileSize, as_word(raised), 0) != 0) return kTooBig;
  const long result = call(kSysFtruncate, memory, shared::kBootstrapBytes);
  call(kSysPrlimit, 0, kFileSize, as_word(limit), 0);
  return result;
}

// The page, with its descriptor in `memory`. A result in the last page of the address space is an error.
long make_page(i32& memory) {
  constexpr u64 kSealable = 3;  // MFD_CLOEXEC | MFD_ALLOW_SEALING
  long fd = call(kSysMemfdCreate, as_word("uprobe-start"), kSealable);
  fd = above_streams(fd);
  if (fd < 0) return fd;
  memory = static_cast<i32>(fd);
  if (const long sized = size_page(fd); sized < 0) return sized;
  constexpr u64 kShared = 1, kReadable = 3;  // MAP_SHARED, PROT_READ | PROT_WRITE
  return call(kSysMmap, 0, shared::kBootstrapBytes, kReadable, kShared, fd, 0);
}

bool same_link(const char* a, const char* b) {
  char left[64], right[64];
  const long n = call(kSysReadlink, as_word(a), as_word(left), sizeof left);
  return n > 0 && n == call(kSysReadlink, as_word(b), as_word(right), sizeof right) &&
         __builtin_memcmp(left, right, static_cast<u64>(n)) == 0;
}

// Whether /proc shows this PID namespace, or the helper would take another process for this one; and whether children are born
// into it: the first process of a new namespace (unshare -p) is its process 1, whose end is the end of the namespace.
bool can_be_found() {
  char number[24], link[24];
  u32 digits = 0;
  append_number(number, digits, sizeof number, static_cast<u64>(system_call(kSysGetpid)));
  const long n = call(kSysReadlink, as_word("/proc/self"), as_word(link), sizeof link);
  return n == static_cast<long>(digits) && __builtin_memcmp(number, link, digits) == 0 &&
         same_link("/proc/self/ns/pid", "/proc/self/ns/pid_for_children");
}

// Makes the calls that the agent would have to make in the program, but in a child: a filter may kill for any of them. (A
// filter that kills for clone or wait4 cannot be detected.)
bool survives_our_calls() {
  const long child = call(kSysClone, kCloneUntraced, 0, 0, 0, 0);
  if (child == 0) {
    constexpr u64 kPrivate = 0x22, kExecutable = 5, kQuery = 0;  // MAP_PRIVATE | MAP_ANONYMOUS, PROT_READ | PROT_EXEC
    const long fd = call(kSysMemfdCreate, as_word("uprobe-start"), 1);
    i32 pipe[2];
    u64 action[4], limit[2];
    call(kSysReadlink, as_word("/proc/self"), 0, 0);
    call(kSysFtruncate, fd, 0);
    call(kSysFcntl, fd, kGetFd);
    call(kSysPipe2, as_word(pipe), 0);
    call(kSysPrlimit, 0, kFileSize, kQuery, as_word(limit));
    call(kSysOpenat, -100, as_word("/proc/self/maps"), kReadWrite);
    call(kSysPoll, 0, 0, 0);
    call(kSysMunmap, call(kSysMmap, 0, 4096, kExecutable, kPrivate, -1, 0), 4096);
    system_call(kSysPrctl, kGetReaper, 0);
    system_call(kSysRtSigaction, 5, 0, as_word(action), 8);
    call(kSysRtSigprocmask, kSetMask, 0, as_word(action), 8);
    system_call(kSysGetpid);
    system_call(kSysFutex, as_word(limit), 1, 1);
    call(kSysClose, fd);
    for (;;) call(kSysExitGroup, 0);
  }
  i32 status = 0;
  while (child > 0 && call(kSysWait4, child, as_word(&status), kWaitClone, 0) == -4) {
  }
  return child > 0 && status == 0;
}

// The helper gets its own variables, and neither LD_PRELOAD nor any other that its loader would obey.
void choose_variables(char** environment, Start& start) {
  u32 count = 0;
  for (char** entry = environment; *entry != nullptr && count + 1 < kMostVariables; ++entry)
    if (starts_with(*entry, "UPROBE_") || starts_with(*entry, "PATH=") || starts_with(*entry, "TERM=") ||
        starts_with(*entry, "NO_COLOR="))
      start.variables[count++] = *entry;
  start.variables[count] = nullptr;
}

bool find_tool(Start& start) {
  constexpr u32 kLongestTail = 32;
  if (!own_path(start.path, kPathBytes - kLongestTail)) return false;
  start.folder_bytes = length_of(start.path);
  while (start.folder_bytes != 0 && start.path[start.folder_bytes - 1] != '/') --start.folder_bytes;
  return true;
}

void fill_page(Bootstrap& page, u64 blocked) {
  page.magic = shared::kBootstrapMagic;
  page.abi_version = shared::kAbiVersion;
  page.pid = static_cast<u32>(system_call(kSysGetpid));
  page.address = as_word(&page);
  page.agent = as_word(&uprobe_agent);
  page.blocked = blocked;
  say_request(page.slot, 2);
}

void write_words(Start& start) {
  const i32 numbers[] = {start.memory, start.lifeline};
  for (u32 i = 0; i < 2; ++i) {
    u32 used = 0;
    append_number(start.words[i], used, sizeof start.words[i], static_cast<u64>(numbers[i]));
  }
}

// Makes page and lifeline and starts the helper: 0 or an errno.
u32 start_with(Start& start, Helper& helper, u64 blocked) {
  const long page = make_page(start.memory);
  if (error_of(page) != 0) return error_of(page);
  helper.page = start.page = reinterpret_cast<Bootstrap*>(page);
  i32 ends[2];
  if (const long made = call(kSysPipe2, as_word(ends), kCloseOnExec); made != 0) return error_of(made);
  helper.lifeline = ends[0];
  start.lifeline = static_cast<i32>(above_streams(ends[1]));
  if (start.lifeline < 0) return error_of(start.lifeline);
  fill_page(*start.page, blocked);
  write_words(start);
  return start_children(start);
}

}  // namespace

bool is_safe_here() { return !is_filtered() || survives_our_calls(); }

bool start_helper(Helper& helper, char** environment, u64 blocked) {
  Start start;
  helper = {nullptr, -1};
  start.memory = start.lifeline = -1;
  if (!can_be_found()) {
    complain("/proc is not that of this process's PID namespace", 0);
    return false;
  }
  if (!find_tool(start)) {
    complain("the library's own file cannot be found", 0);
    return false;
  }
  choose_variables(environment, start);
  const u32 error = start_with(start, helper, blocked);
  if (start.memory >= 0) call(kSysClose, start.memory);
  if (start.lifeline >= 0) call(kSysClose, start.lifeline);
  if (error == 0) return true;
  let_go(helper, false);
  complain("cannot start uprobe-run", error);
  return false;
}

void let_go(Helper& helper, bool keep) {
  if (helper.lifeline >= 0) call(kSysClose, helper.lifeline);
  if (!keep && helper.page != nullptr) call(kSysMunmap, as_word(helper.page), shared::kBootstrapBytes);
}

namespace {

void write_line(const char* line, u32 used) {
  // Signals are blocked: a SIGPIPE from this write is removed before the program could get it.
  constexpr long kBrokenPipe = -32;
  const u64 pipe_signal = 1ull << (13 - 1), no_time[2] = {0, 0};
  if (call(kSysWrite, 2, as_word(line), used) == kBrokenPipe)
    call(kSysRtSigtimedwait, as_word(&pipe_signal), 0, as_word(no_time), 8);
}

}  // namespace

void complain(const char* what, u32 error) {
  char line[512];
  u32 used = 0;
  append(line, used, sizeof line, "uprobe: ");
  append(line, used, sizeof line, what);
  if (error != 0) {
    append(line, used, sizeof line, " (errno ");
    append_number(line, used, sizeof line, error);
    append(line, used, sizeof line, ")");
  }
  append(line, used, sizeof line, "; the program runs unprobed\n");
  write_line(line, used);
}

void complain_of_variable(const char* entry) {
  constexpr u32 kLongestName = 64;
  char name[kLongestName];
  u32 length = 0;
  for (; length + 1 < kLongestName && entry[length] > ' ' && entry[length] < 0x7f && entry[length] != '='; ++length)
    name[length] = entry[length];
  name[length] = 0;
  char line[512];
  u32 used = 0;
  append(line, used, sizeof line, "uprobe: unknown variable ");
  append(line, used, sizeof line, name);
  append(line, used, sizeof line,
         ", and neither UPROBE_PROBES nor UPROBE_PROBES_FILE is set; the program runs unprobed\n");
  write_line(line, used);
}

}  // namespace uprobe::agent
