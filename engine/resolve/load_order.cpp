// SPDX-License-Identifier: MIT
// The loader's rules: ld.so(8), and musl's dynlink.c.
#include "engine/resolve/load_order.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "arch/abi/elf.h"
#include "engine/base/process_paths.h"
#include "engine/base/regular_file.h"
#include "engine/resolve/library_cache.h"
#include "engine/resolve/mapped_objects.h"

namespace uprobe {
namespace {

constexpr std::string_view kMuslLoader = "ld-musl-";

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// The folders of a list, with $ORIGIN as the folder of `object`. Folders with other variables are left out.
std::vector<std::string> folders_of(const std::string& list, const std::string& object) {
  std::vector<std::string> folders;
  const std::size_t slash = object.rfind('/');
  const std::string origin = slash == std::string::npos ? "." : object.substr(0, slash);
  for (std::string folder : split(list, ":;")) {
    for (const std::string_view variable : {"${ORIGIN}", "$ORIGIN"})
      for (std::size_t at; (at = folder.find(variable)) != std::string::npos && origin.find('$') == std::string::npos;)
        folder.replace(at, variable.size(), origin);
    if (folder.find('$') != std::string::npos) continue;
    folders.push_back(folder.empty() ? "./" : folder + "/");
  }
  return folders;
}

const std::vector<CachedLibrary>& cached_libraries() {
  static const std::vector<CachedLibrary> kCached = [] {
    const auto bytes = read_regular(kLibraryCache, kMostCacheBytes);
    return bytes ? parse_library_cache(*bytes) : std::vector<CachedLibrary>();
  }();
  return kCached;
}

class Loader {
 public:
  explicit Loader(plan::FileCache& files) : files_(files) {}

  std::vector<LoadedObject> objects_of(const std::string& program);

 private:
  struct Node {
    LoadedObject object;
    elf::LinkNames names;
    std::size_t needed_by = 0;
  };
  bool add(const std::string& path, std::size_t needed_by);
  bool add_from(const std::vector<std::string>& folders, const std::string& name, std::size_t needed_by);
  bool add_cached(const std::string& name, std::size_t needed_by);
  bool is_known(const std::string& name) const;
  void find(const std::string& name, std::size_t needed_by);
  void add_path(const std::string& path, std::size_t needed_by);
  void search_as_glibc(const std::string& name, std::size_t needed_by);
  void search_as_musl(const std::string& name, std::size_t needed_by);
  std::vector<std::string> inherited_folders(std::size_t of) const;
  std::vector<std::string> run_path(std::size_t of) const;
  std::vector<std::string> library_path() const;
  void load_all();

  plan::FileCache& files_;
  std::vector<Node> nodes_;
  std::set<elf::Identity> known_;
  bool is_musl_ = false;
  std::string loader_;
};

// True also where the object is there already.
bool Loader::add(const std::string& path, std::size_t needed_by) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  auto file = files_.open(path);
  if (!file) return false;
  if (!known_.insert((*file)->identity()).second) return true;
  elf::LinkNames names = (*file)->link_names();
  nodes_.push_back({{path, names.soname}, std::move(names), needed_by});
  return true;
}

bool Loader::add_from(const std::vector<std::string>& folders, const std::string& name, std::size_t needed_by) {
  static const std::vector<std::string> kPreferred = arch::preferred_library_folders();
  for (const std::string& folder : folders) {
    for (const std::string& better : kPreferred)
      if (!is_musl_ && add(folder + better + name, needed_by)) return true;
    if (add(folder + name, needed_by)) return true;
  }
  return false;
}

bool Loader::add_cached(const std::string& name, std::size_t needed_by) {
  std::vector<std::string> wanted = arch::preferred_library_folders();
  wanted.emplace_back();
  for (const std::string& folder : wanted)
    for (const CachedLibrary& library : cached_libraries()) {
      if (library.name != name || library.is_plain != folder.empty()) continue;
      if (!folder.empty() && library.path.find("/" + folder) == std::string::npos) continue;
      if (add(library.path, needed_by)) return true;
    }
  return false;
}

// DT_RPATH of an object, of those that need it, and of the program; DT_RUNPATH of one switches its own off.
std::vector<std::string> Loader::inherited_folders(std::size_t of) const {
  std::vector<std::string> folders;
  if (!nodes_[of].names.runpath.empty()) return folders;
  for (std::size_t at = of, steps = 0; steps < kMostObjects; at = nodes_[at].needed_by, ++steps) {
    const Node& node = nodes_[at];
    if (node.names.runpath.empty())
      for (std::string& folder : folders_of(node.names.rpath, node.object.path)) folders.push_back(std::move(folder));
    if (at == 0) break;
  }
  return folders;
}

std::vector<std::string> Loader::run_path(std::size_t of) const {
  return folders_of(nodes_[of].names.runpath, nodes_[of].object.path);
}

std::vector<std::string> Loader::library_path() const {
  return folders_of(environment("LD_LIBRARY_PATH"), nodes_[0].object.path);
}

bool Loader::is_known(const std::string& name) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return node.object.soname == name || file_name(node.object.path) == name;
  });
}

// A name with a slash is a path.
void Loader::add_path(const std::string& path, std::size_t needed_by) {
  const auto paths = folders_of(path, nodes_[needed_by].object.path);
  if (!paths.empty()) add(paths[0].substr(0, paths[0].size() - 1), needed_by);
}

// ld.so(8): the first folder that has the library is taken.
void Loader::search_as_glibc(const std::string& name, std::size_t needed_by) {
  static_cast<void>(add_from(inherited_folders(needed_by), name, needed_by) ||
                    add_from(library_path(), name, needed_by) || add_from(run_path(needed_by), name, needed_by) ||
                    add_cached(name, needed_by) ||
                    add_from({arch::kLibraryFolders.begin(), arch::kLibraryFolders.end()}, name, needed_by));
}

// musl's loader is its C library too, and it has no cache.
void Loader::search_as_musl(const std::string& name, std::size_t needed_by) {
  if (name == "libc.so" || name.starts_with("libc.musl-")) return void(add(loader_, needed_by));
  static_cast<void>(add_from(library_path(), name, needed_by) ||
                    add_from(inherited_folders(needed_by), name, needed_by) ||
                    add_from(run_path(needed_by), name, needed_by) ||
                    add_from({"/lib/", "/usr/local/lib/", "/usr/lib/"}, name, needed_by));
}

void Loader::find(const std::string& name, std::size_t needed_by) {
  if (nodes_.size() >= kMostObjects || is_known(name)) return;
  if (name.find('/') != std::string::npos) return add_path(name, needed_by);
  is_musl_ ? search_as_musl(name, needed_by) : search_as_glibc(name, needed_by);
}

// What the program, which is the first node, brings with it. Without a loader nothing is loaded: a static program, also one that says
// what it was linked with.
void Loader::load_all() {
  const bool is_library = !nodes_[0].names.soname.empty();
  if (loader_.empty() && !is_library) return;
  if (!is_library)
    for (const std::string& name : split(environment("LD_PRELOAD"), ": ")) find(name, 0);
  for (std::size_t i = 0; i < nodes_.size() && nodes_.size() < kMostObjects; ++i)
    for (const std::string& name : std::vector<std::string>(nodes_[i].names.needed)) find(name, i);
  if (!loader_.empty()) add(loader_, 0);
}

std::vector<LoadedObject> Loader::objects_of(const std::string& program) {
  if (!add(program, 0)) return {};
  if (const auto file = files_.open(program)) loader_ = (*file)->interpreter();
  is_musl_ = file_name(loader_).starts_with(kMuslLoader);
  load_all();
  std::vector<LoadedObject> objects;
  for (Node& node : nodes_) objects.push_back(std::move(node.object));
  return objects;
}

std::string_view up_to(std::string_view name, std::string_view end) { return name.substr(0, name.find(end)); }

}  // namespace

std::vector<LoadedObject> load_order(const std::string& program, plan::FileCache& files) {
  if (const auto pid = process_of(program)) return mapped_objects(*pid, program, files);
  return Loader(files).objects_of(program);
}

bool is_called(const LoadedObject& object, std::string_view name) {
  if (name.empty()) return false;
  constexpr std::string_view kEnd = ".so";
  if (file_name(object.path).starts_with(kMuslLoader) && (name == "libc" || name == "libc.so")) return true;
  if (name.ends_with(kEnd)) name.remove_suffix(kEnd.size());
  for (const std::string_view own : {file_name(object.path), std::string_view(object.soname)})
    for (const std::string& wanted :
         {std::string(name), "lib" + std::string(name)})  // "c:malloc", as -l takes libraries
      if (own == wanted || up_to(own, ".so") == wanted || up_to(up_to(own, ".so"), "-") == wanted) return true;
  return false;
}

std::string find_library(std::string_view name) {
  for (const CachedLibrary& library : cached_libraries())
    if (library.is_plain && is_called({library.path, library.name}, name)) return library.path;
  for (const char* folder : arch::kLibraryFolders) {
    struct stat status {};
    std::string path = folder + std::string(name);
    if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) return path;
  }
  return {};
}

}  // namespace uprobe
