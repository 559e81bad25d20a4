"""What is said about the machine, and devices that are not there."""

import pytest
import torch

from glocal.errors import DeviceError
from glocal.machine import check_device, machine


@pytest.mark.parametrize("device", ["cuda:99", "cuda:x", "tpu"])
def test_a_device_that_is_not_here_is_refused(device):
    with pytest.raises(DeviceError, match=f"train: the device '{device}' is not available here. Use cpu."):
        check_device("train", device)


def test_a_gpu_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="bench: the device 'cuda' is not available here"):
        check_device("bench", "cuda")


def test_the_machine_is_not_named(monkeypatch):
    import platform

    monkeypatch.setattr(platform, "node", lambda: "secret-host")
    assert "secret-host" not in machine()
    assert "cores" in machine()
