// SPDX-License-Identifier: MIT
// Prototypes of function events: the steps of each piece, and the errors of bad ones.
#include <gtest/gtest.h>

#include <map>

#include "engine/program/compile.h"
#include "engine/program/format_file.h"
#include "engine/program/verify.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/function_event.h"
#include "engine/spec/listing.h"

namespace uprobe::spec {
namespace {

FileState any_file(const std::string& path) { return {.device = 1, .inode = std::hash<std::string>{}(path) | 1}; }

ParseOptions options() { return {.default_object = "/bin/prog", .file_check = any_file}; }

ProbeSpec parsed(std::string_view line) {
  auto spec = parse_function_event(line, options());
  EXPECT_TRUE(spec) << line << ": " << (spec ? "" : spec.error().text);
  return spec ? spec.take() : ProbeSpec{};
}

std::string error(std::string_view line) {
  const auto spec = parse_function_event(line, options());
  return spec ? "accepted" : std::to_string(spec.error().column) + ": " + spec.error().text;
}

std::string step_text(const Step& step) {
  static const std::map<shared::Reg, const char*> kNames = {
      {shared::Reg::di, "di"}, {shared::Reg::si, "si"}, {shared::Reg::dx, "dx"}, {shared::Reg::cx, "cx"},
      {shared::Reg::r8, "r8"}, {shared::Reg::r9, "r9"}, {shared::Reg::sp, "sp"}};
  switch (step.kind) {
    case StepKind::reg:
      return kNames.at(step.reg);
    case StepKind::dereference:
      return ">" + std::to_string(step.value);
    case StepKind::file_offset:
      return "file";
    case StepKind::object:
      return "object";
    case StepKind::constant:
      return "constant";
    case StepKind::vector:
      return "xmm" + std::to_string(step.value);
    case StepKind::add:
    case StepKind::add_register:
    case StepKind::shift_right:
      return "sum";
    case StepKind::entry:
    case StepKind::latency:
    case StepKind::self_time:
      return "entry";
    case StepKind::thread:
    case StepKind::thread_pointer:
    case StepKind::add_thread_pointer:
    case StepKind::thread_data:
      return "thread";
    case StepKind::keep:
    case StepKind::length:
    case StepKind::add_kept:
      return "kept";
  }
  return {};
}

// Each argument but the return address as "name kind size[count] steps @offset", @ for memory.
std::string fetches(std::string_view line) {
  static constexpr const char* kKinds[] = {"u", "s", "x", "c", "string", "symbol", "f"};
  std::string text;
  const ProbeSpec spec = parsed(line);
  for (std::size_t i = 1; i < spec.arguments.size(); ++i) {
    const Argument& a = spec.arguments[i];
    text += (text.empty() ? "" : "; ") + a.name + " " + kKinds[static_cast<int>(a.kind)] + std::to_string(a.size);
    if (a.count != 0) text += "[" + std::to_string(a.count) + "]";
    for (const Step& step : a.steps) text += " " + step_text(step);
    if (a.sink == Sink::memory) text += " @" + std::to_string(a.memory_offset);
  }
  return text;
}

TEST(FunctionEvent, TheReturnAddressComesFirst) {
  const ProbeSpec spec = parsed("  do_irq()  # why");
  ASSERT_EQ(spec.arguments.size(), 1u);
  EXPECT_EQ(spec.arguments[0].name, "__parent_ip");
  EXPECT_EQ(step_text(spec.arguments[0].steps.at(0)) + step_text(spec.arguments[0].steps.at(1)), "sp>0");
  EXPECT_EQ(spec.group + "/" + spec.event, "functions/do_irq");
  EXPECT_EQ(spec.place.path, "/bin/prog");
  EXPECT_EQ(spec.definition, "do_irq()");
  EXPECT_EQ(parsed("/lib/x.so:f(int a)").place.path, "/lib/x.so");
  EXPECT_EQ(parsed("take_*(int a)").event, "*");
}

TEST(FunctionEvent, SimpleArguments) {
  EXPECT_EQ(fetches("zfree(x64 p, s32 sz)"), "p x8 di; sz s4 si");
  EXPECT_EQ(fetches("f(int dfd, string path, x32 flags, x16 mode)"),
            "dfd s4 di; path string4 si @0; flags x4 dx; mode x2 cx");
  EXPECT_EQ(fetches("f(char a, short b, long c, size_t d, u8 e, unsigned long g)"),
            "a c1 di; b s2 si; c s8 dx; d u8 cx; e u1 r8; g u8 r9");
  EXPECT_EQ(fetches("f(unsigned char a, unsigned int b, char *c, void **d, symbol e)"),
            "a c1 di; b u4 si; c x8 dx; d x8 cx; e symbol8 r8");
  EXPECT_EQ(fetches("f(NULL, NULL, NULL, NULL, NULL, NULL, int g, string h)"), "g s4 sp >8; h string4 sp >16 @0");
}

TEST(FunctionEvent, IntegersAsCSpellsThem) {
  EXPECT_EQ(fetches("f(unsigned long long a, long long int b, long unsigned int c, short int d, unsigned e, signed g)"),
            "a u8 di; b s8 si; c u8 dx; d s2 cx; e u4 r8; g s4 r9");
  EXPECT_EQ(fetches("f(unsigned short int a, signed char b, bool c, uint32_t d, int16_t e, ssize_t g)"),
            "a u2 di; b c1 si; c u1 dx; d u4 cx; e s2 r8; g s8 r9");
  EXPECT_EQ(fetches("f(const char *a, struct S *b, const union U **c, unsigned x16 d, long e[1])"),
            "a x8 di; b x8 si; c x8 dx; d x2 cx; e s8 r8 @8");
  EXPECT_EQ(parsed("f(const struct S  * p)").arguments[1].declared, "const struct S *");
  EXPECT_EQ(parsed("f(long unsigned  int n)").arguments[1].declared, "long unsigned int");
  EXPECT_EQ(error("f(short long a)"), "2: Unknown type is specified");
  EXPECT_EQ(error("f(unsigned signed a)"), "2: Unknown type is specified");
  EXPECT_EQ(error("f(long long long a)"), "2: Unknown type is specified");
  EXPECT_EQ(error("f(struct S a)"), "2: Unknown type is specified");
  EXPECT_EQ(error("f(struct *a)"), "9: Expected the name of the struct");
  EXPECT_EQ(error("f(long int)"), "10: Expected the name of the argument");
}

TEST(FunctionEvent, IndexesAndOffsets) {
  EXPECT_EQ(fetches("do_irq(symbol ip[16] | x64[6] stack[16])"), "ip symbol8 di @128; stack x8[6] di @128");
  EXPECT_EQ(fetches("ip_rcv(x64 skb | int skb[32], x64 dev)"), "skb x8 di; skb s4 di @128; dev x8 si");
  EXPECT_EQ(fetches("f(x64 a+4[2])"), "a x8 di @20");
  EXPECT_EQ(fetches("f(x64 a+4+0x10[0])"), "a x8 di @20");
  EXPECT_EQ(fetches("f(NULL, x8[6] perm+558)"), "perm x1[6] si @558");
  EXPECT_EQ(fetches("f(double a[1] | float[2] b+8)"), "a f8 di @8; b f4[2] di @8");
  EXPECT_EQ(fetches("f(char[64] name | string name+8)"), "name c1[64] di @0; name string4 di @8");
}

// System V ABI, 3.2.3.
TEST(FunctionEvent, FloatingPointArgumentsAreCountedByThemselves) {
  EXPECT_EQ(fetches("f(double a, int b, float c, string d, double e)"),
            "a f8 xmm0; b s4 di; c f4 xmm1; d string4 si @0; e f8 xmm2");
  EXPECT_EQ(fetches("f(double a | float b, int c)"), "a f8 xmm0; b f4 xmm0; c s4 di");
  EXPECT_EQ(fetches("f(double a, double b, double c, double d, double e, double f, double g, double h, float i, int j, "
                    "double k[1], double l)"),
            "a f8 xmm0; b f8 xmm1; c f8 xmm2; d f8 xmm3; e f8 xmm4; f f8 xmm5; g f8 xmm6; h f8 xmm7; i f4 sp >8; "
            "j s4 di; k f8 si @8; l f8 sp >16");
  EXPECT_EQ(fetches("f(NULL, NULL, NULL, NULL, NULL, NULL, float a, int b, int c)"),
            "a f4 xmm0; b s4 sp >8; c s4 sp >16");
}

TEST(FunctionEvent, Chains) {
  EXPECT_EQ(fetches("vfs_read(symbol read+40[0]+16)"), "read symbol8 di >40 @16");
  EXPECT_EQ(fetches("f(int a[1][2])"), "a s4 di >4 @8");
  EXPECT_EQ(fetches("f(x64 a+8[0]+16[1]+4)"), "a x8 di >8 >24 @4");
  EXPECT_EQ(fetches("f(x8[6] a+40[0]+16)"), "a x1[6] di >40 @16");
  EXPECT_EQ(fetches("f(string a+16[0] | string b+40[0]+16 | string c[2])"),
            "a string4 di >16 @0; b string4 di >40 @16; c string4 di >16 @0");
}

TEST(FunctionEvent, Addresses) {
  const ProbeSpec spec = parsed("do_irq(int forks=0x601040, symbol regs[16], u8 0x10 | string $text)");
  EXPECT_EQ(fetches("do_irq(int forks=0x601040, symbol regs[16])"), "forks s4 file @0; regs symbol8 di @128");
  EXPECT_EQ(spec.arguments[1].address, 0x601040u);
  EXPECT_EQ(spec.arguments[3].name, "0x10");
  EXPECT_EQ(spec.arguments[4].symbol, "text");
  EXPECT_EQ(spec.arguments[4].name, "text");
  EXPECT_EQ(fetches("f(int forks=$total | symbol regs[1])"), "forks s4 file @0; regs symbol8 di @8");
}

TEST(FunctionEvent, WhatIsWrongAndWhere) {
  EXPECT_EQ(error("f(x64)"), "5: Expected the name of the argument");
  EXPECT_EQ(error("f(x64 a"), "7: Expected ',', '|' or ')'");
  EXPECT_EQ(error("f(x64 a b)"), "8: Expected ',', '|' or ')'");
  EXPECT_EQ(error("f(x64 a,)"), "8: Unknown type is specified");
  EXPECT_EQ(error("f(x86 a)"), "2: Unknown type is specified");
  EXPECT_EQ(error("f(void a)"), "2: Unknown type is specified");
  EXPECT_EQ(error("f(b3@1/8 a)"), "2: Unknown type is specified");
  EXPECT_EQ(error("f(x64[0] a)"), "6: Invalid array size");
  EXPECT_EQ(error("f(x64[65] a)"), "6: Array number is too big");
  EXPECT_EQ(error("f(string[2] a)"), "8: A string is an array already");
  EXPECT_EQ(error("f(x64 a[1)"), "9: Expected ']'");
  EXPECT_EQ(error("f(x64 a[-1])"), "8: Expected a number");
  EXPECT_EQ(error("f(x64 a+4)"), "2: An offset without an index reads nothing");
  EXPECT_EQ(error("f(x64 a[0x7fffffff])"), "7: The offset is too large");
  EXPECT_EQ(error("f(long double a)"), "2: A long double is an x87 number of 80 bits, which no type prints");
  EXPECT_EQ(error("f(x64 a | double b)"), "10: An argument is a floating point number or none");
  EXPECT_EQ(error("f(NULL | float b)"), "9: An argument is a floating point number or none");
  EXPECT_EQ(error("f(int a=7)"), "8: Invalid memory address");
  EXPECT_EQ(error("f(int a) b"), "9: Nothing may follow the closing brace");
  EXPECT_EQ(error("f+4(int a)"), "0: A function event needs the name of a function");
  EXPECT_EQ(error("/bin/prog:0x10(int a)"), "10: A function event needs the name of a function");
  std::string deep = "f(x64 a";
  for (int i = 0; i < 14; ++i) deep += "[0]";
  EXPECT_EQ(error(deep + ")"), "46: Dereference is too much nested");
  std::string wide = "f(";
  for (int i = 0; i < 7; ++i) wide += "x64[60] a | ";
  EXPECT_EQ(error(wide + "x8 b)"), "74: Event too big (too many fields?)");
}

TEST(FunctionEvent, LinesThatAreOne) {
  for (const char* line : {"f()", " zfree(x64 p)", "/bin/a:f(int b)", "p(int a)", "ns::f(int a)", "zfree \t(x64 p)"})
    EXPECT_TRUE(is_function_event(line)) << line;
  for (const char* line :
       {"p:e /b/x:f(int)", "p:f(int)", "r10:g/e /b/x:f(1)", "-:f()", "f # ()", "(int)", "p /b/x:1", "p (int a)"})
    EXPECT_FALSE(is_function_event(line)) << line;
}

TEST(FunctionEvent, InASetOfDefinitions) {
  DefinitionSet set(options());
  ASSERT_TRUE(set.write("# two\nf(x64 p)\np:e /bin/prog:f\n g(NULL , int n) # n\n"));
  EXPECT_EQ(set.listing(), "/bin/prog:f(x64 p)\np:uprobes/e /bin/prog:f\n/bin/prog:g(NULL , int n)\n");
  EXPECT_FALSE(set.add("f(x32 p)")) << "another type";
  EXPECT_TRUE(set.add("-:functions/f"));
  EXPECT_EQ(set.size(), 2u);
  DefinitionSet strict({.strict = true, .file_check = any_file});
  const Status refused = strict.add("/bin/prog:f(x64 p)");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text, "A definition starts with 'p' or 'r'");
}

TEST(FunctionEvent, RecordAndFormat) {
  const auto program = program::compile(
      parsed("do_irq(symbol ip[16] | x64[6] stack[16], unsigned int n | char[4] c | string s | u8 b)"));
  ASSERT_TRUE(program);
  EXPECT_TRUE(program::verify(*program));
  const auto fields = program::format_fields(program->layout);
  std::string text;
  for (const auto& field : fields)
    text += field.declaration + " " + std::to_string(field.offset) + " " + std::to_string(field.size) + "\n";
  EXPECT_EQ(text,
            "unsigned long __parent_ip 8 8\nunsigned long __ip 16 8\nsymbol ip 24 8\nx64 stack[6] 32 48\n"
            "unsigned int n 80 4\nchar c[4] 84 4\n__data_loc char[] s 88 4\nu8 b 92 1\n");
  EXPECT_EQ(
      program::print_format(program->layout),
      "\"%ps->%ps(ip=%pS, stack=%Lx,%Lx,%Lx,%Lx,%Lx,%Lx, n=%u, c=%s, s=%s, b=%u)\", REC->__parent_ip, REC->__ip, "
      "REC->ip, REC->stack[0], REC->stack[1], REC->stack[2], REC->stack[3], REC->stack[4], REC->stack[5], REC->n, "
      "REC->c, __get_str(s), REC->b");
}

}  // namespace
}  // namespace uprobe::spec
