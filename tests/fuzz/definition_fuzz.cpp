// SPDX-License-Identifier: MIT
// Fuzzes definitions in both dialects: an accepted one compiles to a program that verifies, has a listing that is accepted
// again with the same listing, and has a format file. The first byte chooses the action on the rest.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/lex/words.h"
#include "engine/program/compile.h"
#include "engine/program/filter.h"
#include "engine/program/format_file.h"
#include "engine/program/verify.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/function_event.h"
#include "engine/spec/listing.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Every file exists except those with a ':' in their name: such a place may be a source line.
spec::FileState look_up(const std::string& path) {
  if (path.find(':') != std::string::npos) return {.err = ENOENT, .is_regular = false};
  return {.device = 1, .inode = path.size() + 1};
}

spec::ParseOptions options(std::uint8_t choice) {
  return {.strict = (choice & 1) != 0,
          .words_2009 = (choice & 5) == 4,
          .default_object = (choice & 2) != 0 ? "/bin/object" : "",
          .file_check = look_up};
}

// A place alone may have blanks in its name, and is listed by its offset: after it was found.
spec::ProbeSpec found_if_bare(spec::ProbeSpec probe) {
  if (probe.is_bare) probe.place.found = spec::FoundSymbol{.offset = 0x1000};
  return probe;
}

void check(const spec::ProbeSpec& given, const spec::ParseOptions& with) {
  const spec::ProbeSpec probe = found_if_bare(given);
  const std::string once = spec::listing(probe);
  const bool is_function = probe.style == spec::Style::function;
  const auto again = is_function ? spec::parse_function_event(once, with) : spec::parse_definition(once, with);
  // Default names and offsets in their long form can push a line over the limit; automatic event names are not checked.
  require(again || once.size() > spec::kMaxLine || !spec::is_identifier(probe.event));
  if (again) require(spec::listing(*again) == once);
  const auto program = program::compile(probe);
  if (!program) return;
  require(bool(program::verify(*program)));
  require(program::format_file(program->layout, 1).ends_with('\n'));
}

// The text after an `if` is a filter that verifies, or a mistake with a place in the line.
void check_filter(const spec::DefinitionSet& set, const spec::ProbeSpec& probe) {
  const spec::EventControls& controls = set.controls_of(probe);
  if (!controls.filter) return;
  require(controls.filter_line.substr(controls.filter_at) == *controls.filter);
  auto compiled = program::compile(probe);
  if (!compiled) return;
  const Status filtered = program::set_filter(*compiled, *controls.filter, {.id = 1, .cpus = 4});
  if (filtered) return require(bool(program::verify(*compiled)));
  const Error error = spec::of_filter(controls, filtered.error());
  require(!error.text.empty() && error.column <= static_cast<int>(error.where.size()) + 1);
}

// Symbols have made-up places; a pattern is two functions.
Result<std::vector<spec::ProbeSpec>> resolve(spec::ProbeSpec spec) {
  for (spec::Argument& argument : spec.arguments) argument.symbol.clear(), argument.address.reset();
  if (spec.place.symbol.empty()) return std::vector{spec};
  spec.place.found = spec::FoundSymbol{.offset = spec.place.symbol.size() + spec.place.offset};
  std::vector<spec::ProbeSpec> found{spec};
  if (spec.place.symbol.find('*') == std::string::npos) return found;
  found.push_back(spec);
  ++found[1].place.found->offset;
  return found;
}

bool can_be_read_again(const spec::ProbeSpec& probe) {
  if (probe.style == spec::Style::function) return false;  // it is deleted by its name
  if (probe.is_bare && !probe.place.found) return false;   // its name may have blanks
  return spec::is_identifier(probe.event) && spec::listing(probe).size() < spec::kMaxLine;
}

// A listing defines the same set again; each listed probe can be deleted.
void check(const spec::DefinitionSet& set, const spec::ParseOptions& with) {
  const std::vector<spec::ProbeSpec> probes = set.probes();
  require(probes.size() == set.size());
  std::size_t in_events = 0;
  for (const auto& event : set.events()) in_events += event.probes.size();
  require(in_events == probes.size());
  if (!std::all_of(probes.begin(), probes.end(), can_be_read_again)) return;
  spec::DefinitionSet again(with);
  require(bool(again.write(set.listing())));
  require(again.listing() == set.listing());
  for (const spec::ProbeSpec& probe : probes) {
    const std::string listed = spec::listing(probe);
    require(bool(again.add("-" + listed.substr(1))));
  }
  require(again.size() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const spec::ParseOptions with = options(data[0]);
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (const auto probe = spec::parse_definition(text, with)) {
    check(*probe, with);
  } else {
    require(!probe.error().text.empty());
    require(probe.error().column <= static_cast<int>(probe.error().where.size()) + 1);
  }
  if (const auto probe = spec::parse_function_event(text.substr(0, text.find('\n')), with)) {
    check(*probe, with);
  } else {
    require(!probe.error().text.empty());
    require(probe.error().column <= static_cast<int>(probe.error().where.size()) + 1);
  }
  spec::DefinitionSet set(with);
  if (!set.write(text)) require(set.probes().size() <= size);
  for (const auto& line : spec::split_definitions(text)) {
    if (!set.add(line.text)) break;
  }
  for (const auto& probe : set.probes()) check(probe, with), check_filter(set, probe);
  check(set, with);
  spec::DefinitionSet resolved(with, resolve);
  static_cast<void>(resolved.write(text));
  check(resolved, with);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const char* lines[] = {
      "p:g/e /b/x:0x10 a=%di +8(+-4(%si)):u32[4] $stack2:x8 @+0x10:string \\\"text\" \\-5:b3@1/8 $comm",
      "r:g/e /b/x:ns::f(int)+0x4%return(0x20) $retval:s64 +u0($stack):ustring +0(%si):string[3]",
      "p zfree $arg1 %rdi n=+0($arg2):char[8] @0x1000 \\0x20:string",
      "p:g/a /b/x:1\np:g/a /b/x:2\n-:g/a /b/x:0x0000000000000001\n# comment\n-:g/\n",
      "-:e",
      "p:g/* /b/x:f* %edi @data+4:string\np:g/ /b/x:f\n-:x_f\n-:g/ /b/x:0x0000000000000002 arg1=%edi",
      "p: /b/x:0x10 %r8d:s16 a=%sil\n-:x_0x10",
      "p:g.e /b/x:operator%(T)%return",
      "p f.c:42 name p->next->len:u32 buf[3]:string q=a.b:x8[4]\np /b/x:f.c:7\np:g/e /b/x:f local:b3@1/8",
      "p f+4 %di:symbol +0(%si):symbol[2]\nr f-0x8\np 0x4010",
      "f(x64 p | symbol q+40[0]+16[2], NULL, char[8] s[1], string t+8[0], int v=0x4010 | u8 $data, unsigned long *w)",
      "p:g/e /b/x:0x10 %xmm0 v=%ymm15:u8[32] %xmm3:f64 %xmm1:b3@1/8[4]\nr /b/x:f $retval:f64 entry(%xmm2):f32",
      "p:g/e /b/x:0x10 x=%di s=+0(%si):string if x > 3 && (s ~ \"a*#\" || comm != 'b') # c\np:g/f /b/x:f a if",
      "p f a0 n=+8(-4(a1)):u8 s12 sa a7\nr f rv ra +0(rv):string entry(a3)",
      "p /b/x:f:12 $vars *p->q **r[2]\np /b/x:f:0 $params $vars:u8 x=*y",
      "f(double a, float b, x64 c, double d[2] | float e+4[0], NULL, double g) if a == 1 || c & 3",
      "/b/x:g*(int a,int b,int c,int d,int e,int f,x8[6] g+4,long h[2])\nh()",
  };
  std::vector<std::string> seeds;
  for (const char* line : lines) {
    for (char choice = 0; choice < 8; ++choice) seeds.push_back(std::string(1, choice) + line);
  }
  return seeds;
}
