// SPDX-License-Identifier: MIT
#include "bench/workshop.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "bench/child.h"

namespace uprobe::bench {
namespace {

std::string base_folder() {
  std::error_code failed;
  const auto base = std::filesystem::temp_directory_path(failed);
  return failed ? "/tmp" : base.string();
}

bool g_can_choose = false;  // the tool has --tier

std::string folder_of(pid_t owner) { return base_folder() + "/uprobe-bench-" + std::to_string(owner); }

}  // namespace

Result<Workshop> Workshop::open(pid_t owner) {
  const std::string folder = folder_of(owner);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return system_error("mkdir " + folder, errno);
  return Workshop(folder);
}

void Workshop::remove(pid_t owner) {
  std::error_code ignored;
  std::filesystem::remove_all(folder_of(owner), ignored);
}

void Workshop::remove_leftovers() {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(base_folder(), failed)) {
    int owner = 0;
    if (std::sscanf(entry.path().filename().c_str(), "uprobe-bench-%d", &owner) != 1) continue;
    if (::kill(owner, 0) != 0 && errno == ESRCH) remove(owner);
  }
}

Result<std::string> Workshop::copy_target(const std::string& name) const {
  std::error_code failed;
  std::filesystem::copy_file(UPROBE_BENCH_TARGET, path(name), failed);
  if (failed) return system_error("copy to " + path(name), failed.value());
  return path(name);
}

Status Workshop::write(const std::string& name, const std::string& text) const {
  std::ofstream file(path(name));
  file << text;
  file.close();
  return file ? ok() : Status(Error{.code = Code::system, .text = "cannot write " + path(name)});
}

const char* name_of(Tier tier) { return tier == Tier::int3 ? "int3" : "jump"; }

Result<std::vector<Tier>> tool_tiers() {
  auto tool = Child::start({UPROBE_BENCH_TOOL, "--help"}, "/dev/null");
  if (!tool) return tool.error();
  for (auto line = tool->receive(); line; line = tool->receive())
    g_can_choose = g_can_choose || line->find("--tier") != std::string::npos;
  if (!g_can_choose) return std::vector{Tier::int3};
  return std::vector{Tier::int3, Tier::jump};
}

std::vector<std::string> tool_command(Tier tier, const std::string& probes_file, const std::string& trace,
                                      const std::string& target, const std::vector<std::string>& more) {
  std::vector<std::string> words = {UPROBE_BENCH_TOOL, "--color=never", "-i", probes_file};
  if (!trace.empty()) words.insert(words.end(), {"-o", trace});
  if (g_can_choose) words.push_back(std::string("--tier=") + name_of(tier));
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"--", target});
  return words;
}

}  // namespace uprobe::bench
