"""ggml's MXFP4 x Q8_0 matrix product, built from the source that llama-cpp-python publishes and called through its C interface.

Not the same arithmetic as MXFP4 x MXFP4: ggml keeps the weights in MXFP4 and quantises the activations to 8 bits (Q8_0) inside the product.
It is the nearest thing a CPU user can install. `prepare` downloads and builds it once; nothing is built while measuring.
"""

import ctypes
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np

SOURCE = "llama-cpp-python==0.3.36"
TYPE_F32, TYPE_MXFP4 = 0, 39  # enum ggml_type
BLOCK, BLOCK_BYTES = 32, 17  # one scale byte, then 16 bytes of two codes: element j low, element j + 16 high
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)

# ggml's own build file expects to lie in its repository, unless another project includes it.
CMAKE_PROJECT = """cmake_minimum_required(VERSION 3.20)
project(ggml_peer C CXX)
add_subdirectory("${GGML_SOURCE}" ggml)
"""


class NotBuilt(Exception):
    """ggml cannot be loaded. The message says why and what to do."""


def prepare(cache):
    """Download and build ggml under the folder `cache`, with one compiler process at a time: about two minutes. Raises NotBuilt."""
    tools = [shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name) for name in ("cmake", "ninja")]
    cmake, ninja = tools
    if cmake is None:
        raise NotBuilt("cmake is not installed; pip install cmake")
    root = cache / "ggml"
    source, build = root / "source", root / "build"
    source.mkdir(parents=True, exist_ok=True)
    package, requirement = SOURCE.split("==")[0], SOURCE
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    try:
        if not any(source.glob("*/vendor/llama.cpp/ggml/CMakeLists.txt")):
            download = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", package, "-d", root, requirement]
            subprocess.run(download, check=True, stdout=sys.stderr)
            with tarfile.open(next(root.glob("*.tar.gz"))) as archive:
                archive.extractall(source, [m for m in archive.getmembers() if "/vendor/llama.cpp/ggml/" in m.name], filter="data")
        ggml = next(source.glob("*/vendor/llama.cpp/ggml"))
        (root / "CMakeLists.txt").write_text(CMAKE_PROJECT)
        options = [f"-DGGML_SOURCE={ggml}", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DGGML_CCACHE=OFF"]
        subprocess.run([cmake, "-S", root, "-B", build, *generator, *options], check=True, stdout=sys.stderr)
        subprocess.run([cmake, "--build", build, "-j1"], check=True, stdout=sys.stderr)
    except (OSError, StopIteration, subprocess.CalledProcessError, tarfile.TarError) as error:
        raise NotBuilt(f"building {SOURCE} in {root} failed: {error}") from error


class InitParameters(ctypes.Structure):
    """struct ggml_init_params."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Ggml:
    """ggml's CPU backend with a fixed number of threads."""

    def __init__(self, cache, threads):
        libraries = cache / "ggml" / "build" / "ggml" / "src"
        try:
            self.base = ctypes.CDLL(str(libraries / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
            self.cpu = ctypes.CDLL(str(libraries / "libggml-cpu.so"), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise NotBuilt("ggml is not built in the cache folder (--cache)") from error
        pointers = {
            self.base: "ggml_init ggml_new_tensor_2d ggml_mul_mat ggml_new_graph ggml_backend_alloc_ctx_tensors_from_buft "
            "ggml_backend_get_default_buffer_type ggml_backend_reg_get_proc_address ggml_backend_reg_dev_get ggml_backend_buft_name",
            self.cpu: "ggml_backend_cpu_init ggml_backend_cpu_reg",
        }
        for library, names in pointers.items():
            for name in names.split():
                getattr(library, name).restype = ctypes.c_void_p
        self.base.ggml_version.restype = ctypes.c_char_p
        self.version = self.base.ggml_version().decode()
        self.backend = ctypes.c_void_p(self.cpu.ggml_backend_cpu_init())
        self.cpu.ggml_backend_cpu_set_n_threads(self.backend, ctypes.c_int(threads))

    def repacked_buffer_type(self):
        """The buffer type that interleaves weights for the vectorised kernel, or None where this CPU has none."""
        register = ctypes.c_void_p(self.cpu.ggml_backend_cpu_reg())
        address = self.base.ggml_backend_reg_get_proc_address(register, b"ggml_backend_dev_get_extra_bufts")
        device = ctypes.c_void_p(self.base.ggml_backend_reg_dev_get(register, ctypes.c_size_t(0)))
        types = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(device)
        for index in range(16):
            if not types[index]:
                return None
            name = ctypes.string_at(self.base.ggml_backend_buft_name(ctypes.c_void_p(types[index])))
            if name == b"CPU_REPACK":
                return ctypes.c_void_p(types[index])
        return None

    def quantised(self, matrix):
        """F32 `matrix` [rows, k] as MXFP4 blocks, by ggml's own quantiser: uint8 [rows, k / 32, 17]."""
        rows, k = matrix.shape
        blocks = np.empty((rows, k // BLOCK, BLOCK_BYTES), dtype=np.uint8)
        self.base.ggml_quantize_chunk(
            TYPE_MXFP4, pointer(matrix), pointer(blocks), ctypes.c_int64(0), ctypes.c_int64(rows), ctypes.c_int64(k), None
        )
        return blocks

    def product(self, a, b, repacked):
        """A function that computes C = A Bᵀ, A [m, k] in F32 (quantised to Q8_0 in the call), B [n, k] in MXFP4; and one that reads C."""
        (m, k), n = a.shape, b.shape[0]
        context = ctypes.c_void_p(self.base.ggml_init(InitParameters(1 << 20, None, True)))
        plain = ctypes.c_void_p(self.base.ggml_backend_get_default_buffer_type(self.backend))
        kind = self.repacked_buffer_type() if repacked else plain
        if kind is None:
            raise NotBuilt("this build of ggml has no repacked MXFP4 kernel for this CPU")
        weight = self.tensor(context, TYPE_MXFP4, k, n, kind)
        blocks = self.quantised(b)
        self.base.ggml_backend_tensor_set(weight, pointer(blocks), ctypes.c_size_t(0), ctypes.c_size_t(blocks.nbytes))
        context = ctypes.c_void_p(self.base.ggml_init(InitParameters(1 << 20, None, True)))
        activation = self.tensor(context, TYPE_F32, k, m)
        output = ctypes.c_void_p(self.base.ggml_mul_mat(context, weight, activation))
        self.base.ggml_backend_alloc_ctx_tensors_from_buft(context, plain)
        self.base.ggml_backend_tensor_set(activation, pointer(a), ctypes.c_size_t(0), ctypes.c_size_t(a.nbytes))
        graph = ctypes.c_void_p(self.base.ggml_new_graph(context))
        self.base.ggml_build_forward_expand(graph, output)

        def run():
            status = self.base.ggml_backend_graph_compute(self.backend, graph)
            if status != 0:
                raise RuntimeError(f"ggml_backend_graph_compute returned {status}")

        def result():
            c = np.empty((m, n), dtype=np.float32)
            self.base.ggml_backend_tensor_get(output, pointer(c), ctypes.c_size_t(0), ctypes.c_size_t(c.nbytes))
            return c

        return run, result

    def tensor(self, context, kind, width, height, buffer_type=None):
        """A tensor of `height` rows in `context`, given memory of `buffer_type` at once, or with the context's other tensors later."""
        tensor = self.base.ggml_new_tensor_2d(context, ctypes.c_int(kind), ctypes.c_int64(width), ctypes.c_int64(height))
        if buffer_type is not None and not self.base.ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type):
            raise RuntimeError("ggml could not allocate a tensor")
        return ctypes.c_void_p(tensor)


def pointer(array):
    """The address of a contiguous NumPy array."""
    return array.ctypes.data_as(ctypes.c_void_p)


def dequantised(blocks):
    """MXFP4 blocks uint8 [rows, k / 32, 17] -> F32 [rows, k]."""
    scale = np.ldexp(np.float32(1), blocks[..., :1].astype(np.int32) - 127)
    codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], axis=-1)
    return (E2M1[codes] * scale).reshape(blocks.shape[0], -1)
