"""Deployment formats: export, ONNX, Hugging Face."""
