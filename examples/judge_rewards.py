"""Rewards for what a model writes, by verdicts; it needs the extra ``verifiers``.

The module is a taskset of verifiers: ``vf-eval judge_rewards`` in this folder asks a model.
"""

from vtaops.explore.judge.rewards import KernelConfig, KernelTaskset, verdict_on

__all__ = ["KernelTaskset"]

if __name__ == "__main__":
    for row in KernelTaskset(KernelConfig(names="tiny/")):
        stream = row.data.prompt.split("```")[1]  # the compiler's, as a model could answer
        print(verdict_on(row.data.kernel, f"My answer is\n```\n{stream}```"))
