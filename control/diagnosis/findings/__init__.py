"""Finds causes of slow requests in measurements: pure rules, and their order.

The rules quote two documents: "The Latency Anatomy" (five phases, two numbers, a tree of questions whose wrong answers
are named) and "TTFT Optimization Program" (a budget by phase, changes by what they cost).
"""
