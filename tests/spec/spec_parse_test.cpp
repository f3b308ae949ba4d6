// SPDX-License-Identifier: MIT
// Definitions in the default dialect: its additions to the kernel's, its refusals, and the texts of its errors.
#include <gtest/gtest.h>

#include <cerrno>

#include "engine/spec/listing.h"
#include "engine/spec/messages.h"
#include "engine/spec/parse.h"

namespace uprobe::spec {
namespace {

// Every path is a file of its own.
FileState any_file(const std::string& path) { return {.device = 1, .inode = std::hash<std::string>{}(path) | 1}; }

Result<ProbeSpec> parse(std::string_view line, std::string object = {}) {
  return parse_definition(line, {.default_object = std::move(object), .file_check = any_file});
}

ProbeSpec parsed(std::string_view line, std::string object = {}) {
  auto spec = parse(line, std::move(object));
  EXPECT_TRUE(spec) << line << ": " << (spec ? "" : spec.error().text);
  return spec ? spec.take() : ProbeSpec{};
}

// The caret and the text of an error, "col: text".
std::string error(std::string_view line, std::string object = {}) {
  const auto spec = parse(line, std::move(object));
  return spec ? "accepted" : std::to_string(spec.error().column) + ": " + spec.error().text;
}

std::string help(std::string_view line) {
  const auto spec = parse(line);
  return spec ? "accepted" : spec.error().help;
}

struct PlaceCase {
  const char* word;
  const char* path;
  const char* symbol;
  std::int64_t offset;
};

TEST(Place, SymbolsAndOffsetsAreToldApart) {
  const PlaceCase cases[] = {
      {"/bin/zsh:zfree", "/bin/zsh", "zfree", 0},
      {"/bin/zsh:zfree+0x10", "/bin/zsh", "zfree", 0x10},
      {"/bin/zsh:zfree+12", "/bin/zsh", "zfree", 12},
      {"/bin/zsh:zfree-4", "/bin/zsh", "zfree", -4},
      {"zsh:zfree", "zsh", "zfree", 0},
      {"zsh:0x10", "zsh", "", 0x10},
      {"/bin/zsh:0x6ae40", "/bin/zsh", "", 0x6ae40},
      {"/a:b/x.so:0x10", "/a:b/x.so", "", 0x10},
      {"/a:b/x.so:f", "/a:b/x.so", "f", 0},
      {"/lib/x.so:ns::fn", "/lib/x.so", "ns::fn", 0},
      {"/lib/x.so:ns::fn+0x4", "/lib/x.so", "ns::fn", 4},
      {"/lib/x.so:::global", "/lib/x.so", "::global", 0},
      {"/lib/x.so:std::vector<int,std::allocator<int>>::push_back(int&&)", "/lib/x.so",
       "std::vector<int,std::allocator<int>>::push_back(int&&)", 0},
      {"/lib/x.so:a<-1>::f()+0x8", "/lib/x.so", "a<-1>::f()", 8},
      {"/lib/x.so:a<-1>", "/lib/x.so", "a<-1>", 0},
      {"/lib/x.so:operator-", "/lib/x.so", "operator-", 0},
      {"/lib/x.so:operator->", "/lib/x.so", "operator->", 0},
      {"/lib/x.so:operator%(T,T)", "/lib/x.so", "operator%(T,T)", 0},
      {"/lib/libc.so.6:memcpy@GLIBC_2.2.5", "/lib/libc.so.6", "memcpy@GLIBC_2.2.5", 0},
      {"/lib/libc.so.6:memcpy@@GLIBC_2.14+1", "/lib/libc.so.6", "memcpy@@GLIBC_2.14", 1},
      {"/opt/go:main.(*T).Method", "/opt/go", "main.(*T).Method", 0},
      {"/opt/go:github.com/x/y.Func", "/opt/go", "github.com/x/y.Func", 0},
      {"/bin/été:f", "/bin/été", "f", 0},
      {"/bin/voil\xc3\xa0:f", "/bin/voil\xc3\xa0", "f", 0},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.word);
    const Place place = parsed("p:e " + std::string(c.word)).place;
    EXPECT_EQ(place.path, c.path);
    EXPECT_EQ(place.symbol, c.symbol);
    EXPECT_EQ(static_cast<std::int64_t>(place.offset), c.offset);
    EXPECT_EQ(place.path_column, 4);
  }
}

TEST(Place, SuffixesFollowSymbolsToo) {
  ProbeSpec spec = parsed("p:e /b/x:f%return(0x10)");
  EXPECT_TRUE(spec.is_return);
  EXPECT_EQ(spec.place.symbol, "f");
  EXPECT_EQ(spec.place.reference_counter, 0x10u);

  spec = parsed("p:e /b/x:f(int)+4(16)");
  EXPECT_EQ(spec.place.symbol, "f(int)");
  EXPECT_EQ(spec.place.offset, 4u);
  EXPECT_EQ(spec.place.reference_counter, 16u);

  spec = parsed("p:e /b/x:operator%%return");
  EXPECT_EQ(spec.place.symbol, "operator%");
  EXPECT_TRUE(spec.is_return);
  EXPECT_FALSE(parsed("p:e /b/x:f(0)").place.reference_counter);

  EXPECT_EQ(error("p:e /b/x:f%ret"), "10: Invalid probed address suffix");
  EXPECT_EQ(error("p:e /b/x:f%+4%return"), "10: Invalid probed address suffix");
  EXPECT_EQ(error("p:e /b/x:f%return%return"), "10: Invalid probed address suffix");
  EXPECT_EQ(error("p:e /b/x:f+4+0"), "13: Invalid offset from the symbol");
  EXPECT_EQ(error("p:e /b/x:f(1)(0)"), "13: Reference counter has wrong suffix");
  EXPECT_EQ(error("p:e /b/x:f(0x)"), "11: Invalid reference counter offset");
  EXPECT_EQ(error("p:e /b/x:f(1)x"), "13: Reference counter has wrong suffix");
  EXPECT_EQ(error("p:e /b/x:f(1"), "12: Reference counter brace is not closed");
  EXPECT_EQ(error("p:e /b/x:f+08"), "11: Invalid offset from the symbol");
  EXPECT_EQ(error("p:e /b/x:f+9223372036854775808"), "11: Invalid offset from the symbol");
}

TEST(Place, ADefaultObjectTakesNamesAndOffsets) {
  ProbeSpec spec = parsed("p:zfree zfree %di", "/bin/zsh");
  EXPECT_EQ(spec.place.path, "/bin/zsh");
  EXPECT_EQ(spec.place.symbol, "zfree");
  EXPECT_EQ(listing(spec), "p:uprobes/zfree /bin/zsh:zfree arg1=%di");
  EXPECT_FALSE(spec.place.is_address);
  EXPECT_EQ(parsed("p 0x6ae40", "/bin/zsh").place.offset, 0x6ae40u);
  EXPECT_TRUE(parsed("p 0x6ae40", "/bin/zsh").place.is_address) << "what nm prints, as the kprobe tracer's MEMADDR";
  EXPECT_FALSE(parsed("p /bin/ls:0x6ae40", "/bin/zsh").place.is_address);
  for (const char* path : {"/bin/ls", "./ls", "../ls"})
    EXPECT_EQ(error("p " + std::string(path), "/bin/zsh"),
              std::to_string(2 + std::string(path).size()) + ": " + std::string(message::kNoSymbol));
  EXPECT_EQ(parsed("p ns::fn+4", "/lib/x.so").place.symbol, "ns::fn");
  EXPECT_EQ(parsed("p /bin/ls:main", "/bin/zsh").place.path, "/bin/ls");
  EXPECT_EQ(error("p:zfree zfree %di"), "13: " + std::string(message::kNoSymbol));
  EXPECT_EQ(help("p:zfree zfree %di"), "or name the object for all definitions with -x FILE");
  const auto strict = parse_definition("p:zfree zfree", {.strict = true, .default_object = "/bin/zsh"});
  EXPECT_FALSE(strict);
}

// "/b/x:f.c" is no file here, "/b/x" is.
FileState no_colon(const std::string& path) {
  if (path.find(':') != std::string::npos) return {.err = ENOENT, .is_regular = false};
  return any_file(path);
}

TEST(Place, SourceLines) {
  const auto place = [](std::string_view line, std::string object = {}, bool strict = false) {
    auto spec = parse_definition(line, {.strict = strict, .default_object = std::move(object), .file_check = no_colon});
    if (!spec) return std::to_string(spec.error().column) + ": " + spec.error().text;
    const Place& p = spec->place;
    return p.path + " " + p.source + " " + std::to_string(p.line) + " @" + std::to_string(p.place_column);
  };
  EXPECT_EQ(place("p:e /b/x:f.c:42"), "/b/x f.c 42 @9");
  EXPECT_EQ(place("p:e /b/x:dir/f.c:42"), "/b/x dir/f.c 42 @9");
  EXPECT_EQ(place("p:e x:f.c:42"), "x f.c 42 @6");
  EXPECT_EQ(place("p:e f.c:42", "/b/x"), "/b/x f.c 42 @4");
  EXPECT_EQ(place("p:e f.c:42"), "f.c  0 @8") << "an offset of a program";
  EXPECT_EQ(place("p:e ld.bfd:42", "/b/x"), "ld.bfd  0 @11");
  EXPECT_EQ(place("p:e f.c:0x42", "/b/x"), "f.c  0 @8");
  EXPECT_EQ(place("p:e /b/x:f.c:0"), "13: Invalid line number");
  EXPECT_EQ(place("p:e /b/x:f.c:99999999999"), "13: Invalid line number");
  EXPECT_EQ(place("p:e /b/x:f.c:42", {}, true), "4: " + std::string(message::kFileNotFound)) << "a file of that name";
  EXPECT_EQ(parsed("p:e /b/x:f.c:42").place.path, "/b/x:f.c") << "where there is such a file, the kernel takes it";
  const auto spec = parse_definition("p:e /b/x:f.c:42 %di", {.file_check = no_colon});
  ASSERT_TRUE(spec);
  EXPECT_EQ(listing(*spec), "p:uprobes/e /b/x:f.c:42 arg1=%di");
}

TEST(Place, NamesOfVariables) {
  const ProbeSpec spec = parsed("p /b/x:f name p->next->len:u32 buf[3] q=a.b:x8[4] p->len t=+0($arg1):string s:string");
  std::string text;
  for (const Argument& argument : spec.arguments)
    text += argument.name + "=" + argument.variable + (argument.has_type ? "!" : "") + " ";
  EXPECT_EQ(text, "name=name len=p->next->len! buf=buf[3] q=a.b! arg5=p->len t=! s=s! ");
  const ProbeSpec numbered = parsed("p /b/x:f x1 p->s32 r8 m2[1][0] *q3 &t4");
  text.clear();
  for (const Argument& argument : numbered.arguments) text += argument.name + " ";
  EXPECT_EQ(text, "x1 s32 r8 m2 q3 t4 ") << "digits are part of a name, an index is not";
  EXPECT_EQ(parsed("p /b/x:f a]").arguments[0].name, "a");
  EXPECT_EQ(spec.arguments[1].kind, Kind::unsigned_decimal);
  EXPECT_EQ(spec.arguments[3].count, 4u);
  EXPECT_EQ(spec.arguments[1].symbol_column, 14);
  EXPECT_EQ(spec.arguments[3].symbol_column, 40);
  EXPECT_EQ(error("p /b/x:f +8(p)"), "12: A variable is no address to add to");
  EXPECT_EQ(error("p /b/x:f p->len:bool"), "16: Unknown type is specified");
  EXPECT_EQ(error("p /b/x:f name name=%di"), "14: This argument name is already used");
}

TEST(Place, WhatIsMissingIsSaid) {
  EXPECT_EQ(error("p:e /bin/zsh:"), "13: " + std::string(message::kNoSymbol));
  EXPECT_EQ(error("p:e /bin/zsh:+8"), "13: " + std::string(message::kNoSymbol));
  EXPECT_EQ(error("p:e :main"), "4: " + std::string(message::kNoPath));
  EXPECT_EQ(error("p:e"), "3: " + std::string(message::kNoPlace));
  EXPECT_EQ(error("p:e /bin/zsh:0x1g"), "13: Invalid uprobe offset");
  EXPECT_EQ(error(""), "-1: " + std::string(message::kEmpty));
  EXPECT_EQ(error("-:g/e"), "0: " + std::string(message::kDeletionHere));
}

TEST(Place, FilesAreLookedAtUnlessTheyAreProgramNames) {
  int asked = 0;
  const ParseOptions options{.file_check = [&](const std::string&) {
    ++asked;
    return FileState{.err = ENOENT};
  }};
  const auto missing = parse_definition("p:e /no/file:f", options);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().text, "Failed to find the given file");
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_EQ(missing.error().err, ENOENT);
  EXPECT_EQ(missing.error().where, "p:e /no/file:f");
  EXPECT_EQ(missing.error().column, 4);
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(parse_definition("p:e zsh:f", options));
  EXPECT_EQ(asked, 1);
}

TEST(Place, TheRealLookUpSaysWhatThePathIs) {
  EXPECT_EQ(look_up_file("/nonexistent/file").err, ENOENT);
  EXPECT_FALSE(look_up_file("/tmp").is_regular);
  const FileState program = look_up_file("/proc/self/exe");
  EXPECT_EQ(program.err, 0);
  EXPECT_TRUE(program.is_regular);
  EXPECT_NE(program.inode, 0u);
}

TEST(Name, AutomaticNames) {
  EXPECT_EQ(parsed("p /bin/zsh:0x6ae40").event, "p_zsh_0x6ae40");
  EXPECT_EQ(parsed("r /lib/libx-1.2.so:4096").event, "p_libx_0x1000");
  EXPECT_EQ(parsed("p /bin/zsh:zfree").event, "p_zsh_zfree");
  EXPECT_EQ(parsed("p /bin/zsh:zfree+4").event, "p_zsh_zfree_0x4");
  EXPECT_EQ(parsed("p /bin/zsh:zfree-4").event, "p_zsh_zfree_minus_0x4");
  EXPECT_EQ(parsed("p /b/x.so:ns::f(int&)").event, "p_x_ns__f_int__");
  EXPECT_EQ(parsed("p /b/x:f@GLIBC_2.2").event, "p_x_f_GLIBC_2_2");
  EXPECT_EQ(parsed("p:grp/ /bin/zsh:f").group, "grp");
  EXPECT_EQ(parsed("p /bin/zsh:f").group, "uprobes");
  EXPECT_EQ(parsed("p /b/x:" + std::string(200, 'y')).event, "p_x_" + std::string(50, 'y') + "_c9766ebd");
}

TEST(Fetch, ArgumentVariablesAreTheCallingConvention) {
  using shared::Reg;
  const ProbeSpec spec = parsed("p /b/x:f $arg1 $arg2 $arg3 $arg4 $arg5 $arg6 +8($arg1):string");
  const Reg expected[] = {Reg::di, Reg::si, Reg::dx, Reg::cx, Reg::r8, Reg::r9, Reg::di};
  ASSERT_EQ(spec.arguments.size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(spec.arguments[i].steps.at(0).kind, StepKind::reg);
    EXPECT_EQ(spec.arguments[i].steps.at(0).reg, expected[i]) << i;
  }
  EXPECT_EQ(error("p /b/x:f $arg7"), "9: Invalid argument number");
  EXPECT_EQ(error("p /b/x:f $arg0"), "9: Invalid argument number");
  EXPECT_EQ(error("p /b/x:f+4 $arg1"), "11: $arg* can be used only on function entry or exit");
  EXPECT_EQ(error("r /b/x:f $arg1"), "9: $arg* can be used only on function entry or exit");
  EXPECT_TRUE(parse("p /b/x:0x1000 $arg1"));
}

TEST(Fetch, SixtyFourBitRegisterNames) {
  using shared::Reg;
  const ProbeSpec spec = parsed("p /b/x:f %rax %rbx %rsp %rip %rflags %r8 %rdi:s32");
  const Reg expected[] = {Reg::ax, Reg::bx, Reg::sp, Reg::ip, Reg::flags, Reg::r8, Reg::di};
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(spec.arguments.at(i).steps.at(0).reg, expected[i]);
  EXPECT_EQ(spec.arguments[6].body, "%rdi:s32");
  for (const char* bad : {"%rr8", "%rcs", "%rorig_ax", "%r16", "%r", "%", "%DI"})
    EXPECT_EQ(error("p /b/x:f " + std::string(bad)), "9: Invalid register name") << bad;
}

TEST(Fetch, StepsOfEachForm) {
  const auto argument = [](const char* text) { return parsed("r /b/x:f " + std::string(text)).arguments.at(0); };
  Argument a = argument("+8(+-16(%si)):u32");
  ASSERT_EQ(a.steps.size(), 2u);
  EXPECT_EQ(a.steps[0].reg, shared::Reg::si);
  EXPECT_EQ(a.steps[1].kind, StepKind::dereference);
  EXPECT_EQ(static_cast<std::int64_t>(a.steps[1].value), -16);
  EXPECT_EQ(a.sink, Sink::memory);
  EXPECT_EQ(a.memory_offset, 8u);
  EXPECT_EQ(a.size, 4);

  a = argument("$stack2");
  ASSERT_EQ(a.steps.size(), 2u);
  EXPECT_EQ(a.steps[0].reg, shared::Reg::sp);
  EXPECT_EQ(a.steps[1].value, 16u);
  EXPECT_EQ(a.sink, Sink::value);

  a = argument("-u8($stack1):string");
  EXPECT_EQ(a.sink, Sink::memory);
  EXPECT_EQ(static_cast<std::int64_t>(a.memory_offset), -8);

  a = argument("@+-16:s8");
  EXPECT_EQ(a.steps.at(0).kind, StepKind::file_offset);
  EXPECT_EQ(static_cast<std::int64_t>(a.steps[0].value), -16);
  EXPECT_EQ(a.sink, Sink::memory);

  a = argument("+4(@0x1000)");
  ASSERT_EQ(a.steps.size(), 2u);
  EXPECT_EQ(a.steps[0].value, 0x1000u);
  EXPECT_EQ(a.steps[1].kind, StepKind::dereference);
  EXPECT_EQ(a.memory_offset, 4u);

  a = argument("\\-1:s8");
  EXPECT_EQ(a.steps.at(0).value, UINT64_MAX);
  EXPECT_EQ(a.sink, Sink::value);

  a = argument("\\\"a\"b\"");
  EXPECT_EQ(a.sink, Sink::text);
  EXPECT_EQ(a.text, "a\"b");
  EXPECT_EQ(argument("$COMM").sink, Sink::comm);
  EXPECT_EQ(argument("$retval").steps.at(0).reg, shared::Reg::ax);
}

TEST(Refusals, WhatTheKernelPassesOverHasACaret) {
  EXPECT_EQ(error("r /b/x:f $retvalx"), "16: Nothing may follow the variable");
  EXPECT_EQ(error("p /b/x:f +0($stack)+8"), "19: Nothing may follow the closing brace");
  EXPECT_EQ(error("p /b/x:f +0(+0(%di)x)"), "19: Nothing may follow the closing brace");
  EXPECT_EQ(error("p /b/x:f +0(%di)[4]"), "16: Nothing may follow the closing brace");
  EXPECT_EQ(help("p /b/x:f +0(%di)[4]"), "an array needs a type: ':u8[4]'");
  EXPECT_EQ(error("r10:g/e /b/x:f"), "1: " + std::string(message::kAfterKind));
  EXPECT_EQ(error("px /b/x:f"), "1: " + std::string(message::kAfterKind));
  EXPECT_EQ(error("p /b/x:f $stack4294967296"), "15: " + std::string(message::kStackIndexTooBig));
  EXPECT_EQ(error("p /b/x:f +0(+2147483648(%di))"), "12: " + std::string(message::kDereferenceTooBig));
  EXPECT_EQ(error("p /b/x:f %di:b18446744073709551615@1/8"), "13: Invalid bitfield");
  EXPECT_TRUE(parse("p /b/x:f $stack4294967295 +2147483647(%di) -2147483648(%di)"));
}

// The kernel's carets inside braces are off by one for +u and +-; these are not.
TEST(Refusals, CaretsInsideBracesAreExact) {
  EXPECT_EQ(error("p /b/x:f +u8(%zz)"), "13: Invalid register name");
  EXPECT_EQ(error("p /b/x:f +-8(%zz)"), "13: Invalid register name");
  EXPECT_EQ(error("p /b/x:f n=+8(+u8(%zz)):u8"), "18: Invalid register name");
  EXPECT_EQ(error("p /b/x:f +u0(%di):u8[2]"), "18: String accepts only memory argument");
  EXPECT_EQ(error("p   /b/x:f \t +u0(+0(\\x))"), "17: Invalid immediate value");
}

TEST(Help, GuessesAtTypes) {
  EXPECT_EQ(help("p /b/x:f +0(%di):strng"), "did you mean 'string'?");
  EXPECT_EQ(help("p /b/x:f +0(%di):str"), "did you mean 'string'?");
  EXPECT_EQ(help("p /b/x:f +0(%di):String"), "did you mean 'string'?");
  for (const char* type : {"symbol", "f32", "f64", "u128", "s128", "x128"})
    EXPECT_NE(help("p /b/x:f +0(%di):quaternion").find(type), std::string::npos) << type;
  EXPECT_EQ(help("p /b/x:f %di:int"), "did you mean 's32'?");
  EXPECT_EQ(help("p /b/x:f %di:U64"), "did you mean 'u64'?");
  EXPECT_EQ(help("p /b/x:f %di:size_t"), "did you mean 'u64'?");
  EXPECT_EQ(help("p /b/x:f %di:double"), "did you mean 'f64'?");
  EXPECT_NE(help("p /b/x:f %di:b1@0/9").find("container"), std::string::npos);
  EXPECT_NE(help("p /b/x:f %di:").find("write a type"), std::string::npos);
}

TEST(Help, GuessesAtRegistersAndDefinitions) {
  EXPECT_EQ(help("p /b/x:f %EDI"), "did you mean '%edi'?");
  EXPECT_EQ(help("p /b/x:f %ah"), "did you mean '%ax:b8@8/16'?");
  EXPECT_EQ(help("p /b/x:f %RDI"), "did you mean '%rdi'?");
  EXPECT_EQ(help("p /b/x:f %flag"), "did you mean '%flags'?");
  EXPECT_EQ(parsed("p /b/x:f di").arguments[0].variable, "di") << "a name, until the file is asked";
  EXPECT_EQ(help("1234"), "-p takes a probe definition; use -P 1234 to attach");
  EXPECT_EQ(help("P:e /b/x:f"), "the 'p' or 'r' is lower case");
  EXPECT_EQ(help("/bin/zsh:zfree"), "write the kind of probe first: p /bin/zsh:zfree");
}

TEST(Listing, CanBeFedBack) {
  for (const char* line : {"p:g/e /bin/zsh:0x10 a=%di b=+0(%si):string", "r:g/e /bin/zsh:f+0x4 $retval",
                           "p:g/e /bin/zsh:f-16(0x20) c=$comm", "p /bin/zsh:f%return"}) {
    const std::string once = listing(parsed(line));
    EXPECT_EQ(listing(parsed(once)), once) << line;
  }
  EXPECT_EQ(listing(parsed("p:g/e /bin/zsh:f-16(0x20) %di")), "p:g/e /bin/zsh:f-0x10(0x20) arg1=%di");
  EXPECT_EQ(listing(parsed("p:g/e /bin/zsh:f %di"), 0x1234), "p:g/e /bin/zsh:0x0000000000001234 arg1=%di");
}

TEST(Listing, TheDefinitionKeepsItsWords) {
  const ProbeSpec spec = parsed("  p:e \t /b/x:f   a=%di # what for");
  EXPECT_EQ(spec.definition, "p:e /b/x:f a=%di");
  EXPECT_EQ(spec.place.place_column, 9);
  EXPECT_EQ(spec.arguments.at(0).column, 11);
}

// 18 definitions that a recording on a shared machine omits, because they land in the kernel's own groups.
TEST(Strict, DefaultGroupAndIgnoredText) {
  const ParseOptions strict{.strict = true, .file_check = any_file};
  for (const char* head : {"px:g/e", "p1:g/e", "p"})
    EXPECT_EQ(listing(*parse_definition(head + std::string(" /b/x:0x10"), strict)),
              "p:uprobes/p_x_0x10 /b/x:0x0000000000000010");
  for (const char* head : {"r10:g/e", "r-1:g/e", "r99999:g/e", "r"})
    EXPECT_EQ(listing(*parse_definition(head + std::string(" /b/x:0x10 $retval"), strict)),
              "r:uprobes/p_x_0x10 /b/x:0x0000000000000010 arg1=$retval");
}

// The slash that a place needs may be after its ':'. No path is the current directory (measured).
TEST(Strict, PathsWithoutASlash) {
  const auto none = parse_definition("p:g/e :1/0", {.strict = true});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().text, message::kNotRegularFile);
  const auto relative = parse_definition("p:g/e no-such-file:1/0", {.strict = true});
  ASSERT_FALSE(relative);
  EXPECT_EQ(relative.error().text, message::kFileNotFound);
}

// Limits of $argN, measured: the number is checked up to the stack's words, then the probe's kind.
TEST(Strict, ArgumentNumbers) {
  const auto text = [](const char* variable) {
    const auto spec =
        parse_definition("p:g/e /b/x:0x10 " + std::string(variable), {.strict = true, .file_check = any_file});
    return spec ? "accepted" : spec.error().text;
  };
  EXPECT_EQ(text("$arg2048"), message::kNotEntry);
  EXPECT_EQ(text("$arg2049"), message::kBadArgumentNumber);
  EXPECT_EQ(text("$arg+1"), message::kNotEntry);
  EXPECT_EQ(text("$arg*"), message::kBadVariable);
}

TEST(Strict, LatinOneLettersAndBlanks) {
  const ParseOptions strict{.strict = true, .file_check = any_file};
  EXPECT_EQ(listing(*parse_definition("p:g/\xe9 /b/x:1\xa0%di", strict)), "p:g/\xe9 /b/x:0x0000000000000001 arg1=%di");
  for (const char* bad : {"p:g/\xd7 /b/x:1", "p:g/\xf7 /b/x:1", "p:g/\xaa /b/x:1"}) {
    const auto spec = parse_definition(bad, strict);
    ASSERT_FALSE(spec) << bad;
    EXPECT_EQ(spec.error().text, message::kBadEvent);
  }
  EXPECT_EQ(error("p:e /b/x:1 \xa0"), "11: Invalid fetch argument");
}

TEST(File, LinesAndComments) {
  const auto lines = split_definitions("# head\r\n\r\np:a /b/x:f\r\n   # c\n  p:b /b/x:g # d\nlast");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].number, 3);
  EXPECT_EQ(lines[0].text, "p:a /b/x:f");
  EXPECT_EQ(lines[1].number, 5);
  EXPECT_EQ(lines[2].text, "last");
  EXPECT_TRUE(split_definitions("").empty());
  EXPECT_EQ(split_definitions("\n\n\nx").at(0).number, 4);
}

}  // namespace
}  // namespace uprobe::spec
