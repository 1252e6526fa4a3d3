"""What makes requests slow, judged from what was measured: pure rules, and the order in which they are asked.

Two documents stand behind them and are quoted in the rules: "The Latency Anatomy" (five phases, two numbers, a tree of
questions whose wrong answers are named) and "TTFT Optimization Program" (a budget by phase, changes by what they cost).
"""
