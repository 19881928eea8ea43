"""What an edge peer does without: PyTorch's compiler, which comes when something is to be compiled, oneDNN, and the
modules of the report, of SWIM and of the conversation that is usual elsewhere."""

import subprocess
import sys

CODE = """
import sys, torch
from samovar.peers.machine.torch_imports import do_without_compiler
do_without_compiler()
model = torch.nn.Linear(3, 2)
for kind in (torch.optim.SGD, torch.optim.AdamW):
    optimizer = kind(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
print("sympy" in sys.modules, type(sys.modules["torch._dynamo"]).__name__)
compiled = torch.compile(lambda x: 2 * x, backend="eager")
print(compiled(torch.ones(2)).tolist(), "sympy" in sys.modules, type(sys.modules["torch._dynamo"]).__name__)
optimizer.step()
do_without_compiler()
import torch._dynamo.config
print(torch._dynamo.config.__name__)
"""


def test_an_edge_peer_trains_without_the_compiler_and_gets_it_when_it_compiles() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False _Compiler", "[2.0, 2.0] True module", "torch._dynamo.config"]


LEAN = """
import sys, torch
import samovar.peers.cli.join
from samovar.peers.machine.torch_imports import do_without_convolution_libraries
from samovar.peers.conversations.loading import loaded
loaded("allreduce")  # until the run's conversation is known
loaded("gossip")
not_held = ("samovar.peers.report.", "samovar.protocols.swim.", "samovar.protocols.local_sgd.")
print([name for name in sys.modules if name.startswith(not_held)])
layer, images = torch.nn.Conv2d(1, 4, 3), torch.rand(2, 1, 8, 8)
before = layer(images)
do_without_convolution_libraries()
print(torch.allclose(layer(images), before, atol=1e-6), torch.backends.mkldnn.enabled)
torch.backends.mkldnn.enabled = True
print(torch.backends.mkldnn.enabled)
"""


def test_an_edge_peer_holds_no_code_of_onednn_or_the_report_and_a_task_may_have_onednn() -> None:
    done = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False", "True"]
