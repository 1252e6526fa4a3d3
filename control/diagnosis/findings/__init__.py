"""Finds causes of slow requests in measurements: pure rules, and their order.

The rules quote two documents: "The Latency Anatomy" (five phases, two numbers, and a tree of questions with their wrong
answers) and "TTFT Optimization Program" (a budget by phase, and changes by cost).
"""
