// SPDX-License-Identifier: MIT
#include "engine/elf/debug_files.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <set>

#include "engine/base/debuginfod.h"
#include "engine/base/process_paths.h"
#include "engine/base/procfs.h"
#include "engine/base/text.h"
#include "engine/elf/debug_image.h"

namespace uprobe::elf {
namespace {

constexpr std::uint64_t kMostNames = std::uint64_t{64} << 20;   // of a file's tables, which are read to identify it
constexpr std::uint64_t kMostSummed = std::uint64_t{64} << 20;  // of a file whose check sum is computed

// CRC-32, as zlib has it.
constexpr std::array<std::uint32_t, 256> make_sums() {
  constexpr std::uint32_t kPolynomial = 0xedb88320;
  std::array<std::uint32_t, 256> sums{};
  for (std::uint32_t i = 0; i < sums.size(); ++i) {
    sums[i] = i;
    for (int bit = 0; bit < 8; ++bit) sums[i] = (sums[i] >> 1) ^ ((sums[i] & 1) != 0 ? kPolynomial : 0);
  }
  return sums;
}

// Nothing: the file cannot be read. One that has grown is summed up to the size that it had.
std::optional<std::uint32_t> check_sum_of(const RegularFile& file) {
  static constexpr auto kSums = make_sums();
  std::vector<std::uint8_t> block(std::size_t{1} << 20);
  std::uint32_t sum = ~0U;
  const auto size = static_cast<std::uint64_t>(file.about.st_size);
  for (std::uint64_t at = 0; at < size;) {
    const ssize_t got = read_at(file.fd, block.data(), std::min<std::uint64_t>(block.size(), size - at), at);
    if (got < 0) return {};
    if (got == 0) break;
    for (ssize_t i = 0; i < got; ++i)
      sum = kSums[static_cast<std::uint8_t>(sum ^ block[static_cast<std::size_t>(i)])] ^ (sum >> 8);
    at += static_cast<std::uint64_t>(got);
  }
  return ~sum;
}

// .gnu_debuglink: a file name, and after it, aligned, the file's check sum.
struct DebugLink {
  std::string name;
  std::uint32_t check_sum = 0;
};

std::optional<DebugLink> debug_link_of(const ElfFile& file) {
  constexpr std::uint64_t kMostName = 255;
  const BytesView section(file.section(".gnu_debuglink"));
  const auto name = section.text(0, kMostName);
  if (!name || name->empty() || name->find('/') != std::string_view::npos || *name == "." || *name == "..") return {};
  const auto sum = section.read<std::uint32_t>((name->size() + 4) & ~std::uint64_t{3});
  if (!sum) return {};
  return DebugLink{std::string(*name), *sum};
}

// `link`: only the name leads there, and its check sum has to be right too.
struct Candidate {
  std::string path;
  const DebugLink* link = nullptr;
  bool is_cached = false;  // by debuginfod, which keeps an empty file where no server has it
};

std::vector<Candidate> candidates_for(const ElfFile& file, const DebugLink* link) {
  const Folders folders = folders_of(file.path());
  std::vector<Candidate> all;
  const auto add_installed = [&](const std::string& name, const DebugLink* by) {
    if (!folders.root.empty()) all.push_back({folders.root + kDebugFolder + name, by});
    all.push_back({kDebugFolder + name, by});
  };
  if (const std::string name = build_id_name(file.build_id()); !name.empty()) add_installed("/" + name, nullptr);
  if (std::string cached = debuginfod::cached_file(file.build_id()); !cached.empty())
    all.push_back({.path = std::move(cached), .is_cached = true});
  if (link == nullptr) return all;
  for (const std::string& folder : folders.names)
    for (const char* inner : {"/", "/.debug/"}) all.push_back({folders.root + folder + inner + link->name, link});
  for (const std::string& folder : folders.names) add_installed(folder + "/" + link->name, link);
  return all;
}

bool is_same(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Why an open file is not the wanted one. A link may name any file: only so much of one is summed, a larger one is known by its
// build id.
Status check(const ElfFile& file, const Candidate& candidate, const RegularFile& opened) {
  const auto wrong = [](std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; };
  const auto size = static_cast<std::uint64_t>(opened.about.st_size);
  if (size > kMostDebugFile) return wrong("is larger than " + std::to_string(kMostDebugFile >> 20) + " MiB");
  const auto image = DebugImage::read(opened, kMostNames, candidate.path);
  if (!image) return image.error();
  const auto wanted = file.build_id(), own = image->build_id();
  const bool is_by_id = candidate.link == nullptr;
  if ((is_by_id || (!wanted.empty() && !own.empty())) && !is_same(wanted, own))
    return wrong(own.empty() ? "has no build id" : "has the build id of another file");
  if (!is_by_id && size > kMostSummed) {
    if (!wanted.empty() && !own.empty()) return ok();
    return wrong("has no build id, and is larger than the " + std::to_string(kMostSummed >> 20) +
                 " MiB of which a check sum is computed");
  }
  if (!is_by_id && check_sum_of(opened) != candidate.link->check_sum)
    return wrong("has another check sum than " + file.path() + " says");
  return ok();
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

std::string build_id_name(std::span<const std::uint8_t> build_id) {
  constexpr std::size_t kLeast = 2, kMost = 64;
  if (build_id.size() < kLeast || build_id.size() > kMost) return {};
  return ".build-id/" + hex_digits(build_id.first(1)) + "/" + hex_digits(build_id.subspan(1)) + ".debug";
}

// Symbolic links below /proc/PID/root are not followed, as they would lead out of it.
Folders folders_of(const std::string& path) {
  Folders found;
  std::string name = path;
  const auto pid = process_of(path);
  if (pid && path.ends_with("/exe")) {
    const ProcessProgram program = program_of(*pid);
    name = program.is_replaced || process_of(program.path) ? program.name : program.path;
  }
  if (const std::string root = pid ? procfs::path(*pid, "root") : ""; pid && name.starts_with(root + "/")) {
    found.root = root;
    found.names.push_back(folder_of(name.substr(root.size())));
    return found;
  }
  found.names.push_back(folder_of(name));
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(name.c_str(), nullptr), &std::free);
  if (real && folder_of(real.get()) != found.names[0]) found.names.push_back(folder_of(real.get()));
  return found;
}

DebugFileSearch find_debug_file(const ElfFile& file) {
  DebugFileSearch search;
  std::set<Identity> seen{file.identity()};
  const auto link = debug_link_of(file);
  for (const Candidate& candidate : candidates_for(file, link ? &*link : nullptr)) {
    auto opened = open_regular(candidate.path);
    if (!opened && opened.error().code == Code::not_found) continue;
    if (opened && candidate.is_cached && opened->about.st_size == 0) continue;
    if (opened && !seen.insert({opened->about.st_dev, opened->about.st_ino}).second) continue;
    const Status fits = opened ? check(file, candidate, *opened) : opened.error();
    if (fits) {
      search.found = DebugFile{candidate.path, opened.take()};
      return search;
    }
    search.wrong.push_back(candidate.path + " " + fits.error().text);
  }
  return search;
}

}  // namespace uprobe::elf
