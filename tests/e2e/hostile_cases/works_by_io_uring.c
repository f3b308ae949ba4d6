// SPDX-License-Identifier: MIT
// A process with threads of the kernel's own: io_uring's, one that polls the ring and one that waits in a read. They stop for a tracer, and never
// execute anything for it. Ends at the end of its input; exit code 77: there is no io_uring here.
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) long probed(long value) {
  __asm__ volatile("");
  return value + 1;
}

static int begin_read(unsigned flags, int from, char* to) {
  struct io_uring_params about = {.flags = flags, .sq_thread_idle = 10000};
  int ring = (int)syscall(SYS_io_uring_setup, 8, &about);
  if (ring < 0) return errno;
  char* queue = mmap(NULL, about.sq_off.array + 8 * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                     IORING_OFF_SQ_RING);
  struct io_uring_sqe* entries =
      mmap(NULL, 8 * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
  if (queue == MAP_FAILED || (void*)entries == MAP_FAILED) return errno;
  entries[0] = (struct io_uring_sqe){
      .opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = from, .addr = (uintptr_t)to, .len = 1};
  ((unsigned*)(queue + about.sq_off.array))[0] = 0;
  __atomic_store_n((unsigned*)(queue + about.sq_off.tail), 1, __ATOMIC_RELEASE);
  unsigned how = flags & IORING_SETUP_SQPOLL ? IORING_ENTER_SQ_WAKEUP : 0;
  return syscall(SYS_io_uring_enter, ring, flags & IORING_SETUP_SQPOLL ? 0 : 1, 0, how, NULL, 0) < 0 ? errno : 0;
}

int main(void) {
  static char first, second;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  if (begin_read(0, ends[0], &first) != 0 || begin_read(IORING_SETUP_SQPOLL, ends[0], &second) != 0) return 77;
  usleep(50000);
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  long value = 0;
  while (poll(&input, 1, 1) == 0) value = probed(value);
  if (write(ends[1], "ab", 2) != 2) return 1;
  while (__atomic_load_n(&first, __ATOMIC_ACQUIRE) == 0 || __atomic_load_n(&second, __ATOMIC_ACQUIRE) == 0)
    usleep(1000);
  return first + second == 'a' + 'b' ? 0 : 1;
}
