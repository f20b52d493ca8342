"""Random edits of a stream in the Gymnasium environment; it needs the extra ``gym``."""

import gymnasium

environment = gymnasium.make("vtaops/Stream-v0", task="tiny/gemm")
_, info = environment.reset(seed=1)
environment.action_space.seed(1)
for _ in range(200):
    observation, reward, _, over, info = environment.step(environment.action_space.sample())
    if reward:
        print(f"{info['verdict'].cycles} cycles")
    if over:
        break
