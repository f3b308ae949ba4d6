// SPDX-License-Identifier: MIT
// @OBJECT:SYMBOL: finds the file and the address in it.
#include <unistd.h>

#include "arch/abi/elf.h"
#include "engine/base/text.h"
#include "engine/resolve/locations.h"
#include "engine/resolve/programs.h"

namespace uprobe {
namespace {

// A name without a slash is a program, found in PATH as the shell does, or a library in the dynamic loader's own folders
// (glibc's defaults).
Result<std::string> find_file(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  for (const char* folder : arch::kLibraryFolders)
    if (const std::string path = folder + name; ::access(path.c_str(), R_OK) == 0) return path;
  if (auto program = find_program(name)) return program;
  return Error{.code = Code::not_found,
               .text = "'" + name + "' is neither a program in PATH nor in one of the loader's folders",
               .help = "a path with a '/' names any file"};
}

// The address of the data in the file.
Result<std::uint64_t> address_in(const elf::ElfFile& file, const std::string& symbol) {
  const std::vector<std::uint64_t> addresses = file.addresses_of(symbol);
  if (addresses.empty())
    return Error{.code = Code::not_found,
                 .text = "no symbol '" + symbol + "' in " + file.path(),
                 .help = file.has_names() ? "" : "the file is stripped: only its dynamic symbols are known"};
  if (addresses.size() > 1)
    return Error{.text = "'" + symbol + "' is ambiguous in " + file.path(),
                 .help = "it is at " + hex(addresses[0]) + " and at " + hex(addresses[1])};
  return addresses[0];
}

bool is_exported_by_library(const elf::ElfFile& file, const elf::Symbol& symbol) {
  return symbol.dynamic && symbol.binding != elf::Binding::local && !symbol.is_function && !file.is_program();
}

}  // namespace

std::shared_ptr<const elf::ElfFile> LocationResolver::object(const std::string& path) const {
  const auto at = objects_.find(path);
  return at == objects_.end() ? nullptr : at->second;
}

// The program may have a copy of a library's data, which contains only the symbol's own bytes.
Status LocationResolver::find_in_object(const spec::ProbeSpec& spec, spec::Argument& argument) {
  const auto refuse = [&](int column, Error error) { return at_column(spec, column, std::move(error)); };
  auto path = find_file(argument.object);
  if (!path) return refuse(argument.object_column, path.error());
  auto file = files_.open(*path);
  if (!file) {
    Error error = file.error();
    error.text = *path + ": " + error.text;
    return refuse(argument.object_column, std::move(error));
  }
  const auto address = address_in(**file, argument.symbol);
  if (!address) return refuse(argument.symbol_column, address.error());
  const auto symbol = (*file)->find_any(argument.symbol);  // nothing: only a debug file has the name
  if (symbol && symbol->is_ifunc)
    return refuse(argument.symbol_column,
                  Error{.code = Code::refused,
                        .text = "'" + argument.symbol + "' is chosen at run time (IFUNC): it is not data"});
  std::uint64_t& value = argument.steps.front().value;
  if (symbol && is_exported_by_library(**file, *symbol)) {
    if (value != 0 && value >= symbol->size)
      return refuse(argument.symbol_column,
                    Error{.code = Code::refused,
                          .text = "'" + argument.symbol + "' has " + std::to_string(symbol->size) +
                                  " bytes, and the program may have a copy of only these"});
    argument.exported = argument.symbol;
    argument.exported_address = *address;
  }
  value += *address;
  argument.symbol.clear();
  argument.object = path.take();
  objects_[argument.object] = file.take();
  return ok();
}

}  // namespace uprobe
