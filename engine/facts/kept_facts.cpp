// SPDX-License-Identifier: MIT
#include "engine/facts/kept_facts.h"

#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <linux/openat2.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/regular_file.h"

namespace uprobe::facts {
namespace {

constexpr std::uint64_t kMagic = 0x31'73'74'63'61'66'70'75;  // "upfacts1"
constexpr std::string_view kNew = "new-";                    // how the name of an entry begins while it is written
constexpr const char* kSecretName = "secret";
constexpr std::time_t kDay = 86400;

struct Head {
  std::uint64_t magic = kMagic, bytes = 0;
  ContentKey contents;
};

struct Place {
  std::string folder;  // empty: nothing is kept
  std::vector<std::uint8_t> build;
  std::once_flag secret_once;
  std::optional<Secret> secret;
};
std::unique_ptr<Place>& place() {
  static std::unique_ptr<Place> the_place = std::make_unique<Place>();
  return the_place;
}

// ---- the build id of the object that this code is in

struct Search {
  std::uintptr_t code;
  std::vector<std::uint8_t> id;
};

bool has_code(const dl_phdr_info& object, std::uintptr_t code) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& segment = object.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && code - object.dlpi_addr - segment.p_vaddr < segment.p_memsz) return true;
  }
  return false;
}

// Of a segment of notes in this process's own memory.
void take_build_id(std::span<const std::uint8_t> notes, std::vector<std::uint8_t>& id) {
  constexpr std::size_t kAlign = 4;
  const auto padded = [](std::size_t size) { return (size + kAlign - 1) / kAlign * kAlign; };
  for (ElfW(Nhdr) note{}; notes.size() >= sizeof note;) {
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t name = padded(note.n_namesz), all = sizeof note + name + padded(note.n_descsz);
    if (all > notes.size()) return;
    const std::uint8_t* at = notes.data() + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
        std::memcmp(at, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0)
      id.assign(at + name, at + name + note.n_descsz);
    notes = notes.subspan(all);
  }
}

int look_at_object(dl_phdr_info* object, std::size_t, void* of) {
  Search& search = *static_cast<Search*>(of);
  if (!has_code(*object, search.code)) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const auto* at = reinterpret_cast<const std::uint8_t*>(object->dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_NOTE && segment.p_align <= 4) take_build_id({at, segment.p_memsz}, search.id);
  }
  return 1;
}

std::vector<std::uint8_t> own_build_id() {
  Search search{.code = reinterpret_cast<std::uintptr_t>(&own_build_id), .id = {}};
  ::dl_iterate_phdr(look_at_object, &search);
  return search.id;
}

// ---- the folder

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

bool is_own(const struct stat& status) { return status.st_uid == ::geteuid() && (status.st_mode & 077) == 0; }

// Without a link on the way: of root with another user's variables that user would choose where it leads.
Fd open_without_links(const std::string& path) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return Fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
}

bool is_of_this_user(const Fd& folder) {
  struct stat status {};
  return folder && ::fstat(folder.get(), &status) == 0 && status.st_uid == ::geteuid();
}

Fd open_folder(const std::string& path) {
  Fd folder = open_without_links(path);
  struct stat status {};
  const bool is_good = folder && ::fstat(folder.get(), &status) == 0 && is_own(status);
  return is_good ? std::move(folder) : Fd();
}

// In a folder of this user's only.
void make_in(const std::string& parent, const std::string& path) {
  const Fd folder = open_without_links(parent);
  if (is_of_this_user(folder)) ::mkdirat(folder.get(), path.substr(path.rfind('/') + 1).c_str(), 0700);
}

Fd make_folder(const std::string& path) {
  const auto parent_of = [](const std::string& of) { return of.substr(0, of.rfind('/')); };
  const std::string parent = parent_of(path);
  make_in(parent_of(parent), parent);
  make_in(parent, path);
  return open_folder(path);
}

std::string name_of(const ContentKey& key, std::string_view kind) { return key.text() + "-" + std::string(kind); }

bool is_entry(std::string_view name) {
  constexpr std::size_t kDigits = 32;
  return name.starts_with(kNew) ||
         (name.size() > kDigits && name[kDigits] == '-' && name.find_first_not_of("0123456789abcdef") == kDigits);
}

struct Entry {
  std::string name;
  std::uint64_t bytes;
  timespec used;
};

std::vector<Entry> entries_in(const Fd& folder) {
  std::vector<Entry> all;
  const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> names(again < 0 ? nullptr : ::fdopendir(again), ::closedir);
  while (const dirent* one = names ? ::readdir(names.get()) : nullptr) {
    struct stat status {};
    const bool is_one = is_entry(one->d_name) &&
                        ::fstatat(folder.get(), one->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                        S_ISREG(status.st_mode);
    if (is_one) all.push_back({one->d_name, static_cast<std::uint64_t>(status.st_size), status.st_mtim});
  }
  return all;
}

void make_room(const Fd& folder) {
  std::vector<Entry> all = entries_in(folder);
  std::uint64_t bytes = 0;
  for (const Entry& entry : all) bytes += entry.bytes;
  std::ranges::sort(all, {}, [](const Entry& e) { return std::pair(e.used.tv_sec, e.used.tv_nsec); });
  for (const Entry& entry : all) {
    if (bytes <= kMostKept) return;
    ::unlinkat(folder.get(), entry.name.c_str(), 0);
    bytes -= entry.bytes;
  }
}

// ---- an entry

bool read_whole(const Fd& file, void* to, std::size_t bytes, std::uint64_t offset = 0) {
  return read_at(file, to, bytes, offset) == static_cast<ssize_t>(bytes);
}

bool write_whole(const Fd& file, const void* from, std::size_t bytes) {
  return write_all(file.get(), from, bytes) == 0;
}

bool read_secret(const Fd& folder, Secret& secret) {
  const Fd file(::openat(folder.get(), kSecretName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  return file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && is_own(status) &&
         read_whole(file, &secret, sizeof secret);
}

// One that another tool is writing is not whole yet: then nothing is kept this time.
std::optional<Secret> secret_in(const std::string& path) {
  const Fd folder = make_folder(path);
  Secret secret;
  if (!folder || read_secret(folder, secret)) return folder ? std::optional(secret) : std::nullopt;
  if (::getrandom(&secret, sizeof secret, 0) != sizeof secret) return std::nullopt;
  const Fd file(::openat(folder.get(), kSecretName, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file && write_whole(file, &secret, sizeof secret)) return secret;
  if (file) ::unlinkat(folder.get(), kSecretName, 0);
  return std::nullopt;
}

// Null: nothing is kept.
const Secret* secret_here() {
  Place& here = *place();
  if (here.folder.empty()) return nullptr;
  std::call_once(here.secret_once, [&here] { here.secret = secret_in(here.folder); });
  return here.secret ? &*here.secret : nullptr;
}

std::optional<Bytes> read_entry(const Fd& file, const ContentKey& key, const Secret& secret) {
  struct stat status {};
  Head head;
  const bool is_good = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && is_own(status) &&
                       read_whole(file, &head, sizeof head) && head.magic == kMagic && head.bytes <= kMostEntry &&
                       static_cast<std::uint64_t>(status.st_size) == sizeof head + head.bytes;
  if (!is_good) return std::nullopt;
  Bytes facts{std::make_unique_for_overwrite<std::uint8_t[]>(head.bytes), head.bytes};
  if (!read_whole(file, facts.data.get(), facts.size, sizeof head) ||
      key_of(facts.span(), secret, key) != head.contents)
    return std::nullopt;
  if (::time(nullptr) - status.st_mtim.tv_sec > kDay) ::futimens(file.get(), nullptr);
  return facts;
}

}  // namespace

void keep_facts() {
  const std::string caches = variable("XDG_CACHE_HOME"), home = variable("HOME");
  const std::string parent = caches.starts_with('/') ? caches : home.starts_with('/') ? home + "/.cache" : "";
  keep_facts_in(parent.empty() ? "" : parent + "/uprobe-run");
}

void keep_facts_in(const std::string& folder) {
  place() = std::make_unique<Place>();
  place()->build = own_build_id();
  if (!place()->build.empty()) place()->folder = folder;
}

std::optional<ContentKey> key_of_file(std::span<const std::uint8_t> bytes, std::uint64_t variant) {
  const Secret* secret = secret_here();
  if (secret == nullptr) return std::nullopt;
  return key_of(bytes, *secret, key_of(place()->build, *secret, {{variant, 0}}));
}

std::optional<Bytes> find(const ContentKey& file, std::string_view kind) {
  const Secret* secret = secret_here();
  const Fd folder = secret != nullptr ? open_folder(place()->folder) : Fd();
  if (!folder) return std::nullopt;
  const Fd entry(::openat(folder.get(), name_of(file, kind).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return entry ? read_entry(entry, file, *secret) : std::nullopt;
}

void keep(const ContentKey& file, std::string_view kind, std::span<const std::uint8_t> facts) {
  const Secret* secret = secret_here();
  const Fd folder = secret != nullptr && facts.size() <= kMostEntry ? open_folder(place()->folder) : Fd();
  if (!folder) return;
  const Head head{.bytes = facts.size(), .contents = key_of(facts, *secret, file)};
  const std::string made = std::string(kNew) + std::to_string(::gettid()) + "-" + name_of(file, kind);
  const Fd entry(::openat(folder.get(), made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!entry) return;
  const bool is_written = write_whole(entry, &head, sizeof head) && write_whole(entry, facts.data(), facts.size()) &&
                          ::renameat(folder.get(), made.c_str(), folder.get(), name_of(file, kind).c_str()) == 0;
  if (!is_written) ::unlinkat(folder.get(), made.c_str(), 0);
  make_room(folder);
}

}  // namespace uprobe::facts
