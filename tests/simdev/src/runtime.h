// Streams of work, fences between them, and what is current on which device.
//
// A stream is a queue of work that nothing empties on its own: work runs when the host waits for it or a test steps it,
// always in the same order. Whoever forgets to wait therefore reads the old bytes every time, not now and then.
//
// Everything here expects the lock to be held, except for what is thread-local and `lock` itself.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace simdev {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;

class Queue;

// A place in a queue, reached when everything that was put in before it has run.
struct Fence {
    Queue* queue = nullptr;  // null: nothing ever reaches it
    bool reached = false;
};
using FencePtr = std::shared_ptr<Fence>;

class Queue {
  public:
    explicit Queue(c10::Stream stream) : stream(stream) {}

    // Work must not own device memory: on a device, too, only the allocator's rules keep memory from being used again
    // while work on it is pending. It may keep raw addresses, because no segment is unmapped before its device is idle.
    void push(std::function<void()> work);
    FencePtr mark();
    void wait_for(FencePtr fence);

    // Run the oldest item. False: there is none, or it waits for a fence that another queue has not reached.
    bool step();
    // Run the oldest item, and first whatever it waits for in other queues; nothing more.
    void advance();
    void drain();

    size_t pending() const { return items_.size(); }

    const c10::Stream stream;
    bool capturing = false;

  private:
    struct Item {
        std::function<void()> work;
        FencePtr awaited;  // one of the two is set
    };
    std::deque<Item> items_;
};

// Recursive, because waiting for a device runs work in the middle of an allocation.
[[nodiscard]] std::unique_lock<std::recursive_mutex> lock();

// An index that torch passed in: -1 stands for the current device.
c10::DeviceIndex resolve(c10::DeviceIndex device);

// Queues live as long as the process, so that fences can point to them.
Queue& queue_of(const c10::Stream& stream);
c10::Stream new_stream(c10::DeviceIndex device);

// Of this thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
void set_current_stream(const c10::Stream& stream);

// A device that waits: not counted.
void run_until_reached(const Fence& fence);
void drain_device(c10::DeviceIndex device);

// A host that waits: counted on the device it waits for.
void host_wait(const Fence& fence);
void host_wait(Queue& queue);
void host_wait_for_device(c10::DeviceIndex device);
int64_t host_waits(c10::DeviceIndex device);

// Whether any stream of any device is being captured; CUDA's default capture mode is as wide.
bool capture_underway();

// Put in work that never ends: whoever waits for it gets an error.
void hang(Queue& queue);

// Let hung work end, run everything, and start over with the default streams, none captured, nothing counted.
void reset_streams();

}  // namespace simdev
