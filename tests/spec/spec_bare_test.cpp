// SPDX-License-Identifier: MIT
// Bare places: where a place ends and its arguments begin, and how its event is called.
#include <gtest/gtest.h>

#include "engine/spec/bare.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"

namespace uprobe::spec {
namespace {

FileState any_file(const std::string& path) { return {.device = 1, .inode = std::hash<std::string>{}(path) | 1}; }

ParseOptions options() { return {.default_object = "/bin/prog", .file_check = any_file}; }

// "PATH SYMBOL [ARGUMENT]... = EVENT", or "column: text" of the error.
std::string read(std::string_view line) {
  const auto spec = parse_bare_place(line, options());
  if (!spec) return std::to_string(spec.error().column) + ": " + spec.error().text;
  std::string text = spec->place.path + " " + spec->place.symbol + (spec->is_return ? "%return" : "");
  for (const Argument& argument : spec->arguments) text += " [" + argument.name + "=" + argument.body + "]";
  return text + " = " + spec->event;
}

TEST(BarePlace, BeginsUnlikeADefinition) {
  for (const char* line : {"p:f /x:f", "p f", " r f", "p", "r:", "p3:f /x:f", "r0 f", "-:f", "# x", "", "P:f /x:f"})
    EXPECT_TRUE(starts_as_definition(line)) << line;
  for (const char* line : {"printf", "read", "r2x:f", "pthread_create %di", "malloc", "/x:f", "'p::f()'", "x:p"})
    EXPECT_FALSE(starts_as_definition(line)) << line;
}

TEST(BarePlace, ObjectAndFunction) {
  EXPECT_EQ(read("zfree"), "/bin/prog zfree = zfree");
  EXPECT_EQ(read("libc:malloc"), "libc malloc = malloc");
  EXPECT_EQ(read("libc.so.6:write"), "libc.so.6 write = write");
  EXPECT_EQ(read("./demo:greet"), "./demo greet = greet");
  EXPECT_EQ(read("getcwd%return"), "/bin/prog getcwd%return = getcwd");
  EXPECT_EQ(read("work+0x10"), "/bin/prog work = work_0x10");
  EXPECT_EQ(read("./demo:0x1234"), "./demo  = demo_0x1234");
}

TEST(BarePlace, GeneratedCode) {
  EXPECT_EQ(read("jit:fib %di"), "jit fib [arg1=%di] = fib");
  EXPECT_EQ(read("'jit:LazyCompile:*fib /a b.js:1:13' x=%si"),
            "jit LazyCompile:*fib /a b.js:1:13 [x=%si] = LazyCompile_fib_a_b_js_1_13");
  EXPECT_EQ(read("jit:*fib*%return"), "jit *fib*%return = fib");
  EXPECT_EQ(read("jit:0x10"), "jit 0x10 = _0x10");
  EXPECT_EQ(read("jit:"), "4: " + std::string(message::kNoSymbol));
  EXPECT_EQ(read("jitter:f"), "jitter f = f");
}

TEST(BarePlace, ArgumentsFollow) {
  EXPECT_EQ(read("malloc %di"), "/bin/prog malloc [arg1=%di] = malloc");
  EXPECT_EQ(read(" libc:open64  path=+0(%di):string \t flags=%si"),
            "libc open64 [path=+0(%di):string] [flags=%si] = open64");
  EXPECT_EQ(read("greet who n"), "/bin/prog greet [who=who] [n=n] = greet");
  EXPECT_EQ(read("'f(int)' x=%di # a comment"), "/bin/prog f(int) [x=%di] = f_int");
  EXPECT_EQ(read("getcwd%return +0($retval):string"), "/bin/prog getcwd%return [arg1=+0($retval):string] = getcwd");
  EXPECT_EQ(read("malloc %zz"), "7: Invalid register name");
}

TEST(BarePlace, NamesAsToolsPrintThem) {
  EXPECT_EQ(read("shop::Cart::add(shop::Item const&, int)"),
            "/bin/prog shop::Cart::add(shop::Item const&, int) = shop_Cart_add_shop_Item_const_int");
  const char* names[] = {"shop::Cart::size() const",
                         "shop::Cart::size() const &",
                         "int shop::max<int>(int, int)",
                         "std::map<int, std::string>::operator[](int const&)",
                         "shop::operator<<(std::ostream&, shop::Cart const&)",
                         "shop::Cart::operator()(int, int) const",
                         "shop::Cart::operator->() const",
                         "operator new(unsigned long)",
                         "std::ostream& std::operator<< <char>(std::ostream&, char)",
                         "<demo::Cart as demo::Shop>::add",
                         "main.(*Server).handle",
                         "main.f.func1",
                         "f[abi:cxx11](int)",
                         "main::{lambda(int, int)#1}::operator()(int, int) const"};
  for (const char* const text : names) {
    const std::string name = text, lines[] = {name + " x=%si", "'" + name + "' x=%si"};
    for (const std::string& line : lines) {
      const auto spec = parse_bare_place(line, options());
      ASSERT_TRUE(spec) << line << ": " << spec.error().text;
      EXPECT_EQ(spec->place.symbol, name);
      EXPECT_EQ(spec->place.path, "/bin/prog");
      ASSERT_EQ(spec->arguments.size(), 1u) << line;
    }
  }
}

TEST(BarePlace, WhatNoDefinitionCouldSayIsRefused) {
  EXPECT_EQ(read("f(x64 p"), "1: The parenthesis is not closed");
  EXPECT_EQ(read("'/opt/a b/x:f'"), "1: A path with a blank is given by -x");
  EXPECT_EQ(read("f("), "1: The parenthesis is not closed");
  EXPECT_EQ(read("f)"), "1: The parenthesis closes nothing");
  EXPECT_EQ(read("f(a))"), "4: The parenthesis closes nothing");
  EXPECT_EQ(read("()"), "0: The function's name is missing");
  EXPECT_EQ(read("f+"), "1: Invalid offset from the symbol");
  EXPECT_EQ(read("f + 3"), "2: Dereference needs a brace");
}

TEST(BarePlace, AnOffsetHasNoBlanks) {
  const auto apart = parse_bare_place("f +3", options());
  ASSERT_FALSE(apart);
  EXPECT_EQ(apart.error().help, "an offset from a function is written without blanks: f+0x4");
  const auto later = parse_bare_place("f %di +3", options());
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().help, "");
}

TEST(BarePlace, BlanksAroundAQuotedNameDoNotCount) {
  EXPECT_EQ(read("' ns::f(int, char) ' %di"), "/bin/prog ns::f(int, char) [arg1=%di] = ns_f_int_char");
}

TEST(BarePlace, NamesOfArguments) {
  const auto names = [](std::string_view line) {
    const auto spec = parse_bare_place(line, options());
    if (!spec || !spec->parameters) return std::string("-");
    std::string text = spec->parameters->function;
    for (const Argument& argument : spec->parameters->arguments) text += " " + argument.name + "=" + argument.body;
    return text;
  };
  EXPECT_EQ(names("malloc(size)"), "malloc size=$arg1");
  EXPECT_EQ(names("libc:write(fd, buf, n:u32) x=%di"), "write fd=$arg1 buf=$arg2 n=$arg3:u32");
  EXPECT_EQ(names("malloc()"), "malloc");
  EXPECT_EQ(names("malloc(size)%return"), "malloc size=$entry_arg1");
  for (const char* line : {"malloc", "f(int, int)", "f(int)", "f(void)", "f(char*)", "f(a, b, c, d, e, f, g)",
                           "main.(*T).f", "f(1)", "f(a"})
    EXPECT_EQ(names(line), "-") << line;
}

TEST(BarePlace, ItsReturn) {
  EXPECT_EQ(at_return("getcwd"), "getcwd%return");
  EXPECT_EQ(at_return("getcwd $retval"), "getcwd%return $retval");
  EXPECT_EQ(at_return("'ns::f(int)' $retval"), "'ns::f(int)%return' $retval");
  EXPECT_EQ(at_return("f%return"), "f%return");
  EXPECT_EQ(at_return("r:x /y:f"), "r:x /y:f");
}

TEST(BarePlace, NamesOfEvents) {
  EXPECT_EQ(function_event_name("__libc_start_main"), "__libc_start_main");
  EXPECT_EQ(function_event_name("(anonymous namespace)::Cart<int, ns::T>::add"), "Cart_add");
  EXPECT_EQ(function_event_name("ns::operator<"), "ns_operator");
  EXPECT_EQ(function_event_name("Tagged::text[abi:cxx11][abi:v2]"), "Tagged_text");
  EXPECT_EQ(function_event_name("<demo::Cart as demo::Shop>::add"), "demo_Cart_as_demo_Shop_add");
  EXPECT_EQ(function_event_name("main.(*Server).handle"), "main_Server_handle");
}

// "GROUP/EVENT" of each probe, in the order of their definitions.
std::string events(std::initializer_list<const char*> lines) {
  DefinitionSet set(options());
  for (const char* line : lines)
    if (const Status added = set.add(line, "/bin/prog"); !added) return added.error().text;
  std::string text;
  for (const ProbeSpec& spec : set.probes()) text += (text.empty() ? "" : " ") + spec.event;
  return text;
}

TEST(BarePlace, EventsOfOneNameAreKeptApart) {
  EXPECT_EQ(events({"f", "f%return"}), "f f__return");
  EXPECT_EQ(events({"f%return", "f"}), "f__return f");
  EXPECT_EQ(events({"f%return"}), "f");
  EXPECT_EQ(events({"libc:f", "f", "libm:f"}), "f f_1 f_2");
  EXPECT_EQ(events({"p:f /x:g", "f"}), "f f_1");
  EXPECT_EQ(events({"f", "f"}), "There is already the exact same probe event");
  EXPECT_EQ(events({"f", "libc:f%return"}), "f f__return");
}

TEST(BarePlace, ARenamedEventKeepsItsFilter) {
  DefinitionSet set(options());
  ASSERT_TRUE(set.add("f%return x=$retval if x > 3", "/bin/prog"));
  ASSERT_TRUE(set.add("f", "/bin/prog"));
  const auto probes = set.probes();
  ASSERT_EQ(probes.size(), 2u);
  EXPECT_EQ(set.controls_of(probes[0]).filter, "x > 3");
  EXPECT_FALSE(set.controls_of(probes[1]).filter);
  EXPECT_TRUE(set.add("-:f"));
  EXPECT_TRUE(set.add("-:f__return"));
  EXPECT_EQ(set.size(), 0u);
}

TEST(BarePlace, EventsThatAreInUseKeepTheirNames) {
  DefinitionSet set(options());
  ASSERT_TRUE(set.add("f%return", "/bin/prog"));
  set.keep_names();
  ASSERT_TRUE(set.add("f", "/bin/prog"));
  EXPECT_EQ(set.probes()[0].event, "f");
  EXPECT_EQ(set.probes()[1].event, "f_1");
}

TEST(BarePlace, NotInTheStrictDialect) {
  DefinitionSet set({.strict = true, .default_object = "/bin/prog", .file_check = any_file});
  EXPECT_FALSE(set.add("malloc"));
}

}  // namespace
}  // namespace uprobe::spec
