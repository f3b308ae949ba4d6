// SPDX-License-Identifier: MIT
// After dlclose, code with a breakpoint of the program's own takes the place of a probed function.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifdef PLUGIN
__attribute__((visibility("default"))) int plugged(int n) { return n + 1; }
#else
static volatile int traps;
static void handle(int number) { traps += number == SIGTRAP; }

int main(int argc, char** argv) {
  char path[4096];
  snprintf(path, sizeof path, "%s.so", argv[argc - 1]);
  void* library = dlopen(path, RTLD_NOW);
  if (library == NULL) return 2;
  int (*function)(int) = (int (*)(int))dlsym(library, "plugged");
  printf("%d\n", function(1));
  dlclose(library);
  void* page = (void*)((uintptr_t)function & ~(uintptr_t)4095);
  if (mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
      page)
    return 3;
  const unsigned char code[] = {0xcc, 0xb8, 42, 0, 0, 0, 0xc3};  // int3; mov $42, %eax; ret
  memcpy((void*)function, code, sizeof code);
  signal(SIGTRAP, handle);
  const int result = function(1);
  printf("%d traps %d\n", result, traps);
  return 0;
}
#endif
