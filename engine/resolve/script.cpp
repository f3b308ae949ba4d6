// SPDX-License-Identifier: MIT
// The kernel reads 256 bytes of a file (BINPRM_BUF_SIZE) and follows four interpreters. The files of versions are those that pyenv,
// rbenv, nodenv and asdf document.
#include "engine/resolve/script.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "engine/base/regular_file.h"
#include "engine/resolve/programs.h"

namespace uprobe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFirstBytes = 256, kMostShim = 4096, kMostVersions = 65536;
constexpr int kMostScripts = 8, kMostFolders = 64;
constexpr std::string_view kBlanks = " \t\r\n";

std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

// The first bytes of a file that begins with "#!", without these two; empty: it is no script.
std::string beginning(const std::string& path, std::size_t most) {
  const auto file = open_regular(path);
  if (!file) return {};
  std::string bytes(most, '\0');
  const ssize_t read = read_at(file->fd, bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  return bytes.starts_with("#!") ? bytes.substr(2) : std::string();
}

// What stands after "#!"; empty: no script.
std::string first_line(const std::string& path) {
  const std::string text = beginning(path, kFirstBytes);
  return text.substr(0, text.find_first_of(std::string_view("\n\0", 2)));
}

// Takes an option of env off `word`, and its value, if that is a word of its own, off `arguments`. What is left of the word stands
// after "-S": it begins the command that env splits.
void pass_option(std::string_view& word, std::string_view& arguments) {
  constexpr std::string_view kSplit = "--split-string=", kWithValue = "uCa";
  if (word.starts_with("--")) {
    if (word == "--unset" || word == "--chdir") take_word(arguments);
    return word.remove_prefix(word.starts_with(kSplit) ? kSplit.size() : word.size());
  }
  for (word.remove_prefix(1); !word.empty();) {
    const char letter = word[0];
    word.remove_prefix(1);
    if (letter == 'S') return;
    if (kWithValue.find(letter) == std::string_view::npos) continue;
    if (word.empty()) take_word(arguments);
    word = {};
  }
}

// The options of env and its variables stand before the program.
std::string program_of_env(std::string_view arguments) {
  for (std::string_view word = take_word(arguments); !word.empty(); word = take_word(arguments)) {
    while (word.starts_with('-')) pass_option(word, arguments);
    if (word.empty() || word.find('=') != std::string_view::npos) continue;
    const auto program = find_program(std::string(word));
    return program ? *program : std::string();
  }
  return {};
}

// A version manager, and where the version that is meant is said: a variable, and files of folders.
struct Manager {
  const char* name;
  const char* version;
  const char* file;
};

constexpr std::array kManagers = {
    Manager{"pyenv", "PYENV_VERSION", ".python-version"},
    Manager{"rbenv", "RBENV_VERSION", ".ruby-version"},
    Manager{"nodenv", "NODENV_VERSION", ".node-version"},
    Manager{"asdf", nullptr, ".tool-versions"},
};

std::string variable(const char* name) {
  const char* value = name == nullptr ? nullptr : std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// A name that leads to no other folder.
bool is_plain(std::string_view name) {
  const auto is_fine = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("._+-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !name.empty() && name != "." && name != ".." && std::all_of(name.begin(), name.end(), is_fine);
}

std::string text_of(const std::string& path) {
  auto text = read_regular(path, kMostVersions);
  return text ? text.take() : std::string();
}

// The text of the nearest such file, from the current folder upwards; empty: there is none.
std::string nearest_file(const char* name) {
  std::error_code failed;
  fs::path folder = fs::current_path(failed);
  for (int i = 0; !failed && i < kMostFolders; ++i, folder = folder.parent_path()) {
    if (std::string text = text_of(folder / name); !text.empty()) return text;
    if (folder == folder.parent_path()) break;
  }
  return {};
}

class Shim {
 public:
  Shim(const Manager& manager, const std::string& path)
      : manager_(manager), path_(path), text_(beginning(path, kMostShim)) {}

  // A file of a folder of shims, which executes "MANAGER exec".
  bool is_one() const {
    if (fs::path(path_).parent_path().filename() != "shims") return false;
    const std::string name = manager_.name;
    return text_.find(name + "\" exec ") != std::string::npos || text_.find(name + " exec ") != std::string::npos;
  }

  // The program that it executes; empty: that is not known.
  std::string program() const {
    if (!is_plain(name())) return {};
    return is_asdf() ? of_asdf() : of_version(version());
  }

 private:
  bool is_asdf() const { return std::string_view(manager_.name) == "asdf"; }
  std::string name() const { return fs::path(path_).filename(); }
  fs::path root() const { return fs::path(path_).parent_path().parent_path(); }

  // The first that says one. Of several versions the first counts.
  std::string version() const {
    for (const std::string& text :
         {variable(manager_.version), nearest_file(manager_.file), text_of(root() / "version")}) {
      std::string_view rest = text;
      const std::string_view word = take_word(rest);
      const std::string first(word.substr(0, word.find(':')));
      if (!first.empty() && first[0] != '#') return first;
    }
    return "system";
  }

  std::string of_version(const std::string& version) const {
    if (version == "system") return of_system();
    return is_plain(version) ? usable(root() / "versions" / version / "bin" / name()) : std::string();
  }

  // "# asdf-plugin: nodejs 18.16.0" names a plugin and a version that it is installed in; .tool-versions has lines of "PLUGIN
  // VERSION".
  std::string of_asdf() const {
    constexpr std::string_view kPlugin = "# asdf-plugin: ";
    for (std::size_t at = text_.find(kPlugin); at != std::string::npos; at = text_.find(kPlugin, at + 1)) {
      std::string_view rest = std::string_view(text_).substr(at + kPlugin.size());
      const std::string plugin(take_word(rest)), version = version_of(plugin);
      if (version == "system") return of_system();
      if (!is_plain(plugin) || !is_plain(version)) continue;
      if (std::string found = usable(root() / "installs" / plugin / version / "bin" / name()); !found.empty())
        return found;
    }
    return {};
  }

  std::string version_of(const std::string& plugin) const {
    std::string name = "ASDF_" + plugin + "_VERSION";
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
    if (std::string own = variable(name.c_str()); !own.empty()) return own;
    const std::string home = variable("HOME") + "/" + manager_.file;
    for (const std::string& text : {nearest_file(manager_.file), text_of(home)})
      if (std::string found = in_lines(text, plugin); !found.empty()) return found;
    return {};
  }

  static std::string in_lines(std::string_view text, const std::string& plugin) {
    while (!text.empty()) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (take_word(line) == plugin) return std::string(take_word(line));
    }
    return {};
  }

  // The first one in PATH that is not in the folder of shims.
  std::string of_system() const {
    const std::string folders = variable("PATH");
    for (std::size_t at = 0; at < folders.size();) {
      const std::size_t end = std::min(folders.find(':', at), folders.size());
      const fs::path folder = folders.substr(at, end - at);
      std::error_code failed;
      const bool is_shims = fs::equivalent(folder, fs::path(path_).parent_path(), failed);
      if (std::string found = folder.is_absolute() && !is_shims ? usable(folder / name()) : ""; !found.empty())
        return found;
      at = end + 1;
    }
    return {};
  }

  static std::string usable(const fs::path& path) {
    const auto program = find_program(path);
    return program ? *program : std::string();
  }

  const Manager& manager_;
  const std::string& path_;
  std::string text_;
};

// Takes a shim's program, if the file is a shim. False: it is none, or its program is not known.
bool follow_shim(const std::string& file, ScriptProgram& found) {
  for (const Manager& manager : kManagers) {
    const Shim shim(manager, file);
    if (!shim.is_one()) continue;
    found.shim = file, found.manager = manager.name;
    const std::string program = shim.program();
    found.is_known = !program.empty();
    if (found.is_known) found.path = program;
    return found.is_known;
  }
  return false;
}

}  // namespace

std::optional<ScriptProgram> program_of_script(const std::string& path) {
  ScriptProgram found{.path = path, .shim = {}, .manager = {}};
  for (int scripts = 0; scripts < kMostScripts; ++scripts) {
    if (found.is_known && follow_shim(found.path, found)) continue;
    const std::string line = first_line(found.path);
    std::string_view rest = line;
    std::string next(take_word(rest));
    if (next.ends_with("/env")) next = program_of_env(rest);
    if (next.empty()) break;
    found.path = next;
  }
  return found.path == path ? std::nullopt : std::optional(found);
}

}  // namespace uprobe
