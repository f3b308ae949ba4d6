// SPDX-License-Identifier: MIT
// Markers: places of a program that its authors name, with the values that matter there. For C99, C++11 and later; gcc and clang;
// nothing to link.
//
//   UPROBE_MARK(shop, opened, "fd=%d path=%s took=%llu ns", fd, path, ns);
//
//   $ uprobe-run -p 'mark:shop:opened' -- ./shop
//              shop-17447   [001] .....  2559.482633: opened: (0x45275a) fd=19 path=odd took=19000 ns
//
// GROUP and NAME are words of letters, digits and underlines; the format is a string literal of printf's, at most 12 arguments
// follow. The compiler checks the format, and what it cannot take is an error. A field has the name before the conversion's '='
// ("fd"), else "arg1", "arg2", ... An argument is a number, a pointer, or with %s a string, which is copied at the hit.
//
// A place costs one no-operation of 5 bytes, and the arguments are computed and put into registers as for a call. Where that is
// dear:
//
//   if (UPROBE_MARK_ENABLED(shop, opened))   // a compare with memory and a jump that is not taken
//     UPROBE_MARK(shop, opened, "fd=%d path=%s", fd, name_of(fd));
//
// It is true while a tool wants the marker in this process. A place may be in code of any kind: inline functions, templates,
// signal handlers, static programs, libraries that are loaded late. Names and formats cost nothing at run time.
//
// The compiler writes two notes for each place: SystemTap's (section .note.stapsdt), so that uprobe-run (sdt:GROUP:NAME), perf,
// bpftrace and SystemTap find the place and its arguments, and its own (docs/markers.md), which has the format.
//
// Where UPROBE_MARK_NONE is defined, and in programs for other machines than x86-64, formats are checked and nothing else
// is left. gcc's -mcmodel=large is refused by the compiler.
#pragma once

#if !defined(__GNUC__)
#error "uprobe/marker.h needs gcc or clang"
#endif

#ifdef __cplusplus
extern "C" {
#endif
// Never defined: the compiler checks the format of a call that it does not make.
int uprobe_mark_check_format(const char* format, ...) __attribute__((format(printf, 1, 2)));
#ifdef __cplusplus
}
#endif

// The number of a macro's arguments after the first, 0 to 12; more than that: TOO_MANY.
#define UPROBE_MARK_PICK_(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, \
                          a20, count, ...)                                                                          \
  count
#define UPROBE_MARK_COUNT_(...)                                                                                      \
  UPROBE_MARK_PICK_(__VA_ARGS__, TOO_MANY, TOO_MANY, TOO_MANY, TOO_MANY, TOO_MANY, TOO_MANY, TOO_MANY, TOO_MANY, 12, \
                    11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define UPROBE_MARK_JOIN_(a, b) UPROBE_MARK_JOIN_NOW_(a, b)
#define UPROBE_MARK_JOIN_NOW_(a, b) a##b

// For each argument.
#define UPROBE_MARK_FORMAT_(...) UPROBE_MARK_FIRST_(__VA_ARGS__, 0)
#define UPROBE_MARK_FIRST_(first, ...) first
#define UPROBE_MARK_EACH_0(of, f)
#define UPROBE_MARK_EACH_1(of, f, a) of(1, a)
#define UPROBE_MARK_EACH_2(of, f, a, b) UPROBE_MARK_EACH_1(of, f, a) of(2, b)
#define UPROBE_MARK_EACH_3(of, f, a, b, c) UPROBE_MARK_EACH_2(of, f, a, b) of(3, c)
#define UPROBE_MARK_EACH_4(of, f, a, b, c, d) UPROBE_MARK_EACH_3(of, f, a, b, c) of(4, d)
#define UPROBE_MARK_EACH_5(of, f, a, b, c, d, e) UPROBE_MARK_EACH_4(of, f, a, b, c, d) of(5, e)
#define UPROBE_MARK_EACH_6(of, f, a, b, c, d, e, g) UPROBE_MARK_EACH_5(of, f, a, b, c, d, e) of(6, g)
#define UPROBE_MARK_EACH_7(of, f, a, b, c, d, e, g, h) UPROBE_MARK_EACH_6(of, f, a, b, c, d, e, g) of(7, h)
#define UPROBE_MARK_EACH_8(of, f, a, b, c, d, e, g, h, i) UPROBE_MARK_EACH_7(of, f, a, b, c, d, e, g, h) of(8, i)
#define UPROBE_MARK_EACH_9(of, f, a, b, c, d, e, g, h, i, j) UPROBE_MARK_EACH_8(of, f, a, b, c, d, e, g, h, i) of(9, j)
#define UPROBE_MARK_EACH_10(of, f, a, b, c, d, e, g, h, i, j, k) \
  UPROBE_MARK_EACH_9(of, f, a, b, c, d, e, g, h, i, j) of(10, k)
#define UPROBE_MARK_EACH_11(of, f, a, b, c, d, e, g, h, i, j, k, l) \
  UPROBE_MARK_EACH_10(of, f, a, b, c, d, e, g, h, i, j, k) of(11, l)
#define UPROBE_MARK_EACH_12(of, f, a, b, c, d, e, g, h, i, j, k, l, m) \
  UPROBE_MARK_EACH_11(of, f, a, b, c, d, e, g, h, i, j, k, l) of(12, m)

#define UPROBE_MARK_EACH_TOO_MANY(...) UPROBE_MARK_takes_12_arguments_at_most;

// An argument's value as it is passed on: integers of int's rank at least, arrays and functions as pointers. Its type as a
// number: bytes, 16 if it has a sign, 32 if it is a floating point number.
#ifdef __cplusplus
namespace uprobe_mark {
template <class T>
struct Type {
  static_assert(sizeof(T) == 0, "UPROBE_MARK takes integers, floating point numbers of at most 8 bytes, and pointers");
  enum { code = 8 };
};
template <class T>
struct Type<T*> {
  enum { code = 8 };
};
template <>
struct Type<int> {
  enum { code = 4 + 16 };
};
template <>
struct Type<unsigned> {
  enum { code = 4 };
};
template <>
struct Type<long> {
  enum { code = sizeof(long) + 16 };
};
template <>
struct Type<unsigned long> {
  enum { code = sizeof(long) };
};
template <>
struct Type<long long> {
  enum { code = 8 + 16 };
};
template <>
struct Type<unsigned long long> {
  enum { code = 8 };
};
template <>
struct Type<float> {
  enum { code = 4 + 32 };
};
template <>
struct Type<double> {
  enum { code = 8 + 32 };
};
}  // namespace uprobe_mark
#define UPROBE_MARK_VALUE_(x) (+(x))
#define UPROBE_MARK_TYPE_(x) (static_cast<int>(::uprobe_mark::Type<decltype(+(x))>::code))
#define UPROBE_MARK_CHECK_(n, x)
#else
#define UPROBE_MARK_VALUE_(x) (0 ? 0 : (x))
#define UPROBE_MARK_IS_(x, type) __builtin_types_compatible_p(__typeof__(UPROBE_MARK_VALUE_(x)), type)
#define UPROBE_MARK_IS_FLOATING_(x) \
  (UPROBE_MARK_IS_(x, float) || UPROBE_MARK_IS_(x, double) || UPROBE_MARK_IS_(x, long double))
#define UPROBE_MARK_IS_SIGNED_(x) (UPROBE_MARK_IS_(x, int) || UPROBE_MARK_IS_(x, long) || UPROBE_MARK_IS_(x, long long))
#define UPROBE_MARK_TYPE_(x) \
  ((int)sizeof(UPROBE_MARK_VALUE_(x)) + (UPROBE_MARK_IS_SIGNED_(x) ? 16 : 0) + (UPROBE_MARK_IS_FLOATING_(x) ? 32 : 0))
#define UPROBE_MARK_CHECK_(n, x)                                   \
  __extension__ _Static_assert(sizeof(UPROBE_MARK_VALUE_(x)) <= 8, \
                               "UPROBE_MARK: argument " #n " has more than 8 bytes");
#endif

// A pointer of any type is good for %p.
#ifdef __clang__
#define UPROBE_MARK_ANY_POINTER_ _Pragma("GCC diagnostic ignored \"-Wformat-pedantic\"")
#else
#define UPROBE_MARK_ANY_POINTER_
#endif
#define UPROBE_MARK_DIAGNOSTICS_                                              \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic error \"-Wformat\"") \
      _Pragma("GCC diagnostic error \"-Wformat-extra-args\"")                 \
          _Pragma("GCC diagnostic ignored \"-Wformat-zero-length\"")
#define UPROBE_MARK_CHECK_ALL_(...)                                              \
  UPROBE_MARK_DIAGNOSTICS_                                                       \
  UPROBE_MARK_ANY_POINTER_(void)(sizeof(uprobe_mark_check_format(__VA_ARGS__))); \
  _Pragma("GCC diagnostic pop")                                                  \
      UPROBE_MARK_JOIN_(UPROBE_MARK_EACH_, UPROBE_MARK_COUNT_(__VA_ARGS__))(UPROBE_MARK_CHECK_, __VA_ARGS__)

#if defined(__x86_64__) && !defined(__ILP32__) && defined(__ELF__) && !defined(UPROBE_MARK_NONE)

#define UPROBE_MARK_SEMAPHORE_(group, name) "uprobe.mark." group "." name

// Of the standard note: "-4@%edi", with a blank before all but the first.
#define UPROBE_MARK_TEXT_(n, x)            \
  UPROBE_MARK_JOIN_(UPROBE_MARK_BLANK_, n) \
  ".fill (%c[type" #n "]>>4)&1,1,'-'\n"    \
  ".byte (%c[type" #n "]&15)+'0'\n"        \
  ".fill (%c[type" #n "]>>5)&1,1,'f'\n"    \
  ".ascii \"@%[value" #n "]\"\n"

#define UPROBE_MARK_BLANK_1 ""
#define UPROBE_MARK_BLANK_2 ".byte 32\n"
#define UPROBE_MARK_BLANK_3 ".byte 32\n"
#define UPROBE_MARK_BLANK_4 ".byte 32\n"
#define UPROBE_MARK_BLANK_5 ".byte 32\n"
#define UPROBE_MARK_BLANK_6 ".byte 32\n"
#define UPROBE_MARK_BLANK_7 ".byte 32\n"
#define UPROBE_MARK_BLANK_8 ".byte 32\n"
#define UPROBE_MARK_BLANK_9 ".byte 32\n"
#define UPROBE_MARK_BLANK_10 ".byte 32\n"
#define UPROBE_MARK_BLANK_11 ".byte 32\n"
#define UPROBE_MARK_BLANK_12 ".byte 32\n"

// Values are in registers or constants, so that each tool can fetch them.
#define UPROBE_MARK_INPUT_(n, x) , [type##n] "n"(UPROBE_MARK_TYPE_(x)), [value##n] "nr"(UPROBE_MARK_VALUE_(x))

// The number of lines says nothing about the code.
#if defined(__clang__) || __GNUC__ < 9
#define UPROBE_MARK_ASM_ __asm__ __volatile__
#else
#define UPROBE_MARK_ASM_ __asm__ __volatile__ __inline__
#endif

// clang-format off
// The no-operation is not the one that assemblers write (0f 1f 44 00 00): Linux 6.17 and later replace that one by a call, which
// overwrites what the function has below its stack pointer. The section flag "?": a note belongs to the group of the code that it
// is about, and goes with it where the linker takes another copy of an inline function. The semaphore is a weak name: it is 0 in
// the note, which means none, unless UPROBE_MARK_ENABLED defines it.
#define UPROBE_MARK_PLACE_(group, name, semaphore, count, ...)                                 \
  UPROBE_MARK_ASM_(                                                                            \
      "990: .byte 0x0f,0x1e,0x44,0x00,0x00\n"                                                  \
      ".weak \"" semaphore "\"\n"                                                              \
      ".hidden \"" semaphore "\"\n"                                                            \
      ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                            \
      ".balign 4\n"                                                                            \
      ".4byte 992f-991f,994f-993f,3\n"                                                         \
      "991: .asciz \"stapsdt\"\n"                                                              \
      "992: .balign 4\n"                                                                       \
      "993: .8byte 990b,_.stapsdt.base,\"" semaphore "\"\n"                                    \
      ".asciz \"" group "\"\n"                                                                 \
      ".asciz \"" name "\"\n"                                                                  \
      UPROBE_MARK_JOIN_(UPROBE_MARK_EACH_, count)(UPROBE_MARK_TEXT_, __VA_ARGS__)              \
      ".byte 0\n"                                                                              \
      "994: .balign 4\n"                                                                       \
      ".popsection\n"                                                                          \
      ".pushsection .note.uprobe,\"?\",\"note\"\n"                                             \
      ".balign 4\n"                                                                            \
      ".4byte 992f-991f,994f-993f,1\n"                                                         \
      "991: .asciz \"uprobe\"\n"                                                               \
      "992: .balign 4\n"                                                                       \
      "993: .8byte 990b,_.stapsdt.base,%c[format]\n"                                           \
      "994: .balign 4\n"                                                                       \
      ".popsection\n"                                                                          \
      ".ifndef _.stapsdt.base\n"                                                               \
      ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                  \
      ".weak _.stapsdt.base\n"                                                                 \
      ".hidden _.stapsdt.base\n"                                                               \
      "_.stapsdt.base: .space 1\n"                                                             \
      ".size _.stapsdt.base,1\n"                                                               \
      ".popsection\n"                                                                          \
      ".endif\n"                                                                               \
      :                                                                                        \
      : [format] "i"("" UPROBE_MARK_FORMAT_(__VA_ARGS__))                                      \
        UPROBE_MARK_JOIN_(UPROBE_MARK_EACH_, count)(UPROBE_MARK_INPUT_, __VA_ARGS__))
// clang-format on

#define UPROBE_MARK(group, name, ...)                                                                         \
  do {                                                                                                        \
    UPROBE_MARK_CHECK_ALL_(__VA_ARGS__)                                                                       \
    UPROBE_MARK_PLACE_(#group, #name, UPROBE_MARK_SEMAPHORE_(#group, #name), UPROBE_MARK_COUNT_(__VA_ARGS__), \
                       __VA_ARGS__);                                                                          \
  } while (0)

// The semaphore is one of the file, whichever of its parts tests for it.
#define UPROBE_MARK_ENABLED(group, name) UPROBE_MARK_TEST_(UPROBE_MARK_SEMAPHORE_(#group, #name))
#define UPROBE_MARK_TEST_(semaphore)                                                            \
  (__extension__({                                                                              \
    int uprobe_mark_is_wanted;                                                                  \
    __asm__ __volatile__("cmpw $0, \"" semaphore "\"(%%rip)\n"                                  \
                         ".ifndef \"" semaphore "\"\n"                                          \
                         ".pushsection .probes,\"awG\",\"progbits\",\"" semaphore "\",comdat\n" \
                         ".balign 2\n"                                                          \
                         ".weak \"" semaphore "\"\n"                                            \
                         ".hidden \"" semaphore "\"\n"                                          \
                         "\"" semaphore "\": .zero 2\n"                                         \
                         ".size \"" semaphore "\",2\n"                                          \
                         ".popsection\n"                                                        \
                         ".endif\n"                                                             \
                         : "=@ccne"(uprobe_mark_is_wanted));                                    \
    __builtin_expect(uprobe_mark_is_wanted, 0);                                                 \
  }))

#else

#define UPROBE_MARK(group, name, ...)   \
  do {                                  \
    UPROBE_MARK_CHECK_ALL_(__VA_ARGS__) \
  } while (0)
#define UPROBE_MARK_ENABLED(group, name) 0

#endif
