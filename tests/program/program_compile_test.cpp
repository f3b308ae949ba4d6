// SPDX-License-Identifier: MIT
// Compiled programs: instructions, layout and text pool of each form of argument, and the format file.
#include <gtest/gtest.h>

#include "engine/program/compile.h"
#include "engine/program/format_file.h"
#include "engine/program/verify.h"
#include "engine/spec/parse.h"

namespace uprobe::program {
namespace {

using shared::Insn;
using shared::Op;

spec::ProbeSpec parsed(const std::string& arguments, const char* kind = "r") {
  auto spec = spec::parse_definition(std::string(kind) + ":g/e /b/x:f " + arguments, {.file_check = nullptr});
  EXPECT_TRUE(spec) << arguments << ": " << (spec ? "" : spec.error().text);
  return spec ? spec.take() : spec::ProbeSpec{};
}

EventProgram compiled(const std::string& arguments, const char* kind = "p") {
  auto program = compile(parsed(arguments, kind));
  EXPECT_TRUE(program) << arguments;
  if (!program) return {};
  const auto verified = verify(*program);
  EXPECT_TRUE(verified) << arguments << ": " << verified.error().text;
  return program.take();
}

std::string name_of(Op op) {
  constexpr const char* kNames[] = {
      "end",          "begin",          "register",      "constant",    "file_offset", "dereference", "store_value",
      "store_memory", "store_string",   "store_strings", "store_text",  "store_comm",  "shift",       "load_entry",
      "latency",      "vector",         "add",           "shift_right", "object",      "thread",      "self",
      "add_register", "thread_pointer", "keep",          "add_kept",    "add_pointer", "thread_data"};
  static_assert(std::size(kNames) == shared::kOpCount);
  return kNames[static_cast<std::size_t>(op)];
}

// "op size count @offset immediate; ..." with zeros left out.
std::string text_of(const std::vector<Insn>& insns) {
  std::string text;
  for (const Insn& insn : insns) {
    text += text.empty() ? "" : "; ";
    text += name_of(insn.op);
    if (insn.size != 0) text += " s" + std::to_string(insn.size);
    if (insn.count != 0) text += " n" + std::to_string(insn.count);
    if (insn.offset != 0) text += " @" + std::to_string(insn.offset);
    if (insn.immediate != 0) text += " " + std::to_string(static_cast<std::int64_t>(insn.immediate));
  }
  return text;
}
std::string text_of(const EventProgram& program) { return text_of(program.insns); }

TEST(Compile, TheOwnNumberOfTheThread) {
  EXPECT_EQ(text_of(compiled("$nspid n=$nspid:x64")),
            "begin; thread; store_value s4 @16; begin; thread; store_value s8 @20; end");
}

TEST(Compile, VectorRegistersAreStoredAsTheyAre) {
  const EventProgram program = compiled("%xmm3 %ymm1:u8[32] %xmm0:f64 %di entry(%xmm5):f32", "r");
  EXPECT_EQ(text_of(program.note), "begin; vector s5 n4 @16; end");
  EXPECT_EQ(text_of(program),
            "begin; vector s3 n16 @24; begin; vector s1 n32 @40; begin; vector n8 @72; begin; register s5; "
            "store_value s8 @80; begin; load_entry s4 @16; store_value s4 @88; end");
  EXPECT_EQ(text_of(compiled("%xmm0:b2@1/16[3]")), "begin; vector n6 @16; shift s2 n3 @16 3597; end");
}

TEST(Compile, NumbersOfSixteenBytes) {
  const EventProgram program = compiled("+8(%di):u128 %xmm2:x128 $retval:s128", "r");
  EXPECT_EQ(text_of(program),
            "begin; register s5; store_memory s8 n16 @24 8; begin; vector s2 n16 @40; "
            "begin; register; store_value s8 @56; begin; register s3; store_value s8 @64; end");
  for (const Field& field : program.layout.fields) EXPECT_TRUE(field.is_wide && field.size == 8 && field.count == 2);
  EXPECT_EQ(program.layout.fixed_bytes, 72u);
}

TEST(Compile, AHalfMayBeInMemoryOrInAVectorRegister) {
  spec::ProbeSpec spec = parsed("$retval:s128");
  spec.arguments[0].upper = spec::UpperHalf{
      .steps = {{.kind = spec::StepKind::reg, .reg = shared::Reg::bp}}, .is_memory = true, .memory_offset = 16};
  auto program = compile(spec);
  ASSERT_TRUE(program && verify(*program));
  EXPECT_EQ(text_of(*program), "begin; register; store_value s8 @24; begin; register s6; store_memory n8 @32 16; end");
  spec.arguments[0].upper->steps = {{.kind = spec::StepKind::vector, .value = 4}};
  spec.arguments[0].upper->is_memory = false;
  program = compile(spec);
  ASSERT_TRUE(program && verify(*program));
  EXPECT_EQ(text_of(*program), "begin; register; store_value s8 @24; begin; vector s4 n8 @32; end");
}

// Two programs: the return reads the value that the entry noted.
TEST(Compile, ValuesOfTheEntry) {
  const EventProgram program = compiled("$entry_arg2:u16 entry(+8(%di)):s32 +4(entry(+0(%di))):u8 $latency", "r");
  EXPECT_EQ(text_of(program.note),
            "begin; register s4; store_value s2 @16; begin; register s5; store_memory n4 @18 8; "
            "begin; register s5; store_memory n8 @22; end");
  EXPECT_EQ(text_of(program),
            "begin; load_entry s2 @16; store_value s2 @24; begin; load_entry s4 @18; store_value s4 @26; "
            "begin; load_entry s8 @22; store_memory n1 @30 4; begin; latency; store_value s8 @31; end");
  EXPECT_EQ(program.noted.fixed_bytes, 30U);
  for (const Field& field : program.layout.fields) EXPECT_TRUE(field.of_entry);
  EXPECT_EQ(program.layout.fields[3].kind, Kind::unsigned_decimal);
  EXPECT_FALSE(compiled("$retval", "r").layout.fields[0].of_entry);
  EXPECT_EQ(text_of(compiled("$latency:x32", "r").note), "end") << "when it was is noted all the same";
  std::string seven;
  for (int i = 0; i < 7; ++i) seven += " a" + std::to_string(i) + "=$entry_arg1";
  EXPECT_FALSE(compile(parsed(seven)));
}

struct Case {
  const char* argument;
  const char* program;
};

TEST(Compile, EachFormOfArgument) {
  const Case cases[] = {
      {"%di", "begin; register s5; store_value s8 @16; end"},
      {"%di:s16", "begin; register s5; store_value s2 @16; end"},
      {"$stack", "begin; register s7; store_value s8 @16; end"},
      {"$stack3:x8", "begin; register s7; dereference 24; store_value s1 @16; end"},
      {"\\-7:s32", "begin; constant -7; store_value s4 @16; end"},
      {"+8(%si):u16", "begin; register s4; store_memory n2 @16 8; end"},
      {"-8(%si):u16[3]", "begin; register s4; store_memory s2 n6 @16 -8; end"},
      {"+1(+2(+3(%ax)))", "begin; register; dereference 3; dereference 2; store_memory n8 @16 1; end"},
      {"@0x1000:char", "begin; constant 4096; store_memory n1 @16; end"},
      {"@+-4", "begin; file_offset -4; store_memory n8 @16; end"},
      {"+4(@0x1000)", "begin; constant 4096; dereference; store_memory n8 @16 4; end"},
      {"+0(%di):string", "begin; register s5; store_string @16; end"},
      {"+u4(%di):ustring", "begin; register s5; store_string @16 4; end"},
      {"+16(%di):string[3]", "begin; register s5; store_strings n3 @16 16; end"},
      {"\\4096:string", "begin; constant 4096; store_string @16; end"},
      {"\\4096:string[2]", "begin; constant; store_strings n2 @16; end"},
      {"\\\"abc\"", "begin; store_text n4 @16; end"},
      {"$comm", "begin; store_comm @16; end"},
      {"%di:b3@7/32", "begin; register s5; store_value s4 @16; shift s4 n1 @16 7446; end"},
      {"+0(%di):b4@0/8[2]", "begin; register s5; store_memory s1 n2 @16; shift s1 n2 @16 1028; end"},
  };
  for (const Case& c : cases) EXPECT_EQ(text_of(compiled(c.argument)), c.program) << c.argument;
  static_assert((7446 & 0xff) == 32 - 3 - 7 && 7446 >> 8 == 32 - 3, "bits 7..9 of 32");
  static_assert((1028 & 0xff) == 8 - 4 - 0 && 1028 >> 8 == 8 - 4, "the low half of a byte");
}

TEST(Compile, FieldsArePackedInOrder) {
  const EventProgram program = compiled("%di:u8 b=+0(%si):string c=%dx +0(%cx):x16[3] $comm d=%r8:b1@0/8");
  const std::uint32_t offsets[] = {16, 17, 21, 29, 35, 39};
  ASSERT_EQ(program.layout.fields.size(), std::size(offsets));
  for (std::size_t i = 0; i < std::size(offsets); ++i) EXPECT_EQ(program.layout.fields[i].offset, offsets[i]) << i;
  EXPECT_EQ(program.layout.fixed_bytes, 40u);
  EXPECT_EQ(program.layout.group, "g");
  EXPECT_EQ(program.layout.fields[0].name, "arg1");
}

TEST(Compile, ReturnRecordsHaveALargerHead) {
  const EventProgram program = compiled("$retval:u8", "r");
  EXPECT_TRUE(program.layout.is_return);
  EXPECT_EQ(program.layout.fields.at(0).offset, 24u);
  EXPECT_EQ(program.layout.fixed_bytes, 25u);
  EXPECT_EQ(text_of(program), "begin; register; store_value s1 @24; end");
}

TEST(Compile, TextsShareOnePool) {
  const EventProgram program = compiled("\\\"ab\" x=\\\"\" y=\\\"c\"");
  EXPECT_EQ(program.text, std::string("ab\0\0c\0", 6));
  EXPECT_EQ(text_of(program),
            "begin; store_text s2 n3 @16; begin; store_text s1 n1 @20 3; begin; store_text n2 @24 4; end");
}

TEST(Compile, StringsKnowHowManyFollow) {
  EXPECT_EQ(text_of(compiled("+0(%di):string %si:u8 +0(%si):string[3] $comm")),
            "begin; register s5; store_string s4 @16; begin; register s4; store_value s1 @20; "
            "begin; register s4; store_strings s1 n3 @21; begin; store_comm @33; end");
  std::string arrays;
  for (int i = 0; i < 5; ++i) arrays += " +0(%di):string[64]";
  EXPECT_EQ(compiled(arrays).insns.at(2).size, 255) << "as many as there is room for";
}

TEST(Compile, AnEventWithoutArguments) {
  EXPECT_EQ(text_of(compiled("")), "end");
  EXPECT_EQ(compiled("").layout.fixed_bytes, 16u);
}

TEST(Compile, SpecsMadeByHandHaveTheLimitsToo) {
  spec::ProbeSpec spec = parsed("");
  spec.arguments.resize(129);
  EXPECT_EQ(compile(spec).error().code, Code::limit);
  spec.arguments.assign(128, spec::Argument{.name = "a", .size = 8, .count = 64});
  EXPECT_EQ(compile(spec).error().code, Code::limit);
  spec.arguments.assign(1, spec::Argument{.name = "a", .size = 8, .count = 65});
  EXPECT_EQ(compile(spec).error().code, Code::limit);
  spec.arguments.assign(
      1, spec::Argument{.name = "a", .sink = spec::Sink::text, .text = std::string(4096, 'x'), .size = 4});
  EXPECT_EQ(compile(spec).error().code, Code::limit);
  spec.arguments.assign(1,
                        spec::Argument{.name = "a", .size = 1, .is_bitfield = true, .bit_width = 7, .bit_offset = 2});
  EXPECT_EQ(compile(spec).error().code, Code::refused);
}

TEST(FormatFile, IsTheKernelsToTheByte) {
  EXPECT_EQ(
      format_file(compiled("a=%di:s32 +0(%si):string b=+0(%dx):char[2]").layout, 1234),
      "name: e\n"
      "ID: 1234\n"
      "format:\n"
      "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
      "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
      "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
      "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
      "\n"
      "\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n"
      "\tfield:s32 a;\toffset:16;\tsize:4;\tsigned:1;\n"
      "\tfield:__data_loc char[] arg2;\toffset:20;\tsize:4;\tsigned:1;\n"
      "\tfield:u8 b[];\toffset:24;\tsize:2;\tsigned:0;\n"
      "\n"
      "print fmt: \"(%lx) a=%d arg2=\\\"%s\\\" b={'%c','%c'}\", REC->__probe_ip, REC->a, __get_str(arg2), REC->b[0], "
      "REC->b[1]\n");
}

}  // namespace
}  // namespace uprobe::program
