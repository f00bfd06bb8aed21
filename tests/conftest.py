"""Makes every test reproducible: fixed seeds, and hypothesis without chance."""

import os
import random
import signal

import numpy as np
import pytest
import torch
from hypothesis import register_random, settings

SEED = 0

# Tests run side by side, one process per core: threads of their own would only wait for each other.
torch.set_num_threads(1)


# A shell's background job ignores interruptions, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


class TorchRandom:
    """Torch's global generator, in the form in which hypothesis resets one before each example."""

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


torch_random = TorchRandom()  # hypothesis keeps only a weak reference
register_random(torch_random)

settings.register_profile("dagnn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("dagnn")


@pytest.fixture(autouse=True, scope="session")
def own_inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Inductor's own does not tell CPUs apart: what was generated on one with wider vectors reads
    and writes beyond its tensors on another."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.mktemp("inductor"))


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - libraries draw from the global generator
    torch.manual_seed(SEED)
