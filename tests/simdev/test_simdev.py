"""The simulated accelerator keeps the rules that the library's tests rely on."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from tests.simdev import build as building
from tests.simdev.build import Unavailable, build
from tests.simdev.simulated import load

MIB = 1 << 20


def new(nbytes, device="sim:0"):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def allocated(device=0):
    return torch.accelerator.memory_allocated(device)


def reserved(device=0):
    return torch.accelerator.memory_reserved(device)


class TestSegments:
    @pytest.mark.parametrize(
        ("nbytes", "block", "segment"),
        [
            (1, 512, 2 * MIB),
            (512, 512, 2 * MIB),
            (513, 1024, 2 * MIB),
            (MIB, MIB, 2 * MIB),  # the largest small one
            (MIB + 1, MIB + 512, 20 * MIB),  # 20 - 1 MiB are left, much more than 1 MiB: split
            (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
            (10 * MIB - 511, 10 * MIB, 10 * MIB),  # rounded to 512 first
            (10 * MIB, 10 * MIB, 10 * MIB),  # from here on a segment of its own, in steps of 2 MiB
            (11 * MIB, 12 * MIB, 12 * MIB),  # 12 - 11 = 1 MiB is not more than 1 MiB: not split
            (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),  # 1 MiB and 512 bytes are: split
        ],
    )
    def test_sizes(self, sim, nbytes, block, segment):
        tensor = new(nbytes)
        assert (tensor.numel(), allocated(), reserved()) == (nbytes, block, segment)

    def test_nothing_needs_no_memory(self, sim):
        tensor = new(0)
        assert (tensor.data_ptr(), allocated(), reserved()) == (0, 0, 0)

    def test_small_ones_fill_a_segment_to_the_last_512_bytes(self, sim):
        parts = [new(MIB), new(MIB - 512), new(1)]  # 1 MiB + (1 MiB - 512) + 512 = 2 MiB
        assert reserved() == 2 * MIB
        parts.append(new(1))
        assert (allocated(), reserved()) == (2 * MIB + 512, 4 * MIB)

    def test_small_and_large_ones_never_share_a_segment(self, sim):
        del (large := [new(20 * MIB)])[0]
        small = [new(MIB)]
        assert (len(large), reserved()) == (0, 22 * MIB)  # not out of the 20 that are free
        small.clear()
        kept = [new(20 * MIB), new(MIB + 512)]  # the 2 that are free would do for the second
        assert reserved() == 42 * MIB
        assert len(kept) == 2

    def test_the_smallest_block_that_is_large_enough_is_taken(self, sim):
        freed = [new(size * MIB) for size in (40, 20, 30)]
        twenty = freed[1].data_ptr()
        freed.clear()
        assert new(18 * MIB).data_ptr() == twenty
        assert reserved() == 90 * MIB

    def test_shrinking_without_emptying_the_cache_keeps_all(self, sim):
        scratch = new(256 * MIB)
        address = scratch.data_ptr()
        del scratch
        scratch = new(64 * MIB)  # cut from the block of 256; 192 are left and wait
        assert scratch.data_ptr() == address
        assert (allocated(), reserved()) == (64 * MIB, 256 * MIB)
        torch.accelerator.empty_cache()  # cannot: the segment is in use
        assert reserved() == 256 * MIB
        assert sim.counts().segments_freed == 0

    def test_shrinking_by_way_of_an_empty_cache_holds_what_is_used(self, sim):
        scratch = new(256 * MIB)
        del scratch
        assert (allocated(), reserved()) == (0, 256 * MIB)
        torch.accelerator.empty_cache()
        assert reserved() == 0
        scratch = new(64 * MIB)
        assert (scratch.numel(), reserved()) == (64 * MIB, 64 * MIB)
        assert (sim.counts().segments_allocated, sim.counts().segments_freed) == (2, 1)

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_neighbours_grow_together_in_any_order(self, sim, order):
        parts = dict(enumerate(new(6 * MIB) for _ in range(3)))  # 3 * 6 = 18 of 20 MiB
        assert reserved() == 20 * MIB
        for index in order:
            del parts[index]
        whole = new(10 * MIB - 512)  # fits none of 6, 6, 6 and 2, nor two of them and 2 on one side
        rest = new(10 * MIB - 512)
        assert (whole.numel(), rest.numel(), reserved()) == (10 * MIB - 512, 10 * MIB - 512, 20 * MIB)
        del whole, rest
        torch.accelerator.empty_cache()
        assert reserved() == 0

    def test_memory_given_back_is_gone_from_the_process(self, sim):
        scratch = new(64 * MIB).fill_(1)
        torch.accelerator.synchronize()
        address, before = f"{scratch.data_ptr():x}", Path("/proc/self/maps").read_text()
        del scratch
        torch.accelerator.empty_cache()
        assert f"{address}-" in before or f"-{address}" in before
        assert resident() < resident_with(64 * MIB)

    def test_statistics(self, sim):
        kept = new(3 * MIB)
        del (freed := [new(40 * MIB)])[0]
        torch.accelerator.empty_cache()
        assert (allocated(), torch.accelerator.max_memory_allocated(0)) == (3 * MIB, 43 * MIB)
        assert (reserved(), torch.accelerator.max_memory_reserved(0)) == (20 * MIB, 60 * MIB)
        assert torch.accelerator.get_memory_info(0) == ((64 << 30) - 20 * MIB, 64 << 30)
        torch.accelerator.reset_peak_memory_stats(0)
        assert torch.accelerator.max_memory_reserved(0) == 20 * MIB
        stats = torch.accelerator.memory_stats(0)
        assert (stats["segment.large_pool.current"], stats["segment.small_pool.current"]) == (1, 0)
        assert stats["requested_bytes.all.current"] == kept.numel()
        assert freed == []


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def resident_with(nbytes):
    scratch = new(nbytes).fill_(1)
    torch.accelerator.synchronize()
    held = resident()
    del scratch
    return held


class TestLimit:
    def test_what_does_not_fit_is_an_out_of_memory_error(self, sim):
        sim.set_limit(100 * MIB)
        kept = new(60 * MIB)
        with pytest.raises(torch.OutOfMemoryError, match=rf"simulated device out of memory: .* {50 * MIB} bytes"):
            new(50 * MIB)
        assert new(40 * MIB).numel() + kept.numel() == 100 * MIB
        assert torch.accelerator.memory_stats(0)["num_ooms"] == 1
        sim.set_limit(None)
        assert new(100 * MIB).numel() == 100 * MIB

    def test_the_cache_is_emptied_for_another_try(self, sim):
        sim.set_limit(100 * MIB)
        del (freed := [new(60 * MIB)])[0]
        assert new(80 * MIB).numel() == 80 * MIB  # 60 + 80 > 100
        assert (freed, reserved()) == ([], 80 * MIB)
        stats = torch.accelerator.memory_stats(0)
        assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)

    def test_the_other_try_waits_for_streams_that_still_use_freed_memory(self, sim):
        sim.set_limit(100 * MIB)
        used_by(side := torch.Stream("sim:0"), new(60 * MIB))
        assert sim.pending(side) == 2  # the fill, and the place at which the memory was freed
        assert new(80 * MIB).numel() == 80 * MIB
        assert sim.pending(side) == 0

    def test_during_a_capture_there_is_no_other_try(self, sim):
        sim.set_limit(100 * MIB)
        del (freed := [new(60 * MIB)])[0]
        with sim.capturing(), pytest.raises(torch.OutOfMemoryError):
            new(80 * MIB)
        assert (freed, reserved(), sim.counts().segments_freed) == ([], 60 * MIB, 0)

    def test_a_tensor_that_cannot_grow_has_its_new_shape_and_its_old_storage(self, sim):
        sim.set_limit(100 * MIB)
        scratch = new(60 * MIB)
        with pytest.raises(torch.OutOfMemoryError):
            scratch.resize_(80 * MIB)
        assert (scratch.numel(), scratch.untyped_storage().nbytes()) == (80 * MIB, 60 * MIB)


def used_by(stream, tensor):
    """Have `stream` write 7 to a tensor, some time."""
    with stream:
        tensor.fill_(7)
    tensor.record_stream(stream)


class TestStreams:
    def test_nothing_runs_until_somebody_waits(self, sim):
        tensor = new(16)
        tensor.zero_()
        tensor.fill_(1)
        assert (sim.pending(), torch.accelerator.current_stream().query()) == (2, False)
        assert sim.step()
        assert sim.step()
        assert not sim.step()
        assert (sim.pending(), torch.accelerator.current_stream().query()) == (0, True)
        assert sim.counts().host_waits == 0
        assert tensor.cpu().tolist() == [1] * 16
        assert sim.counts().host_waits == 1

    @pytest.mark.parametrize(
        "wait",
        [
            lambda tensor: torch.accelerator.synchronize(),
            lambda tensor: torch.accelerator.current_stream().synchronize(),
            lambda tensor: torch.accelerator.current_stream().record_event().synchronize(),
            lambda tensor: tensor.cpu(),
            lambda tensor: tensor.copy_(torch.ones(16)),
            lambda tensor: tensor[0].item(),
            lambda tensor: tensor + 1,
        ],
    )
    def test_what_waits(self, sim, wait):
        tensor = new(16).fill_(1)
        wait(tensor)
        assert sim.pending() == 0
        assert sim.counts().host_waits > 0

    def test_a_copy_to_the_host_waits_for_the_current_stream_only(self, sim):
        tensor, side = new(16).fill_(1), torch.Stream("sim:0")
        with side:
            tensor.fill_(2)
        assert tensor.cpu().tolist() == [1] * 16
        assert (sim.pending(), sim.pending(side)) == (0, 1)
        torch.accelerator.synchronize()
        assert tensor.cpu().tolist() == [2] * 16

    def test_work_of_one_stream_keeps_its_order(self, sim):
        tensor, copy = new(16), new(16)
        tensor.fill_(1)
        copy.copy_(tensor)
        tensor.fill_(2)
        del tensor
        assert copy.cpu().tolist() == [1] * 16

    def test_memory_is_used_again_only_by_the_stream_it_was_allocated_on(self, sim):
        side = torch.Stream("sim:0")
        tensor = new(40 * MIB)
        address = tensor.data_ptr()
        del tensor
        with side:
            other = new(40 * MIB)
        assert (other.data_ptr() != address, reserved()) == (True, 80 * MIB)
        assert (new(40 * MIB).data_ptr(), reserved()) == (address, 80 * MIB)

    def test_recorded_memory_is_free_when_the_stream_has_reached_the_place(self, sim):
        used_by(side := torch.Stream("sim:0"), new(40 * MIB))
        assert allocated() == 0
        one = new(40 * MIB)
        assert reserved() == 80 * MIB
        del one
        while sim.step(side):
            pass
        both = new(40 * MIB), new(40 * MIB)
        assert (len(both), reserved()) == (2, 80 * MIB)

    def test_recording_the_stream_it_was_allocated_on_changes_nothing(self, sim):
        used_by(torch.accelerator.current_stream(), new(40 * MIB))
        assert sim.pending() == 1  # the fill only
        assert new(40 * MIB).numel() == reserved()

    @pytest.mark.parametrize("record", [False, True])
    def test_the_race_replays_every_time(self, sim, record):
        side, corrupt = torch.Stream("sim:0"), 0
        for _ in range(100):
            scratch = new(4 * MIB)
            with side:
                scratch.fill_(7)
            if record:
                scratch.record_stream(side)
            del scratch
            tensor = new(4 * MIB).fill_(1)
            torch.accelerator.current_stream().synchronize()
            assert (tensor.cpu() == 1).all()
            torch.accelerator.synchronize()
            corrupt += bool((tensor.cpu() == 7).all())
        assert corrupt == (0 if record else 100)

    def test_memory_with_work_pending_is_only_given_back_after_it(self, sim):
        side, scratch = torch.Stream("sim:0"), new(40 * MIB)
        with side:
            scratch.fill_(7)
        del scratch  # not recorded: a mistake, but the device is idle before its memory is unmapped
        torch.accelerator.empty_cache()
        assert (sim.pending(side), reserved()) == (0, 0)

    def test_work_runs_the_same_in_any_mode(self, sim):
        with torch.inference_mode():
            inferred = new(4).fill_(1)
        plain = new(4).fill_(2)
        with torch.inference_mode():
            torch.accelerator.synchronize()
        inferred_again = inferred + 0
        assert (inferred_again.cpu().tolist(), plain.cpu().tolist()) == ([1] * 4, [2] * 4)

    def test_the_current_stream_and_device_are_of_the_thread(self, sim):
        seen = []

        def look():
            seen.append((torch.accelerator.current_device_index(), torch.accelerator.current_stream().stream_id))

        with torch.Stream("sim:1"):
            look()
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        assert seen == [(1, 1), (0, 0)]


class TestEvents:
    def test_an_event_is_reached_when_its_stream_comes_to_it(self, sim):
        event = torch.Event("sim:0")
        assert event.query()  # never recorded
        new(16).fill_(1)
        event.record()
        assert not event.query()
        assert (sim.step(), event.query(), sim.step(), event.query()) == (True, False, True, True)

    def test_recorded_again_it_means_the_later_place(self, sim):
        event = torch.Event("sim:0")
        event.record()
        event.synchronize()
        new(16).fill_(1)
        event.record()
        assert not event.query()
        event.synchronize()
        assert (event.query(), sim.pending()) == (True, 0)

    def test_a_stream_waits_for_the_event_of_another(self, sim):
        tensor, side = new(16).fill_(1), torch.Stream("sim:0")
        event = torch.accelerator.current_stream().record_event()
        side.wait_event(event)
        with side:
            tensor.fill_(2)
        assert not sim.step(side)
        side.synchronize()  # runs what it waits for first
        assert (sim.pending(), sim.pending(side)) == (0, 0)
        assert tensor.cpu().tolist() == [2] * 16

    def test_waiting_runs_no_more_than_is_needed(self, sim):
        main, side = torch.accelerator.current_stream(), torch.Stream("sim:0")
        tensor = new(16).fill_(1)
        side.wait_stream(main)
        tensor.fill_(3)
        side.synchronize()
        assert sim.pending(main) == 1
        assert tensor.cpu().tolist() == [3] * 16

    def test_waiting_for_work_that_never_ends_is_an_error(self, sim):
        side = torch.Stream("sim:0")
        sim.hang(side)
        torch.accelerator.current_stream().wait_stream(side)
        tensor = new(40 * MIB).fill_(1)
        with pytest.raises(RuntimeError, match="simulated device deadlock"):
            tensor.cpu()
        with pytest.raises(RuntimeError, match="simulated device deadlock"):
            torch.accelerator.synchronize()
        del tensor
        with pytest.raises(RuntimeError, match="simulated device deadlock"):
            torch.accelerator.empty_cache()
        assert reserved() == 40 * MIB
        sim.reset()
        assert (reserved(), sim.pending(), sim.pending(side)) == (0, 0, 0)


class TestCapture:
    def test_the_flag_is_of_one_stream(self, sim):
        main, side = torch.accelerator.current_stream(), torch.Stream("sim:0")
        assert not main.is_capturing()
        with sim.capturing():
            assert torch.accelerator.current_stream().is_capturing()
            assert not side.is_capturing()
        sim.capture(True, side)
        assert (main.is_capturing(), side.is_capturing()) == (False, True)
        sim.reset()
        assert not side.is_capturing()

    def test_segments_freed_under_it_are_counted(self, sim):
        del (freed := [new(40 * MIB)])[0]
        with sim.capturing(torch.Stream("sim:1")):
            torch.accelerator.empty_cache()
        assert freed == []
        assert (sim.counts().segments_freed, sim.counts().frees_under_capture) == (1, 1)
        del (freed := [new(40 * MIB)])[0]
        torch.accelerator.empty_cache()
        assert (sim.counts().segments_freed, sim.counts().frees_under_capture) == (2, 1)

    def test_memory_that_other_streams_use_is_not_asked_about_before_its_end(self, sim):
        side = torch.Stream("sim:0")
        with sim.capturing():
            used_by(side, new(40 * MIB))
            torch.accelerator.synchronize()
            kept = [new(40 * MIB)]
            assert reserved() == 80 * MIB
        kept.append(new(40 * MIB))  # places a fence now, behind which the first block is free
        assert reserved() == 120 * MIB
        torch.accelerator.synchronize()
        kept.append(new(40 * MIB))
        assert reserved() == 120 * MIB


class TestTwoDevices:
    def test_what_torch_sees(self, sim):
        assert torch.accelerator.current_accelerator() == torch.device("sim")
        assert (torch.accelerator.is_available(), torch.accelerator.device_count()) == (True, 2)
        with pytest.raises(RuntimeError, match="no simulated device 2"):
            new(1, "sim:2")

    def test_tensors_lie_where_they_were_asked_for(self, sim):
        here, there = new(3 * MIB), new(40 * MIB, "sim:1")
        assert (here.device.index, there.device.index) == (0, 1)
        assert (reserved(0), reserved(1)) == (20 * MIB, 40 * MIB)
        with torch.accelerator.device_index(1):
            assert new(40 * MIB, "sim").device.index == 1
            assert torch.empty_like(here).device.index == 0
        assert (reserved(0), reserved(1)) == (20 * MIB, 80 * MIB)
        assert torch.accelerator.current_device_index() == 0

    def test_work_goes_to_the_stream_of_the_tensors_device(self, sim):
        new(16, "sim:1").fill_(1)
        with torch.Stream("sim:1"):
            new(16, "sim:0").fill_(1)
            new(16, "sim:1").fill_(1)
        assert [sim.pending(0, 0), sim.pending(0, 1), sim.pending(1, 1)] == [1, 1, 1]
        torch.accelerator.synchronize(1)
        assert [sim.pending(0, 0), sim.pending(0, 1), sim.pending(1, 1)] == [1, 0, 0]

    def test_stream_ids_repeat(self, sim):
        here, there = torch.Stream("sim:0"), torch.Stream("sim:1")
        assert (here.stream_id, there.stream_id) == (1, 1)
        assert here != there
        with there:
            assert torch.accelerator.current_device_index() == 1
            assert torch.accelerator.current_stream() == there
        assert torch.accelerator.current_stream(1).stream_id == 0

    def test_growing_keeps_the_device(self, sim):
        tensor = new(16, "sim:1").fill_(5)
        tensor.resize_(40 * MIB)
        assert (reserved(0), reserved(1)) == (0, 42 * MIB)
        assert tensor[:16].cpu().tolist() == [5] * 16
        tensor.untyped_storage().resize_(0)
        assert (tensor.untyped_storage().nbytes(), tensor.untyped_storage().device.index) == (0, 1)

    def test_a_copy_between_them_waits_for_both(self, sim):
        source, target = new(16), new(16, "sim:1")
        target.fill_(1)
        source.fill_(2)
        target.copy_(source)
        source.fill_(3)
        assert target.cpu().tolist() == [2] * 16
        assert sim.pending(0, 0) == 1  # the last fill: its stream was run as far as the copy

    def test_the_caches_are_emptied_together_and_the_call_is_the_current_devices(self, sim):
        for device in ("sim:0", "sim:1"):
            new(40 * MIB, device)
        with torch.accelerator.device_index(1):
            torch.accelerator.empty_cache()
        assert (reserved(0), reserved(1)) == (0, 0)
        assert [sim.counts(device).empty_cache_calls for device in (0, 1)] == [0, 1]
        assert [sim.counts(device).segments_freed for device in (0, 1)] == [1, 1]

    def test_a_limit_is_of_one_device(self, sim):
        sim.set_limit(100 * MIB, 1)
        assert new(200 * MIB).numel() == 200 * MIB
        with pytest.raises(torch.OutOfMemoryError, match="on device 1"):
            new(200 * MIB, "sim:1")


class TestOperators:
    def test_views_share_the_memory(self, sim):
        tensor = new(24)
        for view in (tensor[4:8], tensor.view(4, 6)[1], tensor.view(torch.int32)[1:2], tensor.unfold(0, 6, 6)):
            assert view.untyped_storage().data_ptr() == tensor.data_ptr()
        tensor.view(4, 6).t()[1:3, ::2].fill_(9)
        tensor.view(2, 12).reshape(4, 6)[3].zero_()
        rows = tensor.view(4, 6).cpu()
        assert rows[0, 1:3].tolist() == rows[2, 1:3].tolist() == [9, 9]
        assert rows[3].tolist() == [0] * 6

    def test_a_view_that_would_be_a_copy_is_an_error(self, sim):
        with pytest.raises(RuntimeError, match="view operator"):
            torch.view_as_real(torch.zeros(2, dtype=torch.complex64, device="sim"))

    def test_resize(self, sim):
        tensor = new(4 * MIB)
        address = tensor.data_ptr()
        tensor.resize_(0)
        tensor.resize_(2 * MIB)
        assert (tensor.data_ptr(), tensor.untyped_storage().nbytes()) == (address, 4 * MIB)
        tensor.fill_(5).resize_(8 * MIB)
        assert tensor.untyped_storage().nbytes() == 8 * MIB
        assert (tensor[: 2 * MIB].cpu() == 5).all()
        tensor.untyped_storage().resize_(0)
        assert allocated() == 0

    def test_set(self, sim):
        storage = new(16).fill_(3).untyped_storage()
        tensor = new(0)
        assert tensor.set_(storage, 4, (2, 3)).cpu().tolist() == [[3, 3, 3], [3, 3, 3]]
        assert tensor.storage_offset() == 4
        assert tensor.set_(storage).shape == (16,)
        assert tensor.set_(new(7)).shape == (7,)
        assert tensor.set_().shape == (0,)
        assert tensor.device.index == 0

    def test_values_are_checked_when_they_are_given(self, sim):
        with pytest.raises(RuntimeError, match="overflow"):
            new(4).fill_(300)
        with pytest.raises(RuntimeError, match=r"shape \[3\] into one of shape \[4\]"):
            new(4).copy_(new(3))
        assert sim.pending() == 0

    def test_copies_convert_and_broadcast(self, sim):
        tensor = torch.tensor([1.5, 2.5], device="sim")
        assert tensor.to(torch.int64).cpu().tolist() == [1, 2]
        wide = torch.empty(2, 2, device="sim")
        wide.copy_(tensor)
        assert wide.cpu().tolist() == [[1.5, 2.5], [1.5, 2.5]]
        number = torch.tensor([1 + 2j], device="sim")
        assert number.conj().clone().cpu().tolist() == number.conj().cpu().tolist() == [1 - 2j]

    def test_all_others_run_on_the_cpu(self, sim):
        tensor = torch.arange(8, dtype=torch.float32, device="sim:1")
        total = (tensor.view(2, 4) @ torch.ones(4, 1, device="sim:1") * 2 + 1).sum()
        assert (total.device.index, total.item()) == (1, 2 * 28 + 2)
        assert "sim:1" in repr(tensor)


class TestLoading:
    def test_once_a_process(self, sim):
        assert load() is sim

    def test_torch_on_the_cpu_is_as_before(self, sim):
        torch.manual_seed(1)
        weight = torch.ones(3, requires_grad=True)
        (weight * torch.arange(3)).sum().backward()
        assert weight.grad.tolist() == [0, 1, 2]

    def test_it_loads_without_a_warning_after_anything_else_did(self, sim):
        code = (
            "import torch; torch.ones(1, requires_grad=True).sum().backward()\n"
            "from tests.simdev.simulated import load\n"
            "load(); torch.manual_seed(1)\n"
            "kept = torch.ones(3, device='sim:1')  # also at exit\n"
            "print(kept.sum().item())"
        )
        command = [sys.executable, "-W", "error", "-c", code]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr, done.returncode) == ("3.0\n", "", 0)

    def test_what_is_built_is_not_built_again(self, sim, monkeypatch):
        monkeypatch.setattr(subprocess, "run", None)
        assert build().exists()

    @pytest.mark.parametrize("wanted", [None, "no-such-compiler"])
    def test_without_a_compiler_it_is_unavailable(self, monkeypatch, tmp_path, wanted):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CXX", raising=False)
        if wanted:
            monkeypatch.setenv("CXX", wanted)
        with pytest.raises(Unavailable, match=r"no C\+\+ compiler: " + (wanted or r"c\+\+, g\+\+, clang\+\+")):
            build(tmp_path)

    def test_without_headers_it_is_unavailable(self, sim, monkeypatch, tmp_path):
        monkeypatch.setattr(building, "include_paths", lambda: [str(tmp_path)])
        with pytest.raises(Unavailable, match=r"no C\+\+ headers"):
            build(tmp_path)

    def test_sources_that_do_not_compile_are_an_error(self, sim, monkeypatch, tmp_path):
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "wrong.cpp").write_text("#error wrong on purpose\n")
        monkeypatch.setattr(building, "SOURCES", tmp_path / "src")
        with pytest.raises(RuntimeError, match="wrong on purpose"):
            build(tmp_path / "out")
        assert list((tmp_path / "out").iterdir()) == []

    def test_a_real_accelerator_is_not_hidden(self, sim, monkeypatch):
        monkeypatch.delattr(torch, "sim")
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
        with pytest.raises(Unavailable, match="cuda here"):
            load()
