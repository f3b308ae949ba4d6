// SPDX-License-Identifier: MIT
// The operands of markers as fetch arguments.
#include <gtest/gtest.h>

#include "engine/marker/arguments.h"

namespace uprobe::marker {
namespace {

using spec::Kind;

// The fetch of argument 1 of a note, as a listing shows it, or the reason why there is none.
std::string fetched(const std::string& note, const std::string& written = "$arg1") {
  const auto noted = noted_arguments(note);
  const auto argument = fetch_argument(with_name(written, 1), noted, std::nullopt);
  return argument ? argument->body : argument.error().text;
}

std::string problem(const std::string& why) { return "$arg1 cannot be fetched: " + why; }

TEST(MarkerArguments, Registers) {
  EXPECT_EQ(fetched("8@%rdi"), "%di:u64");
  EXPECT_EQ(fetched("-8@%r12"), "%r12:s64");
  EXPECT_EQ(fetched("4@%edi"), "%di:u32");
  EXPECT_EQ(fetched("-4@%r9d"), "%r9:s32");
  EXPECT_EQ(fetched("2@%ax"), "%ax:u16");
  EXPECT_EQ(fetched("-2@%r10w"), "%r10:s16");
  EXPECT_EQ(fetched("1@%dil"), "%di:u8");
  EXPECT_EQ(fetched("-1@%bl"), "%bx:s8");
  EXPECT_EQ(fetched("1@%r11b"), "%r11:u8");
  EXPECT_EQ(fetched("1@%ah"), "$arg1:u8");
  EXPECT_EQ(fetched("4@%rax"), "%ax:u32");
  EXPECT_EQ(fetched("8@%eax"), problem("its register has only 4 bytes"));
  EXPECT_EQ(fetched("8@%rip"), problem("its register is not known"));
  EXPECT_EQ(fetched("8@%"), problem("its register is not known"));
  EXPECT_EQ(fetched("8@%cs"), problem("its register is not known"));
}

TEST(MarkerArguments, MemoryAndConstants) {
  EXPECT_EQ(fetched("-4@-16(%rbp)"), "-16(%bp):s32");
  EXPECT_EQ(fetched("8@(%rax)"), "+0(%ax):u64");
  EXPECT_EQ(fetched("8@0x10(%rsp)"), "+16(%sp):u64");
  EXPECT_EQ(fetched("8@8(%rax,%rbx,4)"), "$arg1:u64");
  EXPECT_EQ(fetched("8@(,%rbx,8)"), "$arg1:u64");
  EXPECT_EQ(fetched("8@count(%rip)"), "@count:u64");
  EXPECT_EQ(fetched("4@16+count(%rip)"), "@count+16:u32");
  EXPECT_EQ(fetched("4@count-8(%rip)"), "@count-8:u32");
  EXPECT_EQ(fetched("4@count+4"), "@count+4:u32");
  EXPECT_EQ(fetched("4@4210688"), "@0x404000:u32");
  EXPECT_EQ(fetched("8@$count"), "$arg1:u64");
  EXPECT_EQ(fetched("-4@$-1"), "\\-1:s32");
  EXPECT_EQ(fetched("4@$0x10"), "\\16:u32");
}

TEST(MarkerArguments, Floats) {
  EXPECT_EQ(fetched("8f@%xmm3"), "%xmm3:f64");
  EXPECT_EQ(fetched("4f@-8(%rbp)"), "-8(%bp):f32");
  EXPECT_EQ(fetched("8f@%rax"), "%ax:f64");
  EXPECT_EQ(fetched("4f@%r8d"), "%r8:f32");
  EXPECT_EQ(fetched("8f@%eax"), problem("its register has only 4 bytes"));
  EXPECT_EQ(fetched("8f@$1"), problem("a floating point number is in no such operand"));
  EXPECT_EQ(fetched("2f@%xmm0"), problem("its note does not say how many bytes it has"));
  EXPECT_EQ(fetched("8f@%xmm16"), problem("its register is not known"));
}

TEST(MarkerArguments, WhatIsNotTaken) {
  EXPECT_EQ(fetched("8@%fs:0x28"), problem("it is in a segment of the thread"));
  EXPECT_EQ(fetched("8@f@GOTPCREL(%rip)"), problem("it is found through a table of the linker"));
  EXPECT_EQ(fetched("8@16(%rip)"), problem("it is given by its distance from the instruction"));
  EXPECT_EQ(fetched("8@(%rax,%rsp,8)"), problem("its index is no operand of this machine"));
  EXPECT_EQ(fetched("8@(%rax,%rbx,3)"), problem("its index is no operand of this machine"));
  EXPECT_EQ(fetched("8@(%rax,%rbx,8,8)"), problem("it is no operand of this machine"));
  EXPECT_EQ(fetched("8@(%rax"), problem("it is no operand of this machine"));
  EXPECT_EQ(fetched("8@(%eax)"), problem("its register is not known"));
  EXPECT_EQ(fetched("8@()"), problem("its register is not known"));
  EXPECT_EQ(fetched("8@"), problem("it has no operand"));
  EXPECT_EQ(fetched("8@$"), problem("it is no operand of this machine"));
  EXPECT_EQ(fetched("8@a+b(%rip)"), problem("it is no operand of this machine"));
  EXPECT_EQ(fetched("8@99999999999999999999(%rax)"), problem("it is no operand of this machine"));
  EXPECT_EQ(fetched("3@%eax"), problem("its note does not say how many bytes it has"));
  EXPECT_EQ(fetched("%eax"), problem("its note does not say how many bytes it has"));
  EXPECT_EQ(fetched(""), "the marker has no arguments");
  EXPECT_EQ(fetched("8@%rax", "$arg2"), "the marker has one argument");
  EXPECT_EQ(fetched("8@%rax", "$arg0:u8"), "Invalid argument number");
}

TEST(MarkerArguments, TypesOfTheUser) {
  EXPECT_EQ(fetched("8@%rdi", "name=$arg1:string"), "+0(%di):string");
  EXPECT_EQ(fetched("8@8(%rsp)", "$arg1:string"), "+0(+8(%sp)):string");
  EXPECT_EQ(fetched("8@8(%rsp)", "+4($arg1):u32"), "+4(+8(%sp)):u32");
  EXPECT_EQ(fetched("8@%rdi", "+0(+8($arg1)):string"), "+0(+8(%di)):string");
  EXPECT_EQ(fetched("8@$text", "$arg1:string"), "@text:string");
  EXPECT_EQ(fetched("8@%rdi", "$arg1:x8"), "%di:x8");
  EXPECT_EQ(fetched("-4@%edi", "$arg1:x64"), "$arg1:x64");
  EXPECT_EQ(fetched("8@%rdi", "$arg1:b4@4/32"), "%di:b4@4/32");
  EXPECT_EQ(fetched("4@%edi", "$arg1:b4@4/64"), problem("it has only 4 bytes"));
  EXPECT_EQ(fetched("4@%edi", "$arg1:string"), problem("it is no address: it has 4 bytes"));
  EXPECT_EQ(fetched("4@%edi", "+0($arg1):u8"), problem("it is no address: it has 4 bytes"));
  EXPECT_EQ(fetched("8@%rdi", "$arg1:u8[4]"), problem("an array is in memory: +0($arg1):u8[4]"));
  EXPECT_EQ(fetched("4f@%xmm1", "$arg1:f64"), problem("it has only 4 bytes"));
  EXPECT_EQ(fetched("8@%rdi", "%si:u8"), "%si:u8");
}

TEST(MarkerArguments, TablesWithNames) {
  struct Case {
    const char *operand, *symbol;
    std::vector<spec::Step> indexes;
    std::uint64_t distance;
  };
  const auto index = [](shared::Reg reg, std::uint64_t scale) {
    return spec::Step{.kind = spec::StepKind::add_register, .reg = reg, .value = scale};
  };
  const Case cases[] = {{"8@table(,%rax,8)", "table", {index(shared::Reg::ax, 3)}, 0},
                        {"8@8+table(%rbx)", "table", {index(shared::Reg::bx, 0)}, 8},
                        {"8@table.1-4(%rbx,%rcx,2)",
                         "table.1",
                         {index(shared::Reg::bx, 0), index(shared::Reg::cx, 1)},
                         0 - std::uint64_t{4}}};
  for (const Case& one : cases) {
    const auto argument = fetch_argument("a=$arg1", noted_arguments(one.operand), {});
    ASSERT_TRUE(argument) << one.operand;
    EXPECT_EQ(argument->symbol, one.symbol);
    EXPECT_EQ(argument->body, "$arg1:u64");
    ASSERT_EQ(argument->steps.size(), 1 + one.indexes.size());
    EXPECT_EQ(argument->steps[0].kind, spec::StepKind::file_offset);
    EXPECT_EQ(argument->steps[0].value + argument->memory_offset, one.distance);
    for (std::size_t i = 0; i < one.indexes.size(); ++i) {
      EXPECT_EQ(argument->steps[i + 1].kind, one.indexes[i].kind);
      EXPECT_EQ(argument->steps[i + 1].reg, one.indexes[i].reg);
      EXPECT_EQ(argument->steps[i + 1].value, one.indexes[i].value);
    }
  }
}

TEST(MarkerArguments, AWiderTypeExtends) {
  const auto noted = noted_arguments("-4@-8(%rbp) 4@%edi");
  const auto with_sign = fetch_argument("a=$arg1", noted, NumberType{Kind::signed_decimal, 8});
  const auto plain = fetch_argument("b=$arg2", noted, NumberType{Kind::signed_decimal, 8});
  ASSERT_TRUE(with_sign && plain);
  EXPECT_EQ(with_sign->size, 8);
  EXPECT_EQ(with_sign->source_bytes, 4);
  EXPECT_TRUE(with_sign->extends_sign);
  EXPECT_EQ(plain->source_bytes, 4);
  EXPECT_FALSE(plain->extends_sign);
}

std::string common(const std::string& a, const std::string& b) {
  const auto type = common_type(noted_arguments(a + "@%rax")[0].type, noted_arguments(b + "@%rax")[0].type);
  return type ? name_of(*type) : "none";
}

TEST(MarkerArguments, OneTypeForAllPlaces) {
  EXPECT_EQ(common("4", "4"), "u32");
  EXPECT_EQ(common("-4", "-8"), "s64");
  EXPECT_EQ(common("1", "8"), "u64");
  EXPECT_EQ(common("4", "-4"), "s64");
  EXPECT_EQ(common("2", "-4"), "s32");
  EXPECT_EQ(common("-1", "1"), "s16");
  EXPECT_EQ(common("8", "-4"), "x64");
  EXPECT_EQ(common("-8", "8"), "x64");
}

TEST(MarkerArguments, AtMostTwelve) {
  std::string note;
  for (int i = 0; i < 5000; ++i) note += "8@%rax ";
  EXPECT_EQ(noted_arguments(note).size(), kMostArguments + 1);
}

}  // namespace
}  // namespace uprobe::marker
