"""Return probes by stubs: the same programs as by exits, and what only stubs must be asked: frames left by exceptions,
jumps and threads' ends, unwinders, coroutines, chains of tail calls, stacks a million frames deep.
"""
import harness
import returns_test
from returns_test import Counts, Kernel, Preloaded  # noqa: F401 (run here as well)

harness.Options.returns = "stub"
if __name__ == "__main__":
    harness.main()
