// The memory of one device, handed out by the rules of torch's caching allocator for CUDA.
//
// Memory comes from the system in segments, which are split into blocks and are only given back whole. A freed block
// can be used again at once by the stream it was allocated on, since what that stream does later also runs later. Other
// streams must be recorded for a block; it is then free when they have reached the point at which it was freed.
//
// Everything here expects the lock to be held.
#pragma once

#include "runtime.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <map>
#include <memory>
#include <set>
#include <unordered_set>
#include <vector>

namespace simdev {

constexpr size_t kKiB = size_t(1) << 10, kMiB = kKiB << 10, kGiB = kMiB << 10;
constexpr size_t kMemoryOfADevice = 64 * kGiB;  // Nothing is paged in before it is written to, so this may be generous.

struct Segment;

struct Block {
    enum class State { free, used, leaving };  // leaving: freed, but other streams may still use it

    Segment* segment;
    char* address;
    size_t size;
    size_t requested = 0;
    State state = State::free;
    std::unordered_set<c10::Stream> users = {};  // other than the segment's stream
    std::vector<FencePtr> fences = {};           // while leaving: where its users stood when it was freed
};

struct Segment {
    char* base;
    size_t size;
    c10::StreamId stream;
    bool small;
    std::map<char*, Block> blocks = {};  // by address, without gaps
};

class Memory {
  public:
    explicit Memory(c10::DeviceIndex device) : device_(device) {}

    void* allocate(size_t nbytes);
    bool owns(void* address) const { return used_.count(static_cast<char*>(address)) != 0; }
    void release(void* address);
    void record_stream(void* address, const c10::Stream& stream);

    // Give back every segment of which no block is in use.
    void empty_cache();
    void set_limit(size_t nbytes) { limit_ = nbytes; }
    size_t limit() const { return limit_; }
    size_t reserved() const { return stats.reserved_bytes[0].current; }

    // As if new, apart from what is still allocated.
    void reset();
    void reset_accumulated();
    void reset_peaks();

    c10::CachingDeviceAllocator::DeviceStats stats;
    int64_t frees_under_capture = 0;

  private:
    struct SmallestFirst {
        bool operator()(const Block* left, const Block* right) const;
    };
    using FreeBlocks = std::set<Block*, SmallestFirst>;

    FreeBlocks& free_blocks(bool small) { return small ? free_small_ : free_large_; }
    Block* take_free_block(bool small, c10::StreamId stream, size_t size);
    Block* take_new_segment(bool small, c10::StreamId stream, size_t size);
    Block* map_segment(bool small, c10::StreamId stream, size_t size);
    void split(Block& block, size_t size);
    void finish_release(Block& block);
    Block& merge_with_neighbours(Block& block);
    void place_fences(Block& block);
    void take_back_reached();
    void wait_for_leaving();
    void unmap_segment(Segment& segment);
    [[noreturn]] void fail(size_t nbytes);

    const c10::DeviceIndex device_;
    size_t limit_ = kMemoryOfADevice;
    std::map<char*, std::unique_ptr<Segment>> segments_;
    std::map<char*, Block*> used_;
    std::vector<Block*> leaving_;
    FreeBlocks free_small_, free_large_;
};

}  // namespace simdev
