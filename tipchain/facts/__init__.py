"""Torch's layers, optimizers and schedules beside Paddle's: one row each.

Construction is compared by these rows, weights are copied by them, causes are spelled by them. Nothing else knows a pair of names.
Neither framework is imported until a layer of it is given.
"""
