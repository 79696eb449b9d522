"""Models outside of Holdfast: export, ONNX, Hugging Face."""
