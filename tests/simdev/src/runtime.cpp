#include "runtime.h"

#include <c10/util/Exception.h>

#include <array>
#include <map>
#include <utility>
#include <vector>

namespace simdev {
namespace {

struct DeviceStreams {
    std::map<c10::StreamId, std::unique_ptr<Queue>> queues;  // ordered: draining a device must be repeatable
    c10::StreamId next_id = 1;                               // 0 is the default stream
    int64_t host_waits = 0;
};

struct Runtime {
    std::recursive_mutex mutex;
    std::array<DeviceStreams, kDevices> devices;
    std::vector<FencePtr> hung;
};

// Never destroyed: tensors and events may outlive static destructors.
Runtime& runtime() {
    static auto* const instance = new Runtime;
    return *instance;
}

struct Current {
    c10::DeviceIndex device = 0;
    std::array<c10::StreamId, kDevices> streams{};
};

Current& current() {
    thread_local Current instance;
    return instance;
}

DeviceStreams& streams_of(c10::DeviceIndex device) {
    TORCH_CHECK(0 <= device && device < kDevices, "there is no simulated device ", int(device));
    return runtime().devices[device];
}

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
}

}  // namespace

void Queue::push(std::function<void()> work) {
    items_.push_back({std::move(work), nullptr});
}

FencePtr Queue::mark() {
    auto fence = std::make_shared<Fence>();
    fence->queue = this;
    push([fence] { fence->reached = true; });
    return fence;
}

void Queue::wait_for(FencePtr fence) {
    items_.push_back({nullptr, std::move(fence)});
}

bool Queue::step() {
    if (items_.empty() || (items_.front().awaited && !items_.front().awaited->reached)) {
        return false;
    }
    // Taken out before it runs: work that throws must not be run again.
    const Item item = std::move(items_.front());
    items_.pop_front();
    if (item.work) {
        item.work();
    }
    return true;
}

void Queue::advance() {
    TORCH_INTERNAL_ASSERT(!items_.empty());
    if (const FencePtr awaited = items_.front().awaited) {
        run_until_reached(*awaited);
    }
    step();
}

void Queue::drain() {
    while (!items_.empty()) {
        advance();
    }
}

std::unique_lock<std::recursive_mutex> lock() {
    return std::unique_lock(runtime().mutex);
}

c10::DeviceIndex resolve(c10::DeviceIndex device) {
    const auto resolved = device == -1 ? current().device : device;
    streams_of(resolved);
    return resolved;
}

Queue& queue_of(const c10::Stream& stream) {
    auto& queue = streams_of(stream.device_index()).queues[stream.id()];
    if (!queue) {
        queue = std::make_unique<Queue>(stream);
    }
    return *queue;
}

c10::Stream new_stream(c10::DeviceIndex device) {
    return stream_of(device, streams_of(device).next_id++);
}

c10::DeviceIndex current_device() {
    return current().device;
}

void set_current_device(c10::DeviceIndex device) {
    current().device = device;
}

c10::Stream current_stream(c10::DeviceIndex device) {
    return stream_of(device, current().streams.at(device));
}

void set_current_stream(const c10::Stream& stream) {
    current().streams.at(stream.device_index()) = stream.id();
}

void run_until_reached(const Fence& fence) {
    // A wait is put in after the fence it waits for, so queues cannot wait in a circle; they can wait for hung work.
    while (!fence.reached) {
        TORCH_CHECK(fence.queue, "simulated device deadlock: waiting for work that never ends");
        fence.queue->advance();
    }
}

void drain_device(c10::DeviceIndex device) {
    for (auto& [id, queue] : streams_of(device).queues) {
        queue->drain();
    }
}

void host_wait(const Fence& fence) {
    TORCH_INTERNAL_ASSERT(fence.queue);
    streams_of(fence.queue->stream.device_index()).host_waits++;
    run_until_reached(fence);
}

void host_wait(Queue& queue) {
    streams_of(queue.stream.device_index()).host_waits++;
    queue.drain();
}

void host_wait_for_device(c10::DeviceIndex device) {
    streams_of(device).host_waits++;
    drain_device(device);
}

int64_t host_waits(c10::DeviceIndex device) {
    return streams_of(device).host_waits;
}

bool capture_underway() {
    for (const auto& device : runtime().devices) {
        for (const auto& [id, queue] : device.queues) {
            if (queue->capturing) {
                return true;
            }
        }
    }
    return false;
}

void hang(Queue& queue) {
    auto never = std::make_shared<Fence>();
    runtime().hung.push_back(never);
    queue.wait_for(std::move(never));
}

void reset_streams() {
    for (const auto& fence : runtime().hung) {
        fence->reached = true;
    }
    runtime().hung.clear();
    for (auto& device : runtime().devices) {
        for (auto& [id, queue] : device.queues) {
            queue->drain();
            queue->capturing = false;
        }
        device.next_id = 1;
        device.host_waits = 0;
    }
    current() = Current{};
}

}  // namespace simdev
