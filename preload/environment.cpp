// SPDX-License-Identifier: MIT
// See environment.h. Runs once, on the program's first thread, before any of its code. Makes system calls only if the variables
// ask for probes, or under musl, to find the variables.
#include "preload/environment.h"

#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

constexpr u64 kHere = static_cast<u64>(-100), kCloseOnExec = 02000000;  // AT_FDCWD, O_CLOEXEC

// A file of /proc, character by character.
class Characters {
 public:
  explicit Characters(const char* path) : fd_(system_call(kSysOpenat, kHere, as_word(path), kCloseOnExec)) {}
  Characters(const Characters&) = delete;
  Characters& operator=(const Characters&) = delete;
  ~Characters() {
    if (fd_ >= 0) system_call(kSysClose, static_cast<u64>(fd_));
  }

  // -1: end of the file.
  int next() {
    if (at_ == end_) {
      end_ = fd_ < 0 ? 0 : system_call(kSysRead, static_cast<u64>(fd_), as_word(buffer_), sizeof buffer_);
      at_ = 0;
    }
    if (end_ > 0) return static_cast<u8>(buffer_[at_++]);
    end_ = 0;
    return -1;
  }

 private:
  long fd_;
  long at_ = 0, end_ = 0;
  char buffer_[1024];
};

// Field 28 of /proc/self/stat: where the kernel put argc. Fields are counted after the name, which may hold any character but
// ends with the last ')' of the line.
u64 start_of_stack() {
  Characters text("/proc/self/stat");
  u64 value = 0;
  u32 field = 0;
  for (int c = text.next(); c != -1; c = text.next()) {
    if (c == ')') {
      field = 2;
      value = 0;
    } else if (c == ' ') {
      if (field == 28) return value;
      field += field != 0 ? 1 : 0;
      value = 0;
    } else {
      value = value * 10 + static_cast<u64>(c - '0');
    }
  }
  return 0;
}

// A hexadecimal number and the character after it.
u64 hexadecimal(Characters& text, int& delimiter) {
  u64 value = 0;
  for (delimiter = text.next();; delimiter = text.next()) {
    const bool digit = delimiter >= '0' && delimiter <= '9', letter = delimiter >= 'a' && delimiter <= 'f';
    if (!digit && !letter) return value;
    value = value << 4 | static_cast<u64>(digit ? delimiter - '0' : delimiter - 'a' + 10);
  }
}

// The rest of a line of maps: permissions, offset, device, inode, then the path from its first '/'. False: no path, or
// too long.
bool path_in_line(Characters& text, char* path, u32 bytes) {
  u32 used = 0;
  for (int c = text.next(); c != '\n' && c != -1; c = text.next()) {
    if (used == 0 && c != '/') continue;
    if (used + 1 == bytes) return false;
    path[used++] = static_cast<char>(c);
  }
  path[used] = 0;
  return used != 0;
}

// The decimal number after `name`, which begins with the newline of the line before; -1: there is none.
i64 number_in_status(const char* name) {
  Characters text("/proc/self/status");
  u32 matched = 0;
  i64 value = 0;
  int c = text.next();
  for (; c != -1 && name[matched] != 0; c = text.next())
    matched = c == name[matched] ? matched + 1 : c == name[0] ? 1 : 0;
  if (name[matched] != 0 || c < '0' || c > '9') return -1;
  for (; c >= '0' && c <= '9'; c = text.next()) value = value * 10 + (c - '0');
  return value;
}

// /proc/ID/comm
void write_comm_path(char* path, u64 id) {
  char digits[20];
  u32 count = 0;
  do digits[count++] = static_cast<char>('0' + id % 10);
  while ((id /= 10) != 0);
  for (const char* part = "/proc/"; *part != 0;) *path++ = *part++;
  while (count != 0) *path++ = digits[--count];
  for (const char* part = "/comm"; *part != 0;) *path++ = *part++;
  *path = 0;
}

}  // namespace

char** find_environment(i64 argc, char** argv, char** envp) {
  const u64 here = as_word(__builtin_frame_address(0)), arguments = as_word(argv);
  constexpr i64 kMostArguments = 1 << 24;
  if (arguments > here && arguments % 8 == 0 && argc >= 0 && argc < kMostArguments && envp == argv + argc + 1)
    return envp;
  const u64 start = start_of_stack();
  if (start <= here || start % 8 != 0) return nullptr;
  const u64 count = *reinterpret_cast<const u64*>(start);
  return reinterpret_cast<char**>(start) + 1 + count + 1;
}

bool starts_with(const char* text, const char* start) {
  for (; *start != 0; ++text, ++start)
    if (*text != *start) return false;
  return true;
}

u32 length_of(const char* text) {
  u32 length = 0;
  while (text[length] != 0) ++length;
  return length;
}

const char* variable(char** environment, const char* name) {
  for (char** entry = environment; *entry != nullptr; ++entry)
    if (starts_with(*entry, name)) return *entry + length_of(name);
  return nullptr;
}

namespace {

// One text, since a table of pointers would need relocations. As kVariables in cli/helper.cpp.
constexpr char kKnownVariables[] =
    "UPROBE_PROBES=\0UPROBE_PROBES_FILE=\0UPROBE_OUTPUT=\0UPROBE_BUFFER_SIZE=\0UPROBE_STRING_LIMIT=\0UPROBE_VERBOSE="
    "\0UPROBE_TIER=\0UPROBE_RECORD=\0"
    "UPROBE_RETURN=\0UPROBE_RAW_STRINGS=\0UPROBE_SKIP_REFUSED=\0UPROBE_DISABLE=\0";

bool is_known(const char* entry) {
  for (const char* name = kKnownVariables; *name != 0; name += length_of(name) + 1)
    if (starts_with(entry, name)) return true;
  return false;
}

}  // namespace

const char* unknown_variable(char** environment) {
  for (char** entry = environment; *entry != nullptr; ++entry)
    if (starts_with(*entry, "UPROBE_") && !is_known(*entry)) return *entry;
  return nullptr;
}

// The auxiliary vector follows the environment.
bool is_secure(char** environment) {
  constexpr u64 kAtNull = 0, kAtSecure = 23;
  while (*environment != nullptr) ++environment;
  for (const u64* entry = reinterpret_cast<const u64*>(environment + 1); entry[0] != kAtNull; entry += 2)
    if (entry[0] == kAtSecure) return entry[1] != 0;
  return true;
}

bool is_filtered() { return number_in_status("\nSeccomp:\t") != 0; }

bool is_debugged() {
  const i64 tracer = number_in_status("\nTracerPid:\t");
  if (tracer <= 0) return false;
  const char name[] = "strace\n";
  char path[32];
  write_comm_path(path, static_cast<u64>(tracer));
  Characters text(path);
  for (u32 i = 0; i < sizeof name - 1; ++i)
    if (text.next() != name[i]) return true;
  return false;
}

bool own_path(char* path, u32 bytes) {
  Characters text("/proc/self/maps");
  const u64 here = as_word(uprobe_trap_entry);
  for (int delimiter = 0; delimiter != -1;) {
    const u64 begin = hexadecimal(text, delimiter);
    const u64 end = hexadecimal(text, delimiter);
    if (here >= begin && here < end) return path_in_line(text, path, bytes);
    while (delimiter != '\n' && delimiter != -1) delimiter = text.next();
  }
  return false;
}

}  // namespace uprobe::agent
