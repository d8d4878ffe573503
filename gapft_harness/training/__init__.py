"""Training: the plan and the budget (without torch), the objective, the LoRA and GRPO loops."""
