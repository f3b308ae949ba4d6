// A hit: the consumers of a point, newest first.
#include "preload/agent.h"

namespace uprobe::agent {

void handle_hit(const Hit& hit) {
  const ProcessBlock& block = *hit.block;
  const auto* consumers = at_offset<shared::Consumer>(&block, block.consumer_offset);
  u32 next = hit.point->consumer;
  for (u32 steps = 0; next != 0 && next <= block.consumer_count && steps < block.consumer_count; ++steps) {
    const shared::Consumer& consumer = consumers[next - 1];
    AreaHeader* area = session_area(block, consumer.session);
    if (area != nullptr) record_event(hit, area, consumer.event);
    next = consumer.next;
  }
}

}  // namespace uprobe::agent
