"""The network compiler: plan, mapping to operators, memory, one program per region."""

from vtaops.network.compile import as_graph, compile_model, plan_model, target_of
from vtaops.network.plan import Plan, plan

__all__ = ["Plan", "as_graph", "compile_model", "plan", "plan_model", "target_of"]
