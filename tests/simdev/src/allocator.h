// What torch sees of the memories: one allocator for all devices, which serves the current one.
#pragma once

#include "memory.h"

namespace simdev {

c10::DeviceAllocator& allocator();
Memory& memory_of(c10::DeviceIndex device);

// How often torch was asked to empty the cache with this device current. All devices' caches are emptied each time.
int64_t empty_cache_calls(c10::DeviceIndex device);

void reset_memories();

}  // namespace simdev
