// SPDX-License-Identifier: MIT
// The default dialect's additions to the kernel's names: parts of registers, data by symbol, names left to the symbol. The
// strict dialect has none of them.
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/program/compile.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/listing.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"

namespace uprobe::spec {
namespace {

FileState any_file(const std::string& path) { return {.device = 1, .inode = std::hash<std::string>{}(path) | 1}; }

Result<ProbeSpec> parse(std::string_view line, bool strict = false) {
  return parse_definition(line, {.strict = strict, .file_check = any_file});
}

ProbeSpec parsed(std::string_view line) {
  auto spec = parse(line);
  EXPECT_TRUE(spec) << line << ": " << (spec ? "" : spec.error().text);
  return spec ? spec.take() : ProbeSpec{};
}

// "col: text" of the error.
std::string error(std::string_view line, bool strict = false) {
  const auto spec = parse(line, strict);
  return spec ? "accepted" : std::to_string(spec.error().column) + ": " + spec.error().text;
}

TEST(Extensions, PartsOfRegistersHaveTheirWidth) {
  using shared::Reg;
  const struct {
    const char* name;
    Reg reg;
    int bytes;
  } cases[] = {{"%eax", Reg::ax, 4}, {"%ebx", Reg::bx, 4},   {"%ecx", Reg::cx, 4},      {"%edx", Reg::dx, 4},
               {"%esi", Reg::si, 4}, {"%edi", Reg::di, 4},   {"%ebp", Reg::bp, 4},      {"%esp", Reg::sp, 4},
               {"%r8d", Reg::r8, 4}, {"%r15d", Reg::r15, 4}, {"%r8w", Reg::r8, 2},      {"%r10w", Reg::r10, 2},
               {"%r9b", Reg::r9, 1}, {"%r12l", Reg::r12, 1}, {"%al", Reg::ax, 1},       {"%bl", Reg::bx, 1},
               {"%cl", Reg::cx, 1},  {"%dl", Reg::dx, 1},    {"%sil", Reg::si, 1},      {"%dil", Reg::di, 1},
               {"%bpl", Reg::bp, 1}, {"%spl", Reg::sp, 1},   {"%rdi", Reg::di, 8},      {"%di", Reg::di, 8},
               {"%ax", Reg::ax, 8},  {"%r8", Reg::r8, 8},    {"%eflags", Reg::flags, 4}};
  for (const auto& one : cases) {
    const ProbeSpec spec = parsed("p /b/x:f " + std::string(one.name));
    ASSERT_EQ(spec.arguments.size(), 1u) << one.name;
    EXPECT_EQ(spec.arguments[0].steps.at(0).reg, one.reg) << one.name;
    EXPECT_EQ(spec.arguments[0].size, one.bytes) << one.name;
    EXPECT_EQ(spec.arguments[0].kind, Kind::hex) << one.name;
  }
  EXPECT_EQ(parsed("p /b/x:f %edi:s16").arguments[0].size, 2);
  EXPECT_EQ(parsed("p /b/x:f %edi:b3@4/32").arguments[0].bit_width, 3);
}

TEST(Extensions, VectorRegisters) {
  const ProbeSpec spec =
      parsed("r /b/x:f %xmm0 %ymm15 %xmm7:f64 %ymm1:u8[32] %xmm9:s16 %xmm2:b3@4/8[2] entry(%xmm3):f32");
  ASSERT_EQ(spec.arguments.size(), 7u);
  const struct {
    std::uint64_t number;
    std::uint32_t count, size;
  } expected[] = {{0, 2, 8}, {15, 4, 8}, {7, 0, 8}, {1, 32, 1}, {9, 0, 2}, {2, 2, 1}};
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const Argument& argument = spec.arguments[i];
    EXPECT_EQ(argument.steps.at(0).kind, StepKind::vector) << i;
    EXPECT_EQ(argument.steps.at(0).value, expected[i].number) << i;
    EXPECT_EQ(argument.count, expected[i].count) << i;
    EXPECT_EQ(argument.size, expected[i].size) << i;
    EXPECT_EQ(argument.sink, Sink::value) << i;
  }
  EXPECT_EQ(spec.arguments[6].entry->steps.at(0).kind, StepKind::vector);
  EXPECT_EQ(spec.arguments[6].entry->size, 4);
  EXPECT_EQ(listing(parsed("p:g/e /b/x:0x1 %xmm0 a=%ymm3:x8[32]")),
            "p:g/e /b/x:0x0000000000000001 arg1=%xmm0 a=%ymm3:x8[32]");
}

TEST(Extensions, WhatVectorRegistersAreNot) {
  EXPECT_EQ(error("p /b/x:f %xmm16"), "9: Invalid register name");
  EXPECT_EQ(error("p /b/x:f %zmm0"), "9: Invalid register name");
  EXPECT_EQ(error("p /b/x:f %xmm01"), "9: Invalid register name");
  EXPECT_EQ(error("p /b/x:f %xmm"), "9: Invalid register name");
  EXPECT_EQ(error("p /b/x:f %XMM0"), "9: Invalid register name");
  EXPECT_EQ(error("p /b/x:f %xmm0:x64[3]"), "15: The vector register has not so many bytes");
  EXPECT_EQ(error("p /b/x:f %ymm0:u8[33]"), "15: The vector register has not so many bytes");
  EXPECT_EQ(error("p /b/x:f %xmm0:string"), "15: String accepts only memory argument");
  EXPECT_EQ(error("p /b/x:f %xmm0:string[2]"), "15: String accepts only memory argument");
  EXPECT_EQ(error("p /b/x:f +8(%xmm0)"), "12: A vector register is no address");
  EXPECT_EQ(error("r /b/x:f +8(entry(%xmm0))"), "12: A vector register is no address");
  EXPECT_EQ(parsed("r /b/x:f entry(%xmm0)").arguments[0].count, 0u) << "one number is noted";
  EXPECT_EQ(error("p /b/x:0x1 %xmm0", true), "11: Invalid register name");
}

// The System V ABI returns them in xmm0; the kernel has no such types.
TEST(Extensions, FloatingPointReturnValues) {
  for (const char* type : {"f32", "f64"})
    EXPECT_EQ(parsed("r /b/x:f $retval:" + std::string(type)).arguments[0].steps.at(0).kind, StepKind::vector) << type;
  EXPECT_EQ(parsed("r /b/x:f $retval:x64").arguments[0].steps.at(0).kind, StepKind::reg);
  EXPECT_EQ(parsed("r /b/x:f %ax:f64").arguments[0].steps.at(0).kind, StepKind::reg);
  EXPECT_EQ(parsed("r /b/x:f +0($retval):f64").arguments[0].steps.at(0).reg, shared::Reg::ax);
  EXPECT_EQ(error("r /b/x:f $retval:f32[2]"), "17: String accepts only memory argument");
}

// Bodies as they are listed; "col: text" of an error.
std::string read_2009(std::string_view line) {
  const auto spec = parse_definition(line, {.words_2009 = true, .file_check = any_file});
  if (!spec) return std::to_string(spec.error().column) + ": " + spec.error().text;
  std::string bodies;
  for (const Argument& argument : spec->arguments) bodies += argument.name + "=" + argument.body + " ";
  return bodies;
}

TEST(Extensions, TheWordsOf2009) {
  EXPECT_EQ(read_2009("p /b/x:f a0 a5 a6 a7 s0 s12 sa"),
            "arg1=$arg1 arg2=$arg6 arg3=$stack1 arg4=$stack2 arg5=$stack0 arg6=$stack12 arg7=$stack ");
  EXPECT_EQ(read_2009("r /b/x:f rv ra +4(rv):u8 n=-8(+0(ra)):x8[2]"),
            "arg1=$retval arg2=%ip arg3=+4($retval):u8 n=-8(+0(%ip)):x8[2] ");
  EXPECT_EQ(read_2009("p /b/x:f +4(a1):string @x %di $arg2 a0b s sax a1->b"),
            "arg1=+4($arg2):string arg2=@x arg3=%di arg4=$arg2 a0b=a0b s=s sax=sax b=a1->b ");
  EXPECT_EQ(read_2009("r /b/x:f ra) a1):u8"), "arg1=ra) arg2=a1):u8 ");
  EXPECT_EQ(read_2009("p /b/x:f rv"), "9: $retval is not available on probe");
  EXPECT_EQ(read_2009("p /b/x:f +0(ra)"), "12: ra is not available on probe");
  EXPECT_EQ(read_2009("r /b/x:f n=a7"), "11: $arg* can be used only on function entry or exit");
  EXPECT_EQ(read_2009("p /b/x:f+4 a7"), "11: $arg* can be used only on function entry or exit");
  EXPECT_EQ(read_2009("r /b/x:f entry(+8(a2))"), "arg1=entry(+8($arg3)) ");
  EXPECT_EQ(parsed("p /b/x:f a0").arguments[0].variable, "a0") << "in any other style a variable";
}

TEST(Extensions, TheNumberInItsOwnNamespace) {
  const ProbeSpec spec = parsed("p /b/x:f $nspid n=$nspid:x64");
  EXPECT_EQ(spec.arguments.at(0).steps.at(0).kind, StepKind::thread);
  EXPECT_EQ(spec.arguments[0].kind, Kind::unsigned_decimal);
  EXPECT_EQ(spec.arguments[0].size, 4);
  EXPECT_EQ(spec.arguments.at(1).kind, Kind::hex);
  EXPECT_EQ(spec.arguments[1].size, 8);
}

TEST(Extensions, OwnTimesAreOfReturns) {
  const ProbeSpec spec = parsed("r /b/x:f $self n=$self:x32");
  EXPECT_EQ(spec.arguments.at(0).steps.at(0).kind, StepKind::self_time);
  EXPECT_EQ(spec.arguments[0].name, "self");
  EXPECT_EQ(spec.arguments[0].kind, Kind::unsigned_decimal);
  EXPECT_EQ(spec.arguments.at(1).size, 4);
  EXPECT_TRUE(wants_entry(spec));
  EXPECT_EQ(error("p /b/x:f $self"), "9: $self is not available on probe");
  EXPECT_EQ(error("r /b/x:f $selfish"), "9: Invalid $-variable specified");
}

TEST(Extensions, ReturnsLookBackToTheEntry) {
  const ProbeSpec spec = parsed("r /b/x:f $latency $entry_arg3 entry(+8(%si)):u16 +0(entry(%di)):string entry(%edx)");
  ASSERT_EQ(spec.arguments.size(), 5u);
  EXPECT_EQ(spec.arguments[0].steps.at(0).kind, StepKind::latency);
  EXPECT_EQ(spec.arguments[0].kind, Kind::unsigned_decimal);
  EXPECT_EQ(spec.arguments[1].entry->steps.at(0).reg, shared::Reg::dx);
  EXPECT_TRUE(spec.arguments[2].entry->is_memory);
  EXPECT_EQ(spec.arguments[2].entry->size, 2);
  EXPECT_EQ(spec.arguments[3].entry->size, 8) << "an address";
  EXPECT_EQ(spec.arguments[3].sink, Sink::memory);
  EXPECT_EQ(spec.arguments[4].size, 4);
  for (const Argument& argument : spec.arguments) EXPECT_TRUE(wants_entry(argument));
  EXPECT_FALSE(wants_entry(parsed("r /b/x:f $retval")));
  EXPECT_EQ(parsed("r /b/x:f $latency:x64").arguments[0].kind, Kind::hex);
}

TEST(Extensions, TheLatencyHasAName) {
  const auto names = [](const char* arguments) {
    std::string all;
    for (const Argument& argument : parsed("r /b/x:f " + std::string(arguments)).arguments) all += argument.name + " ";
    return all;
  };
  EXPECT_EQ(names("$latency"), "latency ");
  EXPECT_EQ(names("$retval $latency:x32 $latency ns=$latency"), "arg1 latency arg3 ns ");
  EXPECT_EQ(names("latency=%di $latency"), "latency arg2 ");
  EXPECT_EQ(listing(parsed("r:g/e /b/x:0x1 $latency")), "r:g/e /b/x:0x0000000000000001 latency=$latency");
}

// A value of a string's type is the address of the string, and is listed as kernels take it.
TEST(Extensions, StringsOfValuesAreWhatTheyPointTo) {
  const struct {
    const char *value, *memory;
  } same[] = {{"p %di:string", "p +0(%di):string"},
              {"p n=%rsi:ustring", "p n=+0(%rsi):ustring"},
              {"p $arg1:string", "p +0($arg1):string"},
              {"p $stack1:string", "p +0($stack1):string"},
              {"r $retval:string", "r +0($retval):string"},
              {"r $entry_arg2:string", "r +0($entry_arg2):string"},
              {"r entry(+8(%di)):string", "r +0(entry(+8(%di))):string"}};
  for (const auto& [value, memory] : same) {
    const auto at_f = [](std::string text) { return parsed(text.replace(1, 1, " /b/x:f ")); };
    const ProbeSpec a = at_f(value), b = at_f(memory);
    EXPECT_EQ(listing(a), listing(b)) << value;
    ASSERT_EQ(a.arguments[0].steps.size(), b.arguments[0].steps.size()) << value;
    EXPECT_EQ(a.arguments[0].sink, Sink::memory) << value;
    EXPECT_EQ(a.arguments[0].memory_offset, 0u) << value;
    const auto noted = [](const ProbeSpec& spec) {
      return spec.arguments[0].entry ? spec.arguments[0].entry->size : 0;
    };
    EXPECT_EQ(noted(a), noted(b)) << value;
  }
  EXPECT_EQ(read_2009("p /b/x:f a1:string a6:string"), "arg1=+0($arg2):string arg2=+0($stack1):string ");
}

TEST(Extensions, WhatPointsToNoString) {
  for (const char* number : {"$latency", "$nspid", "%xmm0", "entry(%xmm0)"})
    EXPECT_NE(error("r /b/x:f " + std::string(number) + ":string").find("String accepts only memory argument"),
              std::string::npos)
        << number;
  EXPECT_EQ(error("p /b/x:f %di:string[2]"), "13: String accepts only memory argument");
  EXPECT_EQ(error("p /b/x:0x1 n=%di:string", true), "17: String accepts only memory argument");
  const auto strict = parse_definition("p /b/x:0x1 n=%di:string", {.strict = true, .file_check = any_file});
  EXPECT_EQ(strict.error().help, "'+0(%di):string' is the string that it points to");
  EXPECT_EQ(parse_definition("p /b/x:0x1 %di:string[2]", {.strict = true, .file_check = any_file}).error().help, "");
}

TEST(Extensions, WhatTheEntryIsNotAskedFor) {
  EXPECT_EQ(error("p /b/x:f $latency"), "9: $latency is not available on probe");
  EXPECT_EQ(error("p /b/x:f entry(%di)"), "9: Only a return probe looks back to the entry");
  EXPECT_EQ(error("p /b/x:f $entry_arg1"), "9: Only a return probe looks back to the entry");
  for (const char* bad : {"$comm", "\\5", "\\\"x\"", "@data"})
    EXPECT_EQ(error("r /b/x:f entry(" + std::string(bad) + ")"),
              "15: Only registers and memory are fetched at the entry");
  EXPECT_EQ(error("r /b/x:f entry($retval)"), "15: $retval is not available on probe");
  EXPECT_EQ(error("r /b/x:f entry(entry(%di))"), "15: Only a return probe looks back to the entry");
  EXPECT_EQ(error("r /b/x:f entry(%di"), "18: Dereference brace is not closed");
  EXPECT_EQ(error("r /b/x:f entry(%di)8"), "19: Nothing may follow the closing brace");
  EXPECT_EQ(error("r /b/x:f $entry_arg7"), "15: Invalid argument number");
  EXPECT_EQ(error("r /b/x:f $latencies"), "9: Invalid $-variable specified");
}

TEST(Extensions, TheKernelKnowsNoEntry) {
  for (const char* kernel : {"$latency", "$entry_arg1"})
    EXPECT_EQ(error("r /b/x:0x10 " + std::string(kernel), true), "12: Invalid $-variable specified");
  EXPECT_EQ(error("r /b/x:0x10 entry(%di)", true), error("r /b/x:0x10 other(%di)", true));
}

TEST(Extensions, WhatNoPartOfARegisterCanBe) {
  for (const char* bad : {"%eip", "%eds", "%r8q", "%r7d", "%axl", "%ah", "%ecs", "%e", "%l", "%d", "%flagsl", "%ipl"})
    EXPECT_EQ(error("p /b/x:f " + std::string(bad)), "9: Invalid register name") << bad;
  EXPECT_EQ(error("p /b/x:f %edi:u64"), "14: The type is wider than the part of the register");
  EXPECT_EQ(error("p /b/x:f a=%dil:x16"), "16: The type is wider than the part of the register");
  EXPECT_EQ(error("p /b/x:f %edi:string"), "9: A part of a register is no address");
  EXPECT_EQ(error("r /b/x:f entry(%edi):string"), "9: A part of a register is no address");
  EXPECT_EQ(error("p /b/x:f +8(%edi)"), "12: A part of a register is no address");
  EXPECT_EQ(error("p /b/x:f +8(-4(%r8d)):u8"), "15: A part of a register is no address");
}

TEST(Extensions, DataBySymbol) {
  const ProbeSpec spec = parsed("p /b/x:f @count a=@text+0x10:string b=+8(@list-4):u8 @stdout@GLIBC_2.2.5");
  ASSERT_EQ(spec.arguments.size(), 4u);
  const char* symbols[] = {"count", "text", "list", "stdout@GLIBC_2.2.5"};
  const std::uint64_t distances[] = {0, 0x10, static_cast<std::uint64_t>(-4), 0};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spec.arguments[i].symbol, symbols[i]);
    EXPECT_EQ(spec.arguments[i].steps.at(0).kind, StepKind::file_offset);
    EXPECT_EQ(spec.arguments[i].steps.at(0).value, distances[i]);
  }
  EXPECT_EQ(spec.arguments[0].symbol_column, 10);
  EXPECT_EQ(spec.arguments[2].symbol_column, 42);
  EXPECT_EQ(spec.arguments[1].sink, Sink::memory);
  EXPECT_FALSE(program::compile(spec)) << "the symbols have not been looked up";
  for (const char* bad : {"@", "@-4", "@-x"})
    EXPECT_EQ(error("p /b/x:f " + std::string(bad)), "9: Symbol is not available with uprobe") << bad;
  EXPECT_EQ(error("p /b/x:f @sym+0x"), "14: Invalid offset from the symbol");
}

TEST(Extensions, DataOfAnotherObject) {
  const struct {
    const char* fetch;
    const char* object;
    const char* symbol;
    std::uint64_t distance;
    std::uint32_t size;
  } cases[] = {{"@./libx.so:count", "./libx.so", "count", 0, 8},
               {"@./sub:count+8:u32", "./sub", "count", 8, 4},
               {"@libc.so.6:environ@GLIBC_2.2.5:x64", "libc.so.6", "environ@GLIBC_2.2.5", 0, 8},
               {"@prog:count-4:s16", "prog", "count", static_cast<std::uint64_t>(-4), 2},
               {"+0(@./libx.so:text):string", "./libx.so", "text", 0, 4},
               {"+8(-4(@prog:list))", "prog", "list", 0, 8},
               {"@./libx.so:u32:u8[4]", "./libx.so", "u32", 0, 1},
               {"@7/lib-1+2:count:b3@4/8", "7/lib-1+2", "count", 0, 1}};
  for (const auto& one : cases) {
    const ProbeSpec spec = parsed("p /b/x:f a=" + std::string(one.fetch));
    ASSERT_EQ(spec.arguments.size(), 1u) << one.fetch;
    const Argument& argument = spec.arguments[0];
    EXPECT_EQ(argument.object, one.object) << one.fetch;
    EXPECT_EQ(argument.symbol, one.symbol) << one.fetch;
    EXPECT_EQ(argument.steps.at(0).kind, StepKind::object) << one.fetch;
    EXPECT_EQ(argument.steps.at(0).value, one.distance) << one.fetch;
    EXPECT_EQ(argument.size, one.size) << one.fetch;
    EXPECT_FALSE(program::compile(spec)) << "the symbol has not been looked up";
    EXPECT_EQ(argument.body, one.fetch) << "a listing is read again";
  }
  const Argument nested = parsed("p /b/x:f a=+0(@./libx.so:text):string").arguments[0];
  EXPECT_EQ(nested.object_column, 15);
  EXPECT_EQ(nested.symbol_column, 25);
}

TEST(Extensions, ATypeIsNoSymbolOfAnObject) {
  for (const char* fetch : {"@count:u32", "@count:symbol", "@count:b3@4/32", "@count:x8[4]", "+0(@count):u8"}) {
    const Argument argument = parsed("p /b/x:f a=" + std::string(fetch)).arguments.at(0);
    EXPECT_EQ(argument.object, "") << fetch;
    EXPECT_EQ(argument.symbol, "count") << fetch;
  }
  EXPECT_EQ(error("p /b/x:f @count:u33"), "16: Unknown type is specified");
  EXPECT_EQ(error("p /b/x:f @count:u33:u34"), "16: Unknown type is specified");
  EXPECT_EQ(error("p /b/x:f @./x.so:count:u33"), "23: Unknown type is specified");
  EXPECT_EQ(error("p /b/x:f @./x.so:count+0x"), "23: Invalid offset from the symbol");
  EXPECT_EQ(error("p /b/x:f @./x.so:"), "17: Unknown type is specified");
  EXPECT_EQ(error("p /b/x:f @./x.so:-4"), "9: Symbol is not available with uprobe");
  EXPECT_EQ(error("p /b/x:0x1 @./x.so:count", true), "19: Unknown type is specified");
  EXPECT_EQ(error("r /b/x:f entry(@./x.so:count)"), error("r /b/x:f entry(@count)"));
}

TEST(Extensions, AnObjectsPathMayBeLong) {
  const std::string path = "./" + std::string(200, 'x') + "/lib.so";
  EXPECT_EQ(parsed("p /b/x:f a=@" + path + ":count:u32").arguments.at(0).object, path);
  EXPECT_EQ(error("p /b/x:f a=@" + path + ":" + std::string(70, 'c')), "11: Argument expression is too long");
}

TEST(Extensions, NamesThatAreLeftToTheSymbol) {
  EXPECT_EQ(parsed("p: /b/x:zfree").event, "p_x_zfree");
  EXPECT_EQ(parsed("p: /b/x:zfree+4").event, "p_x_zfree_0x4");
  EXPECT_EQ(parsed("r: /b/x:0x10").event, "p_x_0x10");
  EXPECT_EQ(parsed("p:g/* /b/x:zfree").event, "*");
  const auto name = [](std::string symbol, std::uint64_t offset = 0) {
    return symbol_event_name({.symbol = std::move(symbol), .offset = offset});
  };
  EXPECT_EQ(name("zfree", 4), "zfree_0x4");
  EXPECT_EQ(name("zfree", static_cast<std::uint64_t>(-4)), "zfree_minus_0x4");
  EXPECT_EQ(name("operator+"), "operator_");
  EXPECT_EQ(name("9lives"), "_9lives");
  EXPECT_EQ(name(std::string(kMaxEventName, 'a')), std::string(kMaxEventName, 'a'));
  const std::string first = name(std::string(100, 'a') + "C1Ev"), second = name(std::string(100, 'a') + "C2Ev");
  EXPECT_EQ(first.size(), kMaxEventName);
  EXPECT_EQ(first.substr(0, 50), second.substr(0, 50));
  EXPECT_NE(first, second) << "names that differ near their end are two";
  EXPECT_EQ(error("p:g/* /b/x:0x10"), "4: Event name must follow the same rules as C identifiers");
  EXPECT_EQ(error("p:g/a* /b/x:f"), "4: Event name must follow the same rules as C identifiers");
  EXPECT_EQ(error("p:/e /b/x:f"), "2: Group name is not specified");
}

// The demangler numbers unnamed entities: such a '#' begins no comment.
TEST(Extensions, NamesWithANumberSign) {
  const std::string name = "main::{lambda(int)#1}::operator()";
  const ProbeSpec spec = parsed("p:e /b/x:" + name + " %di #1} no");
  EXPECT_EQ(spec.place.symbol, name);
  EXPECT_EQ(spec.arguments.size(), 1u);
  EXPECT_EQ(parsed("p:e /b/x:ns::{unnamed#12}::f+4#2").place.symbol, "ns::{unnamed#12}::f");
  for (const char* line : {"p /b/x:f#1", "p /b/x:f #1", "p /b/x:f#}", "p /b/x:f#a1}", "p /b/x:f # {lambda(int)#1}"})
    EXPECT_EQ(parsed(line).definition, "p /b/x:f") << line;
  EXPECT_EQ(error("p:e /b/x:0x10%return#1}", true), "accepted");
  DefinitionSet set({.file_check = any_file});
  ASSERT_TRUE(set.add("p:e /b/x:" + name + " %di if arg1 == 1"));
  EXPECT_EQ(set.listing(), "p:uprobes/e /b/x:" + name + " arg1=%di\n");
}

TEST(Extensions, WithoutAnObjectNamesAreAsTheKprobeTracerMadeThem) {
  const auto name = [](std::string_view line) {
    auto spec = parse_definition(line, {.default_object = "/b/x", .file_check = any_file});
    return spec ? spec->event : spec.error().text;
  };
  EXPECT_EQ(name("p zfree"), "p_zfree_0");
  EXPECT_EQ(name("r zfree+0 $retval"), "r_zfree_0");
  EXPECT_EQ(name("p: zfree+16"), "p_zfree_16");
  EXPECT_EQ(name("p zfree-0x10"), "p_zfree_minus_16");
  EXPECT_EQ(name("p 0x4245c0"), "p_0x4245c0");
  EXPECT_EQ(name("p:e zfree"), "e");
  EXPECT_EQ(name("r /b/x:zfree"), "p_x_zfree") << "uprobe events are p_ always";
}

TEST(Extensions, SymbolsAreAType) {
  const ProbeSpec spec = parsed("p /b/x:f +8(%di):symbol a=+0(%si):symbol[3]");
  EXPECT_EQ(spec.arguments[0].kind, Kind::symbol);
  EXPECT_EQ(spec.arguments[0].size, 8);
  EXPECT_EQ(spec.arguments[1].count, 3u);
  EXPECT_EQ(parsed("p /b/x:f +8(%di):f32[2] @x:f64 %si:f64").arguments[0].kind, Kind::floating);
  EXPECT_EQ(parsed("p /b/x:f +8(%di):f32[2] @x:f64 %si:f64").arguments[1].size, 8);
  EXPECT_EQ(error("p /b/x:0x10 %di:f64", true), "16: Unknown type is specified");
  EXPECT_EQ(error("p /b/x:f %edi:f64"), "14: The type is wider than the part of the register");
  EXPECT_EQ(error("p /b/x:f %edi:symbol"), "14: The type is wider than the part of the register");
  EXPECT_EQ(error("p /b/x:0x10 %di:symbol", true), "16: Unknown type is specified");
}

TEST(Extensions, NumbersOfSixteenBytes) {
  const ProbeSpec spec = parsed("p /b/x:f +8(%di):u128 a=@x:s128 %xmm1:x128 name:x128");
  const Kind kinds[] = {Kind::unsigned_decimal, Kind::signed_decimal, Kind::hex, Kind::hex};
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    const Argument& argument = spec.arguments[i];
    EXPECT_TRUE(argument.is_wide && argument.size == 8 && argument.count == 2 && argument.kind == kinds[i]) << i;
  }
  const ProbeSpec result = parsed("r /b/x:f $retval:s128");
  ASSERT_TRUE(result.arguments[0].upper);
  EXPECT_EQ(result.arguments[0].upper->steps.at(0).reg, shared::kUpperReturnRegister);
  constexpr const char* kNoMemory =
      "A number of 16 bytes is in memory, in a vector register, in a variable, or returned";
  EXPECT_EQ(error("p /b/x:f %di:u128"), "13: " + std::string(kNoMemory));
  EXPECT_EQ(error("r /b/x:f entry(+0(%di)):u128"), "24: " + std::string(kNoMemory));
  EXPECT_EQ(error("p /b/x:f +0(%di):u128[2]"), "17: There are no arrays of numbers of 16 bytes");
  EXPECT_EQ(error("p /b/x:0x10 +0(%di):u128", true), "20: Unknown type is specified");
}

TEST(Extensions, TheListingOfTheKprobeTracer) {
  EXPECT_EQ(listing_2009(parsed("p /b/x:f+4 %di n=%si:u32 # why"), "f+4"), "p f+4 %di n=%si:u32");
  EXPECT_EQ(listing_2009(parsed("r:g/e /b/x:f $retval"), "f+0"), "r:g/e f+0 $retval");
}

TEST(Extensions, StrictKnowsNone) {
  EXPECT_EQ(error("p: /b/x:0x10", true), "2: Event name is not specified");
  EXPECT_EQ(error("p:g/* /b/x:0x10", true), "4: Event name must follow the same rules as C identifiers");
  EXPECT_EQ(error("p /b/x:0x10 %edi", true), "12: Invalid register name");
  EXPECT_EQ(error("p /b/x:0x10 @count", true), "12: Symbol is not available with uprobe");
  EXPECT_EQ(parse("p /b/x:0x10 %edi", true).error().help, "did you mean '%di:u32'?");
  EXPECT_EQ(parse("p /b/x:0x10 %RDI", true).error().help, "did you mean '%di'?");
}

// A pattern becomes two definitions; the symbol "none" is not found.
Result<std::vector<ProbeSpec>> resolve(ProbeSpec spec) {
  if (spec.place.symbol == "none") return Error{.text = "not there"};
  if (spec.place.symbol.empty()) return std::vector{spec};
  if (spec.place.symbol != "f*") {
    spec.place.found = FoundSymbol{.offset = 0x10 + spec.place.offset};
    return std::vector{spec};
  }
  std::vector<ProbeSpec> found(2, spec);
  found[0].place.found = FoundSymbol{.offset = 0x20}, found[0].event += "1";
  found[1].place.found = FoundSymbol{.offset = 0x10}, found[1].event += "2";
  return found;
}

class Resolved : public testing::Test {
 protected:
  std::string add(std::string_view line) {
    const Status status = set_.add(line);
    return status ? "ok" : status.error().text;
  }
  DefinitionSet set_{{.file_check = any_file}, resolve};
};

TEST_F(Resolved, SymbolsAreListedByTheirOffsets) {
  EXPECT_EQ(add("p:g/e /b/x:f %di"), "ok");
  EXPECT_EQ(set_.listing(), "p:g/e /b/x:0x0000000000000010 arg1=%di\n");
  EXPECT_EQ(add("p:g/e /b/x:0x10 %di"), message::kSameProbe) << "the same place by another name";
  EXPECT_EQ(add("p:g/e /b/x:f+1 %di"), "ok");
  EXPECT_EQ(add("-:g/e /b/x:0x0000000000000011"), "ok");
  EXPECT_EQ(set_.size(), 1u);
}

TEST_F(Resolved, OfAPatternAllOrNone) {
  EXPECT_EQ(add("p:g/e /b/x:f*"), "ok");
  EXPECT_EQ(set_.listing(), "p:g/e1 /b/x:0x0000000000000020\np:g/e2 /b/x:0x0000000000000010\n");
  EXPECT_EQ(add("-:g/e1"), "ok");
  EXPECT_EQ(add("p:g/e /b/x:f*"), message::kSameProbe) << "of e2";
  EXPECT_EQ(set_.listing(), "p:g/e2 /b/x:0x0000000000000010\n");
  EXPECT_EQ(add("p:g/e1 /b/x:0x20"), "ok") << "nothing of it was left";
  EXPECT_EQ(add("p:g/x /b/x:none"), "not there");
  EXPECT_EQ(set_.size(), 2u);
}

TEST(Deletions, OldAutomaticNames) {
  for (const bool strict : {false, true}) {
    DefinitionSet set({.strict = strict, .file_check = any_file});
    ASSERT_TRUE(set.write("p /b/bash:0x4245c0\nr:g/ /b/bash:0x10\np:bash_0x1 /b/x:1\np:p_bash_0x1 /b/x:1"));
    EXPECT_EQ(bool(set.add("-:bash_0x4245c0")), !strict) << "as Linux 3.10 documents it";
    EXPECT_EQ(bool(set.add("-:g/bash_0x10")), !strict);
    EXPECT_TRUE(set.add("-:bash_0x1"));
    EXPECT_EQ(set.probes().back().event, "p_bash_0x1") << "the name as written goes first";
  }
}

TEST(Deletions, OneByOneAreNoWork) {
  constexpr int kMany = 30000;
  DefinitionSet set({.file_check = any_file});
  const auto place = [](int i) {
    char text[32];
    std::snprintf(text, sizeof text, " /f:0x%016x", i);
    return std::string(text);
  };
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(set.add("p:g/e" + place(i)));
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(set.add("-:g/" + place(i)));
  EXPECT_EQ(set.size(), 0u);
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(set.add("p:g" + std::to_string(i) + "/e" + place(1)));
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(set.add("-:g" + std::to_string(i) + "/e"));
  EXPECT_EQ(set.size(), 0u);
  EXPECT_EQ(set.listing(), "");
}

TEST(Write, TellsTheLine) {
  DefinitionSet set({.file_check = any_file});
  EXPECT_TRUE(set.write("p:a /x:1\n\n# no\np:b /x:1\n"));
  EXPECT_EQ(set.last_line(), 4);
  EXPECT_FALSE(set.write("# no\np:c /x:1\np:d\np:e /x:1\n", "object"));
  EXPECT_EQ(set.last_line(), 3);
  EXPECT_EQ(set.size(), 3u);
}

}  // namespace
}  // namespace uprobe::spec
