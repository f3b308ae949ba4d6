// SPDX-License-Identifier: MIT
// A library that contained.c loads, and a program that it becomes: both have called_later().
#include <stdio.h>

__attribute__((noinline)) int called_later(const char* text) { return text[0] == 'l' ? 7 : 0; }

#ifdef PROGRAM
int main(void) { return called_later("late") == 7 ? 0 : 1; }
#endif
