// SPDX-License-Identifier: MIT
// C++ names, misspelt names, names that are bombs.
#include <unistd.h>

#include <set>

#include "engine/names/demangle.h"
#include "engine/names/near_names.h"
#include "tests/elf/fixture.h"

namespace uprobe::elf {
namespace {

using Names = std::vector<std::string>;

std::set<std::string> found_in(const ElfFile& file, const std::string& name) {
  std::set<std::string> found;
  for (const Symbol& symbol : file.find_functions(name)) found.insert(demangle(symbol.name));
  return found;
}

TEST(Names, APatternNeedNotHaveTheReturnTypeOfATemplate) {
  const std::string name = "std::vector<int> ns::conv<int, double>(int)";
  for (const char* const pattern : {"ns::*", "ns::conv<*", "std::vector<int> ns::*", "*"})
    EXPECT_TRUE(matches_spoken(pattern, name)) << pattern;
  for (const char* const pattern : {"conv*", "vector*", "ns::con"})
    EXPECT_FALSE(matches_spoken(pattern, name)) << pattern;
  EXPECT_TRUE(matches_spoken("ns::*", "ns::C::operator bool() const"));
  EXPECT_FALSE(matches_spoken("bool*", "ns::C::operator bool() const"));
  EXPECT_TRUE(matches_spoken("main", "main"));
}

TEST(CppNames, WithAndWithoutParameters) {
  const ElfFile file = must_open(fixture("elf_overloads"));
  const std::set<std::string> both{"shapes::area(int)", "shapes::area(double)"};
  EXPECT_EQ(found_in(file, "shapes::area"), both);
  EXPECT_EQ(found_in(file, "shapes::area(int)"), std::set<std::string>{"shapes::area(int)"});
  EXPECT_EQ(found_in(file, "shapes::area( double )"), std::set<std::string>{"shapes::area(double)"});
  EXPECT_EQ(found_in(file, "_ZN6shapes4areaEi"), std::set<std::string>{"shapes::area(int)"});
  EXPECT_TRUE(found_in(file, "shapes::area(long)").empty());
  EXPECT_TRUE(found_in(file, "area").empty());
  EXPECT_TRUE(found_in(file, "shapes").empty());
}

TEST(CppNames, TemplatesOperatorsMembers) {
  const ElfFile file = must_open(fixture("elf_overloads"));
  const std::string twice = "int shapes::twice<int>(int)";
  for (const char* name : {"int shapes::twice<int>(int)", "shapes::twice<int>", "shapes::twice<int>(int)"})
    EXPECT_EQ(found_in(file, name), std::set<std::string>{twice}) << name;
  EXPECT_EQ(found_in(file, "shapes::twice").size(), 2U);
  EXPECT_EQ(found_in(file, "shapes::Box::volume").size(), 1U);
  EXPECT_EQ(found_in(file, "shapes::Box::volume() const").size(), 1U);
  EXPECT_EQ(found_in(file, "shapes::Box::operator()").size(), 1U);
  EXPECT_EQ(found_in(file, "shapes::Box::operator<").size(), 1U);
  EXPECT_EQ(found_in(file, "shapes::Box::operator int").size(), 1U);
  EXPECT_EQ(found_in(file, "shapes::(anonymous namespace)::hidden").size(), 1U);
}

TEST(CppNames, TwoConstructorsAtOneAddressCountOnce) {
  EXPECT_EQ(must_open(fixture("elf_overloads")).find_functions("shapes::Box::Box").size(), 1U);
}

TEST(CppNames, OfTheStandardLibrary) {
  const char* path = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";
  if (::access(path, R_OK) != 0) GTEST_SKIP() << "no libstdc++ at its usual place";
  const ElfFile file = must_open(path);
  EXPECT_EQ(only_function(file, "std::terminate").name, "_ZSt9terminatev");
  EXPECT_EQ(only_function(file, "std::ostream::flush()").name, "_ZNSo5flushEv");
  EXPECT_EQ(only_function(file, "std::terminate()@GLIBCXX_3.4").name, "_ZSt9terminatev");
  EXPECT_EQ(only_function(file, "operator new(unsigned long)").name, "_Znwm");
}

// Every form of a name leads back to it, and a thunk is never taken for its function.
TEST(SpokenNames, OfDemangledTexts) {
  const auto accepted = [](const std::string& text) { return spoken_names("_Z1f", text).accepted; };
  EXPECT_EQ(accepted("f(int, char)"), (Names{"f(int,char)", "f"}));
  EXPECT_EQ(accepted("f() const &"), (Names{"f()const&", "f"}));
  EXPECT_EQ(accepted("data"), (Names{"data"}));
  EXPECT_EQ(accepted("f(int) [clone .cold]"), (Names{"f(int)[clone.cold]"}));
  EXPECT_EQ(accepted("name[abi:cxx11](int)"), (Names{"name(int)", "name"}));
  EXPECT_EQ(accepted("bool A::operator< <int>(int)"), (Names{"boolA::operator<<int>(int)", "boolA::operator<<int>",
                                                             "A::operator<<int>(int)", "A::operator<<int>"}));
  EXPECT_EQ(accepted("A::operator->() const"), (Names{"A::operator->()const", "A::operator->"}));
  EXPECT_EQ(accepted("f(int)::{lambda(char)#1}::operator()(char) const").back(),
            "f(int)::{lambda(char)#1}::operator()");
  EXPECT_EQ(accepted("A<&(B::operator>(int))>::type g<int>(int)").front(), "A<&(B::operator>(int))>::typeg<int>(int)");
  EXPECT_EQ(spoken_names("_ZThn16_N1A1fEv", "non-virtual thunk to A::f()").accepted,
            (Names{"non-virtualthunktoA::f()"}));
}

TEST(Demangle, OnlyMangledNames) {
  EXPECT_EQ(demangle("_ZN6shapes4areaEi"), "shapes::area(int)");
  for (const char* name : {"main", "", "_Z", "_ZN", "_Znonsense", "i"}) EXPECT_EQ(demangle(name), name);
}

// Each parameter is a function of two of the one before: the text doubles at each step.
std::string bomb(int steps) {
  const auto substitution = [](int number) {
    constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    std::string digits;
    for (int rest = number - 1; rest > 0 || digits.empty(); rest /= 36)
      digits.insert(digits.begin(), kDigits[static_cast<std::size_t>(rest) % 36]);
    return "S" + digits + "_";
  };
  std::string name = "_Z1fPFvicE";
  for (int i = 0; i < steps; ++i) name += "PFv" + substitution(1 + 2 * i) + substitution(1 + 2 * i) + "E";
  return name;
}

TEST(Demangle, BombsStayMangled) {
  EXPECT_GT(demangle(bomb(5)).size(), 1000U) << "the small one is a name";
  for (const int steps : {40, 100}) EXPECT_EQ(demangle(bomb(steps)), bomb(steps));
  const std::string deep = "_Z1f" + std::string(100000, 'P') + "i";
  EXPECT_EQ(demangle(deep), deep);
}

TEST(Demangle, BudgetEnds) {
  std::uint64_t budget = 1000000;
  int demangled = 0;
  while (demangle_within("_ZN6shapes4areaEi", budget) && demangled < 1000000) ++demangled;
  EXPECT_GT(demangled, 1000);
  EXPECT_LT(demangled, 1000000);
}

Names near(const std::string& wanted, const Names& candidates, std::size_t most = 3) {
  NearNames search(wanted);
  for (const std::string& candidate : candidates) search.offer(candidate);
  return search.best(most);
}

TEST(NearNames, MisspellingsFirst) {
  EXPECT_EQ(near("greett", {"great", "greet", "meet", "unrelated"}), (Names{"greet", "great"}));
  EXPECT_EQ(near("mallco", {"calloc", "malloc"}), (Names{"malloc", "calloc"})) << "a swap is one step";
  EXPECT_EQ(near("MALLOC", {"calloc", "malloc"}).front(), "malloc");
  EXPECT_EQ(near("main", {"main"}), (Names{"main"}));
}

TEST(NearNames, PartsOfNames) {
  EXPECT_EQ(near("free_list", {"internal_free_list_all", "other"}), (Names{"internal_free_list_all"}));
  EXPECT_EQ(near("are", {"shapes::area"}), (Names{"shapes::area"}));
  EXPECT_TRUE(near("x", {"something"}).empty());
  EXPECT_TRUE(near("", {"something", ""}).empty());
  EXPECT_TRUE(near("qqqqqqq", {"malloc"}).empty());
}

TEST(NearNames, OrderAndNumberDoNotDependOnOffers) {
  const Names names{"ab1", "ab2", "ab3", "ab4", "ab1"};
  EXPECT_EQ(near("ab0", names), (Names{"ab1", "ab2", "ab3"}));
  EXPECT_EQ(near("ab0", Names(names.rbegin(), names.rend())), (Names{"ab1", "ab2", "ab3"}));
  EXPECT_EQ(near("ab0", names, 9).size(), 4U);
  EXPECT_TRUE(near("ab0", names, 0).empty());
}

TEST(CloseNames, OfFiles) {
  EXPECT_EQ(must_open(fixture("elf_pie")).close_names("alhpa").front(), "alpha");
  EXPECT_EQ(must_open(fixture("elf_overloads")).close_names("shapes::aera", 1), (Names{"shapes::area"}));
  EXPECT_EQ(must_open(fixture("elf_versions")).close_names("swpa@V1").front(), "swap");
  EXPECT_TRUE(must_open(fixture("elf_pie")).close_names(std::string(100000, 'q')).empty());
}

}  // namespace
}  // namespace uprobe::elf
