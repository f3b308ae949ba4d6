// The thread of the tool that answers the agents: a library was mapped, so there may be something to arm.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "engine/control/armer.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class MailService {
 public:
  // `area` and `armer` outlive the service; `armer` is used under the service's lock only while it runs.
  MailService(trace::Area& area, Armer& armer, Addr block);
  ~MailService();

  // No further answers: requests that come now run into their deadline. Joins the thread.
  void stop();

 private:
  void loop();
  void answer(shared::MailSlot& slot);
  Status serve(shared::MailSlot& slot);

  trace::Area& area_;
  Armer& armer_;
  Addr block_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace uprobe::control
