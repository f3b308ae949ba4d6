// SPDX-License-Identifier: MIT
#include "engine/export/page_file.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/export/ring_page.h"

namespace uprobe::format {

namespace {

constexpr std::uint64_t kPage = RingPage::kBytes;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage; }

}  // namespace

void PageFile::add(std::uint32_t cpu, std::string_view page) {
  files_->write_at(cpu_of_.size() * kPage, page);
  cpu_of_.push_back(static_cast<std::uint16_t>(cpu));
  cpus_ = std::max(cpus_, cpu + 1);
}

std::vector<PageFile::Part> PageFile::parts(std::uint64_t head_bytes) const {
  std::vector<Part> parts(cpus_);
  for (const std::uint16_t cpu : cpu_of_) parts[cpu].bytes += kPage;
  std::uint64_t at = whole_pages(head_bytes) * kPage;
  for (Part& part : parts) part.begin = std::exchange(at, at + part.bytes);
  return parts;
}

// By page: its final number.
std::vector<std::uint64_t> PageFile::places(std::uint64_t head_bytes) const {
  std::vector<Part> next = parts(head_bytes);
  std::vector<std::uint64_t> places;
  places.reserve(cpu_of_.size());
  for (const std::uint16_t cpu : cpu_of_)
    places.push_back(std::exchange(next[cpu].begin, next[cpu].begin + kPage) / kPage);
  return places;
}

// Each page that is moved takes up the page that lies in its place, until a place is free.
void PageFile::sort(std::uint64_t head_bytes) {
  const std::vector<std::uint64_t> place = places(head_bytes);
  std::vector<bool> is_moved(place.size());
  std::string page(kPage, '\0'), other(kPage, '\0');
  files_->resize((whole_pages(head_bytes) + place.size()) * kPage);
  for (std::size_t first = 0; first < place.size() && files_->error() == 0; ++first) {
    if (is_moved[first]) continue;
    files_->read_at(first * kPage, page.data(), kPage);
    for (std::uint64_t at = first; !is_moved[at];) {
      is_moved[at] = true;
      const std::uint64_t to = place[at];
      const bool is_taken = to < place.size() && !is_moved[to];
      if (is_taken) files_->read_at(to * kPage, other.data(), kPage);
      files_->write_at(to * kPage, page);
      if (!is_taken) break;
      std::swap(page, other);
      at = to;
    }
  }
}

}  // namespace uprobe::format
