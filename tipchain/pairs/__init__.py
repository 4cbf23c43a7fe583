"""Optimizers and schedules, each once for torch and once for Paddle, that make equal updates and equal rates.

A case names them where it has no builders of its own, on both sides, and both sides get the same arguments::

    sides:
      torch:
        optimizer: "tipchain.pairs.torch_optimizers:build_optimizer"
        scheduler: "tipchain.pairs.torch_schedulers:build_scheduler"
      paddle:
        optimizer: "tipchain.pairs.paddle_optimizers:build_optimizer"
        scheduler: "tipchain.pairs.paddle_schedulers:build_scheduler"
    optimizer: {name: adamw, weight_decay: 0.05, no_decay: [bias, norm], clip_global_norm: 1.0}
    scheduler: {name: cosine, total_steps: 90, warmup_steps: 5, warmup_start: 0.1}

Where the frameworks' formulas differ, torch's holds: it is the reference. What one framework cannot do is refused.
"""
