// SPDX-License-Identifier: MIT
// Files by name: the program to run, the agent next to the tool, the functions of an object.
#include "engine/resolve/programs.h"

#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "engine/base/procfs.h"
#include "engine/base/start_line.h"
#include "engine/base/text.h"
#include "engine/elf/elf_file.h"
#include "engine/flow/boundary.h"
#include "engine/marker/listing.h"
#include "engine/plan/resolve.h"
#include "engine/resolve/load_order.h"
#include "engine/spec/bare.h"
#include "engine/spec/place.h"

namespace uprobe {
namespace {

bool is_regular(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string own_folder() {
  const std::string path = procfs::link("/proc/self/exe");
  return path.substr(0, path.rfind('/'));
}

// The event name for a definition of `name`, or nothing: operators and templates have no plain name.
std::string event_name(const std::string& name) {
  for (const char c : name)
    if (!(c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) return {};
  return name.empty() || name.size() > 63 || (name[0] >= '0' && name[0] <= '9') ? std::string() : name;
}

bool is_word(const std::string& name) {
  return std::none_of(name.begin(), name.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; });
}

// The object whose functions are listed.
struct Listed {
  std::string path;
  std::shared_ptr<const elf::ElfFile> file;
  plan::FlowCache flows = {};
  plan::FileCache files = {};

  // The offset of a function that can be probed.
  std::optional<std::uint64_t> offset_of(const elf::Symbol& symbol) {
    const auto offset = file->offset_of_address(symbol.address);
    if (!offset || !plan::site_at(file, *offset)) return {};
    return plan::check_start(file, symbol.address, files, flows) ? offset : std::nullopt;
  }
};

// How a name that tools print is written as a place: an empty list of parameters would be that of a prototype. Empty: not at all.
std::string place_of_name(const std::string& name) {
  constexpr std::string_view kNoParameters = "()";
  const std::string place = name.ends_with(kNoParameters) ? name.substr(0, name.size() - kNoParameters.size()) : name;
  return spec::starts_as_definition(place) || place.ends_with(kNoParameters) ? std::string() : place;
}

// For a glob that matches the name which tools print: the place by that name, if it leads back to this one function, else by its
// offset. Empty: the glob does not match, or the function cannot be probed.
std::string spoken_line(Listed& object, const elf::Symbol& symbol, const std::string& glob) {
  const std::string name = elf::demangle(symbol.name);
  if (name == symbol.name || !elf::matches_spoken(glob, name)) return {};
  const auto offset = object.offset_of(symbol);
  if (!offset) return {};
  const std::string place = place_of_name(name);
  const auto found = place.empty() ? std::vector<elf::Symbol>() : object.file->find_functions(place);
  const bool is_unique = found.size() == 1 && found[0].address == symbol.address;
  return object.path + ":" + (is_unique ? place : hex(*offset) + " # " + name);
}

// Empty: the function cannot be probed.
std::string plain_line(Listed& object, const elf::Symbol& symbol) {
  const auto offset = object.offset_of(symbol);
  if (!offset) return {};
  const auto found = object.file->find_functions(symbol.name);
  // A name that does not lead back to this one address is listed by its offset; so is one that is not a word, as in Go.
  const bool is_unique = found.size() == 1 && found[0].address == symbol.address && is_word(symbol.name);
  const std::string event = event_name(symbol.name);
  return (event.empty() ? "p " : "p:" + event + " ") + object.path + ":" + (is_unique ? symbol.name : hex(*offset));
}

}  // namespace

namespace {

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// "NAME=VALUE", as it may stand before a program in a shell.
bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && !event_name(word.substr(0, equals)).empty();
}

// Why a word cannot be executed, where that is known.
Error with_advice(const std::string& program, Error error) {
  if (!error.help.empty()) return error;
  const std::size_t blank = program.find(' ');
  if (is_folder(program))
    error.text = "is a directory";
  else if (error.code == Code::not_executable && is_regular(program))
    error.help = "chmod +x " + program + " makes it a program";
  else if (is_assignment(program))
    error.help = "variables stand before uprobe-run: " + program.substr(0, program.find('=')) + "=... uprobe-run ...";
  else if (blank != std::string::npos && find_program(program.substr(0, blank)))
    error.help = "a program and its arguments are words of their own: without quotes around them";
  return error;
}

}  // namespace

// As execvp: a name with a slash is a path; otherwise the first executable file in PATH, or EACCES if there was only one that
// may not be executed.
Result<std::string> find_program(const std::string& program) {
  if (program.empty()) return exec_error(program, ENOENT);
  const auto usable = [](const std::string& path) {
    if (::access(path.c_str(), X_OK) != 0) return errno;
    return is_regular(path) ? 0 : EACCES;
  };
  if (program.find('/') != std::string::npos) {
    const int error = usable(program);
    if (error != 0) return with_advice(program, exec_error(program, error));
    return program;
  }
  const char* variable = std::getenv("PATH");
  const std::string folders = variable != nullptr ? variable : "/bin:/usr/bin";
  int error = ENOENT;
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string folder = folders.substr(at, end - at);
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    const int failed = usable(path);
    if (failed == 0) return path;
    if (failed == EACCES) error = EACCES;
    at = end + 1;
  }
  Error missing = exec_error(program, error);
  if (const std::string here = "./" + program; usable(here) == 0) missing.help = "did you mean " + here + "?";
  return with_advice(program, std::move(missing));
}

Result<std::string> find_object_file(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  auto program = find_program(name);
  if (program) return program;
  if (std::string library = find_library(name); !library.empty()) return library;
  return program.error();
}

std::string find_agent() {
  const std::string here = own_folder();
  for (const std::string& path : {here + "/libuprobe.so", here + "/../" UPROBE_LIBDIR "/uprobe/libuprobe.so",
                                  here + "/../lib/uprobe/libuprobe.so"})
    if (is_regular(path)) return path;
  return {};
}

Result<std::vector<std::string>> list_functions(const std::string& object, const std::string& glob) {
  auto path = find_object_file(object);
  if (!path) return path.error();
  auto opened = elf::ElfFile::open(*path);
  if (!opened) return opened.error();
  Listed listed{.path = path.take(), .file = std::make_shared<const elf::ElfFile>(opened.take())};
  const std::string marker = std::string(spec::kMarker) + ":", mark = std::string(spec::kMark) + ":";
  if (glob.starts_with(marker)) return marker::list_markers(listed.path, *listed.file, glob.substr(marker.size()));
  if (glob.starts_with(mark)) return marker::list_marks(listed.path, *listed.file, glob.substr(mark.size()));
  std::vector<std::string> lines;
  std::set<std::string> seen;
  for (const elf::Symbol& symbol : listed.file->named_functions()) {
    const bool is_plain = glob.empty() || ::fnmatch(glob.c_str(), symbol.name.c_str(), 0) == 0;
    std::string line = is_plain ? plain_line(listed, symbol) : spoken_line(listed, symbol, glob);
    if (line.empty()) continue;
    // Versions of one function have the same name and address, and aliases of C++ may have the same event.
    const std::string event = is_plain ? line : std::to_string(symbol.address) + elf::plain_name(symbol.name);
    if (seen.insert(event).second) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace uprobe
