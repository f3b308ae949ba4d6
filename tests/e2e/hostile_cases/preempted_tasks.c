// SPDX-License-Identifier: MIT
// Tasks that a timer preempts at any place, and that go on in another thread: every call counts once.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { kTasks = 6, kThreads = 2, kCalls = 5000, kStack = 256 * 1024 };
struct task { ucontext_t context; int index, ended; };
static struct task tasks[kTasks];
static char stacks[kTasks][kStack] __attribute__((aligned(64)));
static struct task* queue[kTasks];
static int waiting;
static atomic_int live = kTasks;
static atomic_flag lock = ATOMIC_FLAG_INIT;
static __thread ucontext_t scheduler;
static __thread struct task* running;

// The thread may be another one after each switch.
__attribute__((noinline)) static ucontext_t* own_scheduler(void) { __asm__ volatile(""); return &scheduler; }
__attribute__((noinline)) static struct task** own_task(void) { __asm__ volatile(""); return &running; }

__attribute__((noinline)) long probed(long n) {
  __asm__ volatile("lea 1(%0), %0" : "+r"(n));
  return n;
}

static void preempt(int number) {
  (void)number;
  struct task* task = *own_task();
  if (task != NULL) swapcontext(&task->context, own_scheduler());
}

static void set_alarms(int how) {
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  pthread_sigmask(how, &alarm, NULL);
}

// Every switch is made with the alarm blocked.
static void run_task(int index) {
  set_alarms(SIG_UNBLOCK);
  for (long n = 0; n < kCalls;) n = probed(n);
  set_alarms(SIG_BLOCK);
  tasks[index].ended = 1;
  setcontext(own_scheduler());
}

static struct task* next_task(struct task* before) {
  struct task* next = NULL;
  while (atomic_flag_test_and_set(&lock)) syscall(SYS_sched_yield);
  if (before != NULL && before->ended) --live;
  if (before != NULL && !before->ended) queue[waiting++] = before;
  if (waiting != 0) {
    next = queue[0];
    memmove(queue, queue + 1, --waiting * sizeof *queue);
  }
  atomic_flag_clear(&lock);
  return next;
}

static void* schedule(void* which) {
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = syscall(SYS_gettid);
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  const struct itimerspec pace = {{0, 150000}, {0, 150000}};
  timer_settime(timer, 0, &pace, NULL);
  struct task* task = NULL;
  while (live != 0) {
    task = next_task(task);
    if (task == NULL) { syscall(SYS_sched_yield); continue; }
    *own_task() = task;
    swapcontext(own_scheduler(), &task->context);
    *own_task() = NULL;
  }
  timer_delete(timer);
  return which;
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = preempt;
  sigaction(SIGALRM, &action, NULL);
  set_alarms(SIG_BLOCK);
  for (int i = 0; i < kTasks; ++i) {
    getcontext(&tasks[i].context);
    tasks[i].context.uc_stack.ss_sp = stacks[i];
    tasks[i].context.uc_stack.ss_size = kStack;
    makecontext(&tasks[i].context, (void (*)(void))run_task, 1, i);
    queue[waiting++] = &tasks[i];
  }
  pthread_t threads[kThreads];
  for (long i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, schedule, (void*)i);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  puts("end");
  return 0;
}
