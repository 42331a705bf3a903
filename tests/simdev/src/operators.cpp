// The operators that a device needs of its own. All others run on the CPU, after everything pending.
//
// All registrations with torch's dispatcher are in this file: its headers take most of the time to compile.
#include "allocator.h"
#include "controls.h"
#include "runtime.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DefaultTensorOptions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>
#include <utility>

namespace simdev {
namespace {

// Work runs whenever somebody waits, in whatever mode they are. It must do the same in all of them: no autograd, no
// version counters, and no Python, which would want the interpreter's lock while ours is held.
struct OnDevice {
    c10::InferenceMode inference;
    c10::impl::ExcludeDispatchKeyGuard no_python{c10::python_ks};
};

// Where a tensor's elements lie, without a reference to them. On the host the same bytes are a CPU tensor.
struct Elements {
    explicit Elements(const at::Tensor& tensor)
        : address(static_cast<char*>(tensor.storage().mutable_data())),
          sizes(tensor.sizes().vec()),
          strides(tensor.strides().vec()),
          dtype(tensor.scalar_type()),
          conjugate(tensor.is_conj()),
          negative(tensor.is_neg()) {
        if (address) {
            address += tensor.storage_offset() * tensor.itemsize();
        }
    }

    // Only to be called, and the result only to be used, under OnDevice.
    at::Tensor on_host() const {
        const auto same = at::from_blob(address, sizes, strides, at::TensorOptions(dtype));
        same._set_conj(conjugate);
        same._set_neg(negative);
        return same;
    }

    char* address;
    std::vector<int64_t> sizes, strides;
    c10::ScalarType dtype;
    bool conjugate, negative;  // lazily: the bytes are those from before
};

bool is_simulated(const at::Tensor& tensor) {
    return tensor.device().type() == kType;
}

Queue& current_queue(const at::Tensor& tensor) {
    return queue_of(current_stream(tensor.device().index()));
}

// Memory --------------------------------------------------------------------------------------------------------------

using MaybeDtype = std::optional<at::ScalarType>;
using MaybeLayout = std::optional<at::Layout>;
using MaybeDevice = std::optional<at::Device>;
using MaybeFormat = std::optional<at::MemoryFormat>;

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device device_or_current(MaybeDevice device) {
    return c10::Device(kType, resolve(device ? device->index() : -1));
}

at::Tensor make_empty(at::IntArrayRef sizes, MaybeDtype dtype, MaybeLayout, MaybeDevice device, std::optional<bool>,
                 MaybeFormat format) {
    const c10::DeviceGuard guard(device_or_current(device));
    return at::detail::empty_generic(sizes, &allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor make_strided(at::IntArrayRef sizes, at::IntArrayRef strides, MaybeDtype dtype, MaybeLayout,
                         MaybeDevice device, std::optional<bool>) {
    const c10::DeviceGuard guard(device_or_current(device));
    return at::detail::empty_strided_generic(sizes, strides, &allocator(), kKeys, c10::dtype_or_default(dtype));
}

// As on CUDA, the tensor has its new shape already when there turns out to be no memory for it.
void grow_storage_to_fit(const at::Tensor& tensor) {
    if (tensor.numel() == 0) {
        return;
    }
    const size_t needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                           tensor.storage_offset());
    if (needed > tensor.storage().nbytes()) {
        at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), needed);
    }
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes, MaybeFormat format) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    if (format) {
        TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format: ", *format);
        self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    }
    grow_storage_to_fit(self);
    return self;
}

void record(at::Tensor& self, c10::Stream stream) {
    allocator().recordStream(self.storage().data_ptr(), stream);
}

// Views ---------------------------------------------------------------------------------------------------------------

at::Tensor make_view(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> offset) {
    return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Tensor& set_storage_part(at::Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef sizes,
                             at::IntArrayRef strides) {
    at::native::checkSetStorage(self, std::move(storage), offset, sizes, strides);
    if (strides.data()) {
        self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    } else {
        self.unsafeGetTensorImpl()->set_storage_offset(offset);
        self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    }
    grow_storage_to_fit(self);
    return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
    const auto elements = static_cast<int64_t>(storage.nbytes() / self.itemsize());
    return set_storage_part(self, std::move(storage), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
    return set_storage_part(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
    const auto none = make_empty({0}, self.scalar_type(), std::nullopt, self.device(), std::nullopt, std::nullopt);
    return set_tensor(self, none);
}

// Contents ------------------------------------------------------------------------------------------------------------

void push_copy(Queue& queue, Elements source, Elements target) {
    queue.push([source = std::move(source), target = std::move(target)] {
        const OnDevice mode;
        target.on_host().copy_(source.on_host());
    });
}

// On the source's stream, between what is pending on the target's stream now and what comes later.
void copy_between_devices(const at::Tensor& source, const at::Tensor& target) {
    Queue& giving = current_queue(source);
    Queue& taking = current_queue(target);
    giving.wait_for(taking.mark());
    push_copy(giving, Elements(source), Elements(target));
    taking.wait_for(giving.mark());
}

// From or to the host, where the caller may use the result at once. That holds for non_blocking copies of pageable
// memory, too, and there is no other here.
void copy_with_host(const at::Tensor& source, const at::Tensor& target) {
    const bool up = is_simulated(target);
    host_wait(current_queue(up ? target : source));
    const OnDevice mode;
    if (up) {
        Elements(target).on_host().copy_(source);
    } else {
        target.copy_(Elements(source).on_host());
    }
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
    // Now, because work that is put in must not fail later.
    TORCH_CHECK(at::is_expandable_to(source.sizes(), target.sizes()), "cannot copy a tensor of shape ",
                source.sizes(), " into one of shape ", target.sizes());
    const auto locked = lock();
    if (!is_simulated(source) || !is_simulated(target)) {
        copy_with_host(source, target);
    } else if (source.device() != target.device()) {
        copy_between_devices(source, target);
    } else {
        push_copy(current_queue(target), Elements(source), Elements(target));
    }
    return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
    resize(target, source.sizes(), std::nullopt);
    return copy_from(source, target, false);
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
    const auto locked = lock();
    const OnDevice mode;
    // Made now, so that a value that does not fit is an error of this call.
    const auto filling = at::full({}, value, at::TensorOptions(self.scalar_type()));
    current_queue(self).push([filling, target = Elements(self)] {
        const OnDevice mode;
        target.on_host().copy_(filling);
    });
    return self;
}

at::Tensor& clear(at::Tensor& self) {
    return fill(self, 0);
}

at::Scalar item(const at::Tensor& self) {
    const auto locked = lock();
    host_wait(current_queue(self));
    const OnDevice mode;
    return at::_local_scalar_dense(Elements(self).on_host());
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    {
        const auto locked = lock();
        for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
            host_wait_for_device(device);
        }
    }
    // A view made by way of the CPU would be a copy: better an error.
    at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
    m.impl("empty.memory_format", make_empty);
    m.impl("empty_strided", make_strided);
    m.impl("resize_", resize);
    m.impl("record_stream", record);
    m.impl("as_strided", make_view);
    m.impl("view", TORCH_FN(at::native::view));
    m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
    m.impl("unfold", TORCH_FN(at::native::unfold));
    m.impl("set_.source_Storage_storage_offset", set_storage_part);
    m.impl("set_.source_Storage", set_storage);
    m.impl("set_.source_Tensor", set_tensor);
    m.impl("set_", set_nothing);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("fill_.Scalar", fill);
    m.impl("zero_", clear);
    m.impl("_local_scalar_dense", item);
}

// Elements take care of these two. Without this, torch would resolve them with a copy, which calls this copy again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY(simdev, m) {
    m.def("step(int stream, int device) -> bool", step);
    m.def("pending(int stream, int device) -> int", pending);
    m.def("hang(int stream, int device) -> ()", hang_stream);
    m.def("capture(int stream, int device, bool on) -> ()", capture);
    m.def("set_limit(int? nbytes, int device) -> ()", set_limit);
    m.def("counts(int device) -> int[]", counts);
    m.def("reset() -> ()", reset);
}

}  // namespace
}  // namespace simdev
