#include "bench/workshop.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace uprobe::bench {
namespace {

std::string folder_of(pid_t owner) {
  std::error_code failed;
  const auto base = std::filesystem::temp_directory_path(failed);
  return (failed ? "/tmp" : base.string()) + "/uprobe-bench-" + std::to_string(owner);
}

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

std::vector<std::string> tool_command(const std::string& probes_file, const std::string& trace, const std::string& target) {
  return {UPROBE_BENCH_TOOL, "--color=never", "-i", probes_file, "-o", trace, "--", target};
}

}  // namespace uprobe::bench
