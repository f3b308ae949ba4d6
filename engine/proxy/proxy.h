// SPDX-License-Identifier: MIT
// System calls that another user can keep waiting for as long as it likes: a page of its process's memory may be one that a FUSE
// server of its own has to give, and the kernel lets no signal end such a wait. Another process makes them in the tool's place. When
// it does not come back in time the tool leaves it there and goes on.
//
//     a thread of the tool                its proxy, a process that shares the tool's memory
//       Order, number n   ---asked--->      carry_out()
//       waits, not for long  <---done---    number n
//
// While an order has not come back no other one is begun for the same process; and while several for one user have not come back, none for that
// user, so that each user keeps a few proxies at most.
//
// Each thread has a proxy of its own from its first order on. A proxy has none of the tool's descriptors, so that a reader of the
// tool's output sees its end; it ends with its thread or, as soon as its system call lets it, with the tool.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "engine/base/fd.h"
#include "engine/proxy/foreign.h"

namespace uprobe::proxy {

// What an order may use while it is carried out.
class Place {
 public:
  virtual ~Place() = default;
  // A copy of a descriptor of the tool, which the order closes; or -1 and errno (pidfd_getfd: Linux 5.6, pid_fd(7)).
  virtual int descriptor(int of_the_tool) = 0;
};

// Holds all that its work reads and writes: it may go on after the tool has left it.
class Order {
 public:
  Order() = default;
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  virtual ~Order() = default;

  // System calls only, by syscall(): no memory is allocated and no lock is taken, because the proxy may end in between.
  virtual void carry_out(Place& place) = 0;

  // Calls how often the work has got on: an order that does gets more time.
  std::atomic<std::uint32_t> steps{0};
  // A descriptor of the proxy's that the order leaves open, for carry_out() to take a copy of; -1: none.
  int made = -1;
  Fd taken;  // the copy
};

enum class Outcome {
  done,
  silent,      // its system call has not returned in time: nothing of the order may be used
  impossible,  // there is no proxy: no process can be made
};
// Carries out an order that its owner can delay.
Outcome carry_out(const std::shared_ptr<Order>& order, Owner owner);

// This thread's orders are begun also where many others for the same user have not come back: what it does must not be held up by that.
void insist();

// How long this thread waits for an order that does not get on, and ten times as long for one that does. After an order that was left, all
// threads wait for a tenth of a second at most, for a minute.
inline constexpr std::chrono::milliseconds kPatience{1000};  // a page on a disk may take its time
void limit_patience(std::chrono::milliseconds patience);

// Whether the process is one of this tool's own proxies: it has all of the tool's memory, the session's too.
bool is_own(pid_t pid);

}  // namespace uprobe::proxy
