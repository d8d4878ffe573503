"""The ``vllm`` sampler."""
