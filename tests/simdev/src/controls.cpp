#include "controls.h"

#include "allocator.h"
#include "runtime.h"

namespace simdev {
namespace {

c10::DeviceIndex index_of(int64_t device) {
    return resolve(static_cast<c10::DeviceIndex>(device));
}

Queue& queue_at(int64_t stream, int64_t device) {
    return queue_of(c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index_of(device)), stream));
}

}  // namespace

bool step(int64_t stream, int64_t device) {
    const auto locked = lock();
    return queue_at(stream, device).step();
}

int64_t pending(int64_t stream, int64_t device) {
    const auto locked = lock();
    return static_cast<int64_t>(queue_at(stream, device).pending());
}

void hang_stream(int64_t stream, int64_t device) {
    const auto locked = lock();
    hang(queue_at(stream, device));
}

void capture(int64_t stream, int64_t device, bool on) {
    const auto locked = lock();
    queue_at(stream, device).capturing = on;
}

void set_limit(std::optional<int64_t> nbytes, int64_t device) {
    const auto locked = lock();
    memory_of(index_of(device)).set_limit(nbytes ? static_cast<size_t>(*nbytes) : kMemoryOfADevice);
}

// In the order of the fields of Counts in simulated.py.
std::vector<int64_t> counts(int64_t device) {
    const auto locked = lock();
    const auto index = index_of(device);
    const auto& memory = memory_of(index);
    return {memory.stats.num_device_alloc, memory.stats.num_device_free, memory.frees_under_capture,
            empty_cache_calls(index), host_waits(index)};
}

void reset() {
    const auto locked = lock();
    reset_streams();  // first: memory can only be given back when nothing is pending
    reset_memories();
}

}  // namespace simdev
