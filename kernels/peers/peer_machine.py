"""What the peers run on: versions, processor, compiler, and the memory of this process."""

import ctypes
import gc
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path


def environment(threads):
    """What the numbers were taken on."""
    record = {"python": platform.python_version(), "threads": threads}
    record |= {package: version_of(package) for package in ("torch", "torchao", "ml_dtypes", "numpy")}
    try:
        text = Path("/proc/cpuinfo").read_text()
        record["cpu"] = re.search(r"model name\s*: (.*)", text)[1]
        flags = set(re.search(r"flags\s*: (.*)", text)[1].split())
        wanted = "avx2 avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_int8 amx_bf16"
        record["cpu_features"] = [flag for flag in wanted.split() if flag in flags]
    except (OSError, TypeError):
        record |= {"cpu": platform.processor() or platform.machine(), "cpu_features": []}
    record |= {"cpus": os.cpu_count(), "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else [], "compiler": compiler()}
    try:
        import torch

        built = torch.__config__.show()
        for key, pattern in (("mkl", r"Math Kernel Library Version (\S+)"), ("onednn", r"MKL-DNN (\S+)")):
            found = re.search(pattern, built)
            record[key] = found[1] if found else None
        record["pytorch_cpu_capability"] = torch.backends.cpu.get_cpu_capability()
        record["pytorch_flush_denormal"] = False
    except ImportError:
        pass
    record["onednn_max_cpu_isa"] = os.environ.get("ONEDNN_MAX_CPU_ISA")
    return record


def version_of(package):
    """The installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def compiler():
    """The first line a C++ compiler says of itself, or None if there is none."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++")):
        if path := shutil.which(name):
            return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return None


def restart_peak_memory():
    """Begin a new measurement of the process's peak resident memory (Linux). Returns what is resident now in MiB."""
    gc.collect()  # earlier models, which compiled graphs keep in reference cycles
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        pass  # not glibc
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # the peak is then that since the process began, as getrusage gives it
    return peak_memory_mib()


def peak_memory_mib():
    """Peak resident memory in MiB since `restart_peak_memory`, or None where the system does not tell."""
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    except (OSError, TypeError):
        pass
    try:
        import resource

        unit = 1024**2 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    except ImportError:
        return None
