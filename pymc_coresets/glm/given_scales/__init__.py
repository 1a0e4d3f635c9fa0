"""Models whose posterior is normal given a few scales: exact draws, without rows or a quadratic.

May import `glm.predictor`, `glm.control_variates`, and the rooms below `glm`.
"""
